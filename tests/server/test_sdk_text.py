"""The official SDKs, against a real server, get what the engine said: streamed and whole, in three protocols."""

from __future__ import annotations

import anthropic
import openai
import pytest

from tests.server.conftest import Serve
from tests.server.fake_engine import PATIENCE, FakeEngine, Say
from zllm_ref.canonical.event import FinishReason

TEXT = "Hello, wörld!\n日本語 \u2028 end"


def openai_client(url: str, key: str = "sk-test") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=PATIENCE)


def anthropic_client(url: str, key: str = "sk-test") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE)


def test_chat_stream_and_unary_say_the_same(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", TEXT),), cached_tokens=2))
    client = openai_client(server.url)
    messages = [{"role": "user", "content": "say hello to me"}]

    unary = client.chat.completions.create(model="fake", messages=messages)
    with client.chat.completions.stream(model="fake", messages=messages, stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()

    assert unary.choices[0].message.content == TEXT == final.choices[0].message.content
    assert unary.choices[0].finish_reason == final.choices[0].finish_reason == "stop"
    assert unary.usage is not None
    assert final.usage is not None
    assert unary.usage.model_dump() == final.usage.model_dump()
    assert unary.usage.prompt_tokens_details.cached_tokens == 2
    assert unary.usage.prompt_cache_hit_tokens + unary.usage.prompt_cache_miss_tokens == unary.usage.prompt_tokens
    assert unary.zllm["cache_id"].startswith("zc_")
    assert final.model == unary.model == "fake"


def test_chat_answers_n_choices(serve: Serve) -> None:
    client = openai_client(serve().url)

    unary = client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "x"}], n=3)

    assert [choice.index for choice in unary.choices] == [0, 1, 2]
    assert {choice.message.content for choice in unary.choices} == {"Hello, wörld!"}


def test_responses_stream_and_unary_say_the_same(serve: Serve) -> None:
    client = openai_client(serve(FakeEngine(script=(Say("text", TEXT),), cached_tokens=1)).url)

    unary = client.responses.create(model="fake", input="say hello")
    with client.responses.stream(model="fake", input="say hello") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()

    assert unary.output_text == TEXT == final.output_text
    assert unary.status == final.status == "completed"
    assert unary.usage == final.usage
    assert unary.usage is not None
    assert unary.usage.input_tokens_details.cached_tokens == 1
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"


def test_messages_stream_and_unary_say_the_same(serve: Serve) -> None:
    client = anthropic_client(serve(FakeEngine(script=(Say("text", TEXT),), cached_tokens=2)).url)
    messages = [{"role": "user", "content": "say hello to me"}]

    unary = client.messages.create(model="fake", max_tokens=64, messages=messages)
    with client.messages.stream(model="fake", max_tokens=64, messages=messages) as stream:
        final = stream.get_final_message()
    counted = client.messages.count_tokens(model="fake", messages=messages)

    assert unary.content[0].text == TEXT == final.content[0].text
    assert unary.stop_reason == final.stop_reason == "end_turn"
    assert unary.usage.model_dump() == final.usage.model_dump()
    total = unary.usage.input_tokens + unary.usage.cache_read_input_tokens + unary.usage.cache_creation_input_tokens
    assert unary.usage.cache_read_input_tokens == 2
    assert total == counted.input_tokens


@pytest.mark.parametrize(
    ("reason", "chat", "responses", "messages"),
    [
        (FinishReason.LENGTH, "length", "incomplete", "max_tokens"),
        (FinishReason.CONTEXT_FULL, "length", "incomplete", "model_context_window_exceeded"),
        (FinishReason.STOP_STRING, "stop", "completed", "stop_sequence"),
        (FinishReason.CONTENT_FILTER, "content_filter", "incomplete", "refusal"),
    ],
)
def test_ends_are_told_in_the_words_of_each_protocol(
    serve: Serve, reason: FinishReason, chat: str, responses: str, messages: str
) -> None:
    server = serve(FakeEngine(reason=reason, stop_string="###" if reason is FinishReason.STOP_STRING else None))
    client, other = openai_client(server.url), anthropic_client(server.url)
    said = [{"role": "user", "content": "x"}]

    first = client.chat.completions.create(model="fake", messages=said)
    second = client.responses.create(model="fake", input="x")
    third = other.messages.create(model="fake", max_tokens=9, messages=said)

    assert first.choices[0].finish_reason == chat
    assert second.status == responses
    assert (second.incomplete_details is not None) == (responses == "incomplete")
    assert third.stop_reason == messages
    assert third.stop_sequence == ("###" if messages == "stop_sequence" else None)


def test_cache_writes_are_told_where_a_breakpoint_asked_for_them(serve: Serve) -> None:
    client = anthropic_client(serve(FakeEngine(written_tokens=3)).url)
    plain = [{"role": "user", "content": "one two three four"}]
    block = {"type": "text", "text": "one two three four", "cache_control": {"type": "ephemeral", "ttl": "1h"}}

    without = client.messages.create(model="fake", max_tokens=9, messages=plain).usage
    marked = client.messages.create(model="fake", max_tokens=9, messages=[{"role": "user", "content": [block]}]).usage

    assert (without.input_tokens, without.cache_creation_input_tokens) == (5, 0)
    assert (marked.input_tokens, marked.cache_creation_input_tokens) == (2, 3)
    assert marked.cache_creation.ephemeral_1h_input_tokens == 3


def test_models_are_listed_in_the_shape_of_the_caller(serve: Serve) -> None:
    server = serve()

    ours = openai_client(server.url).models.list()
    one = openai_client(server.url).models.retrieve("alias")
    theirs = anthropic_client(server.url).models.list()

    assert [model.id for model in ours] == ["fake"]
    assert one.id == "fake"
    assert [model.type for model in theirs.data] == ["model"]
    with pytest.raises(openai.NotFoundError):
        openai_client(server.url).models.retrieve("other")
    with pytest.raises(anthropic.NotFoundError):
        anthropic_client(server.url).models.retrieve("other")
