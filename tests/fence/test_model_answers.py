"""Real models with random weights, real rounds: what they say under the fence are legal calls (`ci/fence_generations`: more)."""

from __future__ import annotations

import pytest

from tests.fence.model_answers import CHOICES, LANES, Case, FencedModel, IllegalCall
from tests.fence.vocabularies import trained_vocabulary
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.fence import FenceCompiler
from zllm_ref.fence.json_schema_fence import HeldSchema, type_only

MODEL = FencedModel("tiny-llama", trained_vocabulary())


@pytest.mark.parametrize(("number", "name"), list(enumerate(DEFINITIONS)))
def test_every_call_of_a_random_model_is_legal_alone_in_a_batch_and_with_drafts(number: int, name: str) -> None:
    choice = CHOICES[number // 3]

    judged = MODEL.answers(Case(number, name, choice))

    assert [len(answers) for answers in judged.values()] == [1, LANES, LANES]
    assert all(one.num_calls > 0 for answers in judged.values() for one in answers)


def test_the_judge_falls_where_the_fence_forgets_the_rules_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(schema: JsonObject, path: str) -> HeldSchema:
        return HeldSchema(type_only(schema))

    monkeypatch.setattr("zllm_ref.fence.held_grammar.hold_schema", forgetful)
    monkeypatch.setattr(MODEL, "compiler", FenceCompiler(MODEL.vocabulary))

    def say() -> None:
        for number in range(6):
            MODEL.answers(Case(number, "chatml-qwen3", "required"))

    with pytest.raises(IllegalCall, match="chatml-qwen3"):
        say()
