"""What a served model is called."""

from __future__ import annotations

from tests.engine.conversation import ask, new_engine, request
from zllm_ref.engine.script import SCRIPTED_TEXT


def test_a_model_answers_to_every_name_that_it_was_given_and_calls_itself_by_the_first() -> None:
    engine = new_engine(served_names=("gpt-5-local", "claude-local"))
    try:
        (card,) = engine.models
        said = [ask(engine, request("hi", model=name)).text() for name in ("gpt-5-local", "claude-local", "scripted")]
    finally:
        engine.close()

    assert card.id == "gpt-5-local"
    assert said == [SCRIPTED_TEXT] * 3
