"""Who guesses, from settings: an engine says the same with each drafter; what cannot be is refused in plain words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.conversation import WEATHER, Answer, ask, request, user
from zllm_ref.canonical.request import Sampling, ToolChoiceRequired
from zllm_ref.config import DraftSettings, EngineSettings, ModelSettings
from zllm_ref.engine import Engine

GLM = EngineSettings(model=ModelSettings(model="tiny-glm4-moe", dtype="float32", threads=1))
LLAMA = EngineSettings(model=ModelSettings(model="tiny-llama", dtype="float32", threads=1))
DRAFTS = {
    "prompt_lookup": DraftSettings("prompt_lookup", 5),
    "mtp": DraftSettings("mtp"),
    "model": DraftSettings("model", model="tiny-llama"),
}


def engine_with(settings: EngineSettings, draft: DraftSettings) -> Engine:
    engine = Engine(replace(settings, draft=draft))
    engine.load()
    return engine


def answers(engine: Engine) -> list[Answer]:
    """Free, fenced, and in several choices; the second turn of a conversation finds the first in the cache."""
    model = "tiny-glm4-moe"
    free = request("one two three one two three", model=model, max_tokens=24, sampling=Sampling(temperature=0.7, seed=3))
    calls = request(
        user("weather"), model=model, max_tokens=40, tools=(WEATHER,), tool_choice=ToolChoiceRequired(), logprobs=True
    )
    several = request("more", model=model, max_tokens=9, num_choices=3, sampling=Sampling(temperature=0.9, seed=4))
    first = ask(engine, free)
    turn = request("one two three one two three", first.message(), "and again", model=model, max_tokens=20)
    return [first, ask(engine, calls), ask(engine, several), ask(engine, turn)]


@pytest.mark.parametrize("kind", list(DRAFTS))
def test_an_engine_says_the_same_whoever_guesses(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    plain, drafted = engine_with(GLM, DraftSettings()), engine_with(GLM, DRAFTS[kind])
    try:
        expected, got = answers(plain), answers(drafted)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.joined() == theirs.joined()
            assert mine.finished.usage == theirs.finished.usage
        figures = {figure.name: figure.value for figure in drafted.figures() if not figure.labels}
        assert "drafted_tokens" not in {figure.name for figure in plain.figures()}
        assert figures["accepted_tokens"] <= figures["drafted_tokens"]
        assert figures["drafted_tokens"] > 0 or kind == "prompt_lookup"
        assert "a drafter broke" not in caplog.text  # it would be left out, and only the log would tell
    finally:
        plain.close()
        drafted.close()
    drafted.loaded.cache.check()
    assert drafted.loaded.cache.reserved_bytes == 0


def test_what_drafters_keep_in_a_state_is_part_of_what_names_it() -> None:
    """A state with a drafter's rows in it is no state of an engine without them; guesses from ids leave states as they are."""
    names = []
    for draft in (DraftSettings(), DRAFTS["prompt_lookup"], DRAFTS["mtp"]):
        engine = engine_with(GLM, draft)
        names.append(engine.loaded.identity)
        engine.close()

    assert names[0] == names[1]
    assert names[0] != names[2]


def test_a_limit_of_guesses_is_the_factorys_limit() -> None:
    engine = engine_with(LLAMA, DraftSettings("prompt_lookup", 3))
    engine.close()

    assert engine.loaded.drafters is not None
    assert engine.loaded.drafters.most_length == 3


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (DraftSettings("guess"), r"--draft: got 'guess', allowed none, prompt_lookup, mtp, dspark, model"),
        (DraftSettings("mtp"), r"--draft mtp: got tiny-llama \(llama\), which brings no layer for further tokens"),
        (DraftSettings("model"), r"--draft model: got no --draft-model, allowed a model's name"),
        (DraftSettings("prompt_lookup", model="tiny-llama"), r"--draft-model: got 'tiny-llama' with --draft prompt_lookup"),
        (DraftSettings("none", 4), r"--draft-tokens: got 4 with --draft none"),
        (DraftSettings("dspark"), r"--draft dspark: got no --draft-model, and there are no weights for tiny-llama here"),
    ],
    ids=lambda value: value.drafter if isinstance(value, DraftSettings) else "",
)
def test_settings_that_cannot_be_are_refused_in_plain_words(draft: DraftSettings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_with(LLAMA, draft)


def test_a_draft_model_with_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from zllm_ref.engine import drafters
    from zllm_ref.tokenizer.byte_vocabulary import CHATML_MARKERS, byte_vocabulary

    real = drafters.read_model

    def with_fewer_markers(*given: object) -> object:
        return replace(real(*given), vocabulary=byte_vocabulary(CHATML_MARKERS))  # type: ignore[arg-type]

    monkeypatch.setattr(drafters, "read_model", with_fewer_markers)

    with pytest.raises(
        ValueError, match=r"got tiny-qwen3 with a tokenizer of 259 ids, allowed one with the tokenizer of tiny-llama"
    ):
        engine_with(LLAMA, DraftSettings("model", model="tiny-qwen3"))


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "tpu", "mps"])
def test_a_device_that_is_not_here_is_refused_in_plain_words(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    engine = Engine(replace(LLAMA, model=replace(LLAMA.model, device=device)))

    with pytest.raises(ValueError, match="--device: got '" + device):
        engine.load()
