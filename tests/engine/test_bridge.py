"""The bridge: canonical requests in, canonical events out, with usage that adds up and a cache that tells namespaces apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.conversation import WEATHER, Answer, ask, new_engine, request
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import Finished, FinishReason, TextDelta
from zllm_ref.canonical.message import Message, Role, Text
from zllm_ref.canonical.request import CacheSettings, Sampling
from zllm_ref.config import EngineSettings, ModelSettings
from zllm_ref.engine import Engine
from zllm_ref.engine.script import SCRIPTED_TEXT
from zllm_ref.model_files import ModelFileError

TINY = "tiny-llama"


@pytest.fixture(scope="module")
def tiny() -> Iterator[Engine]:
    """One engine for the tests that read, with a cache that others may have filled."""
    engine = new_engine(TINY)
    yield engine
    engine.close()  # first: the books are another thread's until then
    engine.loaded.cache.check()
    assert engine.loaded.cache.reserved_bytes == 0
    assert engine.loaded.cache.pinned_bytes == 0


@pytest.fixture
def scripted() -> Iterator[Engine]:
    engine = new_engine()
    yield engine
    engine.close()
    engine.loaded.cache.check()
    assert engine.loaded.cache.reserved_bytes == 0


def cached(answer: Answer) -> int:
    return answer.finished.usage.cached_tokens


# what is refused before anything starts


def test_an_unknown_model_is_refused_with_the_one_that_is_served(scripted: Engine) -> None:
    with pytest.raises(ApiError, match="got 'gpt-9', allowed 'scripted'") as caught:
        scripted.submit(request("hi", model="gpt-9"), Answer())

    assert caught.value.kind is ErrorKind.UNKNOWN_MODEL
    assert caught.value.param == "model"


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    engine = new_engine(context_length=64)
    try:
        prompt = request("x" * 100)
        count = engine.count_tokens(prompt)
        with pytest.raises(ApiError, match=rf"got {count} tokens, allowed 63") as caught:
            engine.submit(prompt, Answer())
    finally:
        engine.close()

    assert caught.value.kind is ErrorKind.CONTEXT_OVERFLOW


def test_a_prompt_that_leaves_room_for_one_token_gets_one_token() -> None:
    engine = new_engine()
    probe = engine.count_tokens(request("x" * 40))
    engine.close()
    engine = new_engine(context_length=probe + 1)
    try:
        answer = ask(engine, request("x" * 40))
        with pytest.raises(ApiError, match="too long"):
            engine.submit(request("x" * 41), Answer())
    finally:
        engine.close()

    assert answer.finished.reason is FinishReason.CONTEXT_FULL
    assert answer.finished.usage.completion_tokens == 1


def test_a_state_larger_than_the_whole_budget_is_refused() -> None:
    engine = new_engine(TINY)
    budget = engine.loaded.cache
    budget.capacity_bytes = 1000
    try:
        with pytest.raises(ApiError, match=r"got \d+ bytes needed, allowed 1000") as caught:
            engine.submit(request("hi", model=TINY), Answer())
    finally:
        engine.close()

    assert caught.value.kind is ErrorKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize("token_id", [-1, 100_000])
def test_a_bias_for_a_token_that_does_not_exist_is_refused(tiny: Engine, token_id: int) -> None:
    with pytest.raises(ApiError, match=f"got token {token_id}, allowed 0 to"):
        tiny.submit(request("hi", model=TINY, sampling=Sampling(logit_bias=((token_id, 1.0),))), Answer())


def test_before_it_is_loaded_an_engine_says_come_back() -> None:
    engine = Engine(EngineSettings(model=ModelSettings(model="scripted", threads=1)))

    with pytest.raises(ApiError, match="still loading") as caught:
        engine.count_tokens(request("hi"))

    assert caught.value.kind is ErrorKind.OVERLOADED
    assert engine.health()["status"] == "loading"
    assert engine.models == ()


def test_an_engine_that_cannot_load_says_why() -> None:
    engine = Engine(EngineSettings(model=ModelSettings(model="no-such-model", threads=1)))

    with pytest.raises(ModelFileError, match="no-such-model"):
        engine.load()

    assert engine.health()["status"] == "failed"
    assert "no-such-model" in str(engine.health()["error"])


def test_a_scripted_engine_says_that_it_is_an_instrument_and_a_model_does_not(scripted: Engine, tiny: Engine) -> None:
    assert scripted.health() == {"status": "ready", "model": "scripted", "test_instrument": True}
    assert tiny.health() == {"status": "ready", "model": TINY}


# counts


def test_counted_tokens_are_the_prompt_tokens_of_the_answer(tiny: Engine, scripted: Engine) -> None:
    for engine, model in ((tiny, TINY), (scripted, "scripted")):
        for asked in (
            request("hi", model=model, max_tokens=3),
            request(Message(Role.SYSTEM, (Text("Be brief."),)), "日本?", model=model, max_tokens=3),
            request("What is the weather?", model=model, max_tokens=3, tools=(WEATHER,)),
        ):
            assert engine.count_tokens(asked) == ask(engine, asked).finished.usage.prompt_tokens


def test_the_same_request_twice_computes_its_last_token_again(scripted: Engine) -> None:
    first, second = ask(scripted, request("hi")), ask(scripted, request("hi"))

    assert 15 <= first.finished.usage.prompt_tokens <= 25
    assert cached(first) == 0
    assert cached(second) == second.finished.usage.prompt_tokens - 1
    assert first.finished.usage.cache_write_tokens == first.finished.usage.prompt_tokens
    assert second.finished.usage.cache_write_tokens == 1
    assert first.started.usage.prompt_tokens == first.finished.usage.prompt_tokens
    assert first.text() == second.text()


def test_a_cached_answer_is_the_cold_answer(tiny: Engine) -> None:
    options = {
        "model": TINY,
        "max_tokens": 24,
        "sampling": Sampling(temperature=1.0, seed=5),
        "logprobs": True,
        "top_logprobs": 2,
    }

    cold = ask(tiny, request("Tell me something.", **options))
    warm = ask(tiny, request("Tell me something.", **options))

    assert cached(cold) < cached(warm)
    assert warm.joined() == cold.joined()
    assert [event.logprobs for event in warm.of(TextDelta)] == [event.logprobs for event in cold.of(TextDelta)]


def test_completion_tokens_are_the_tokens_of_all_choices(scripted: Engine) -> None:
    answer = ask(scripted, request("hi", num_choices=3))

    assert answer.finished.usage.completion_tokens == 3 * len(SCRIPTED_TEXT)
    assert [event.choice for event in answer.of(Finished)] == [0, 1, 2]
    assert {answer.text(choice) for choice in range(3)} == {SCRIPTED_TEXT}


# the cache, from the words' side


def test_a_foreign_cache_id_falls_back_to_the_longest_prefix(scripted: Engine) -> None:
    first = ask(scripted, request("hello there"))
    assert first.started.cache_id is not None

    own = ask(scripted, request("hello there", cache=CacheSettings(cache_id=first.started.cache_id)))
    foreign = ask(scripted, request("hello there", cache=CacheSettings(cache_id="cache_of_somebody_else")))

    assert cached(own) == cached(foreign) == own.finished.usage.prompt_tokens - 1


def test_a_cache_id_of_another_conversation_proves_nothing(scripted: Engine) -> None:
    other = ask(scripted, request("A long question about something else altogether."))

    answer = ask(scripted, request("hi", cache=CacheSettings(cache_id=other.started.cache_id)))

    assert cached(answer) < answer.finished.usage.prompt_tokens
    assert answer.text() == SCRIPTED_TEXT


def test_namespaces_and_salts_do_not_see_each_other(scripted: Engine) -> None:
    places = [
        CacheSettings(),
        CacheSettings(namespace="a"),
        CacheSettings(namespace="ab"),
        CacheSettings(namespace="a", salt="b"),
        CacheSettings(namespace="", salt="a"),
        CacheSettings(namespace="a", salt=""),
        CacheSettings(namespace="1:a/salt:b"),
        CacheSettings(namespace="salted 9:namespace=1:a;4:salt=1:b;"),
    ]

    first = [cached(ask(scripted, request("hi", cache=place))) for place in places]
    second = [cached(ask(scripted, request("hi", cache=place))) for place in places]

    assert first == [0] * len(places)
    assert all(second)


def test_a_cache_id_does_not_open_another_namespace(scripted: Engine) -> None:
    first = ask(scripted, request("hi", cache=CacheSettings(namespace="a")))

    answer = ask(scripted, request("hi", cache=CacheSettings(namespace="b", cache_id=first.started.cache_id)))

    assert cached(answer) == 0


# sampling


def test_a_seed_gives_the_same_answer_again_and_another_one_another(tiny: Engine) -> None:
    def said(seed: int | None) -> str:
        sampling = Sampling(temperature=1.0, seed=seed)
        return ask(tiny, request("go", model=TINY, max_tokens=24, sampling=sampling, ignore_eos=True)).text()

    assert said(3) == said(3)
    assert said(3) != said(4)
    assert said(None) != said(None)


def test_choices_of_one_request_differ_and_the_first_is_the_one_asked_alone(tiny: Engine) -> None:
    sampling = Sampling(temperature=1.0, seed=9)

    many = ask(tiny, request("go", model=TINY, max_tokens=16, sampling=sampling, num_choices=3, ignore_eos=True))
    alone = ask(tiny, request("go", model=TINY, max_tokens=16, sampling=sampling, ignore_eos=True))

    assert len({many.text(choice) for choice in range(3)}) == 3
    assert many.text(0) == alone.text()
    assert many.finished.usage.completion_tokens == 48


def test_an_ignored_end_is_passed_over_until_the_limit(tiny: Engine) -> None:
    end = tiny.loaded.dialect.stop_ids[0]
    eager = Sampling(temperature=0.0, logit_bias=((end, 100.0),))

    stops = ask(tiny, request("go", model=TINY, max_tokens=7, sampling=eager))
    goes_on = ask(tiny, request("go", model=TINY, max_tokens=7, sampling=eager, ignore_eos=True))

    assert (stops.finished.reason, stops.finished.usage.completion_tokens) == (FinishReason.END, 0)
    assert (goes_on.finished.reason, goes_on.finished.usage.completion_tokens) == (FinishReason.LENGTH, 7)
    assert goes_on.text() == ""


def test_a_limit_beyond_the_context_is_cut_to_it() -> None:
    engine = new_engine(TINY, context_length=64)
    try:
        answer = ask(engine, request("go", model=TINY, max_tokens=10_000, ignore_eos=True))
    finally:
        engine.close()

    assert answer.finished.usage.total_tokens == 64
    assert answer.finished.reason is FinishReason.CONTEXT_FULL


def test_max_tokens_cuts_the_answer_and_says_length(scripted: Engine) -> None:
    answer = ask(scripted, request("hi", max_tokens=4))

    assert answer.text() == SCRIPTED_TEXT[:4]
    assert answer.finished.reason is FinishReason.LENGTH
    assert answer.finished.usage.completion_tokens == 4


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_stop_string_ends_the_answer_before_it(scripted: Engine, size: int) -> None:
    answer = ask(scripted, request("hi", stop=("scripted", "two"), tokens_per_step=size))

    assert answer.text() == "This is the "
    assert (answer.finished.reason, answer.finished.stop_string) == (FinishReason.STOP_STRING, "scripted")
    assert answer.finished.usage.completion_tokens == len("This is the scripted")


def test_log_probabilities_are_one_for_every_token_of_the_text(tiny: Engine) -> None:
    letters = Sampling(temperature=1.0, seed=1, logit_bias=tuple((ord(letter), 30.0) for letter in "abcdef"))

    answer = ask(tiny, request("go", model=TINY, max_tokens=20, sampling=letters, logprobs=True, top_logprobs=3))

    entries = [entry for event in answer.of(TextDelta) for entry in event.logprobs]
    assert len(entries) == answer.finished.usage.completion_tokens == 20
    assert b"".join(entry.bytes for entry in entries).decode() == answer.text()
    assert all(len(entry.top) == 3 and entry.logprob <= entry.top[0].logprob for entry in entries)
