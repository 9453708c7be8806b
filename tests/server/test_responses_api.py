"""Conversation state: chains, lookups, deletion, compaction; seen through the official SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.server.conftest import RunningServer, Serve
from tests.server.fake_engine import PATIENCE, FakeEngine, Say
from tests.server.test_sdk_text import openai_client
from zllm_ref.canonical.message import Role
from zllm_ref.server.response_store import ResponseStore
from zllm_ref.server.wire import OUR_FAULT

SLOW = (Say("text", "abc" * 300),)
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}


def texts(server: RunningServer) -> list[tuple[str, str]]:
    return [(message.role.value, message.text) for message in server.engine.requests[-1].messages]


def test_a_chain_grows_by_what_was_said_and_carries_no_old_instructions(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "One."),)))
    client = openai_client(server.url)

    first = client.responses.create(model="fake", input="a", instructions="old")
    with client.responses.stream(model="fake", input="b", previous_response_id=first.id) as stream:
        second = stream.get_final_response()
    third = client.responses.create(
        model="fake", input=[{"role": "user", "content": "c"}], previous_response_id=second.id, store=False
    )

    assert texts(server) == [("user", "a"), ("assistant", "One."), ("user", "b"), ("assistant", "One."), ("user", "c")]
    assert third.previous_response_id == second.id
    assert server.engine.requests[-1].cache.cache_id == second.zllm["cache_id"]
    counted = client.responses.input_tokens.count(model="fake", input="c", previous_response_id=second.id)
    assert third.usage is not None
    assert counted.input_tokens == third.usage.input_tokens


def test_calls_and_reasoning_of_earlier_turns_are_remembered(serve: Serve) -> None:
    script = (Say("reasoning", "hm"), Say("text", "Let me see."), Say("call", "weather", '{"z":1,"a":2.50}'))
    server = serve(FakeEngine(script=script))
    client = openai_client(server.url)

    first = client.responses.create(model="fake", input="a", tools=[TOOL])
    call = first.output[-1]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    client.responses.create(model="fake", previous_response_id=first.id, tools=[TOOL], input=[output])
    by_state = server.engine.requests[-1].messages
    items = [item.model_dump(exclude_none=True) for item in first.output]
    client.responses.create(model="fake", tools=[TOOL], input=[{"role": "user", "content": "a"}, *items, output])

    assert [message.role for message in by_state] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert by_state[1].reasoning == "hm"
    assert server.engine.requests[-1].messages == by_state


def test_a_stored_response_is_the_terminal_one_until_it_is_deleted(serve: Serve) -> None:
    client = openai_client(serve().url)
    events = client.responses.create(model="fake", input="a", stream=True)
    final = next(event for event in events if event.type == "response.completed").response

    found = client.responses.retrieve(final.id)
    assert found.to_dict() == final.to_dict()
    assert client.responses.input_items.list(final.id).data[0].content[0].text == "a"
    client.responses.delete(final.id)

    for gone in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            gone(final.id)
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="fake", input="b", previous_response_id=final.id)
    assert error.value.code == "previous_response_not_found"
    assert error.value.param == "previous_response_id"


def test_what_was_not_stored_is_not_found(serve: Serve) -> None:
    client = openai_client(serve().url)
    first = client.responses.create(model="fake", input="a", store=False)

    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as error:
            client.responses.create(model="fake", input="b", previous_response_id=first.id, stream=stream)
        assert error.value.code == "previous_response_not_found"


def test_input_items_come_in_pages(serve: Serve) -> None:
    client = openai_client(serve().url)
    said = [{"role": "user", "content": str(number)} for number in range(5)]
    first = client.responses.create(model="fake", input=said)

    page = client.responses.input_items.list(first.id, limit=2, order="asc")
    everything = list(page)

    assert [item.content[0].text for item in page.data] == ["0", "1"]
    assert page.has_more
    assert [item.content[0].text for item in everything] == ["0", "1", "2", "3", "4"]
    assert [item.content[0].text for item in client.responses.input_items.list(first.id).data] == ["4", "3", "2", "1", "0"]


def test_items_may_be_referred_to_by_id(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("reasoning", "hm"), Say("text", "One."))))
    client = openai_client(server.url)
    first = client.responses.create(model="fake", input="a")

    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    client.responses.create(model="fake", input=[{"role": "user", "content": "a"}, *references, {"role": "user", "content": "b"}])

    assert texts(server) == [("user", "a"), ("assistant", "One."), ("user", "b")]
    assert server.engine.requests[-1].messages[1].reasoning == "hm"


@pytest.mark.parametrize("kind", [{"type": "item_reference"}, {}], ids=["named", "bare"])
def test_a_reference_may_be_an_id_and_nothing_else(serve: Serve, kind: dict[str, str]) -> None:
    server = serve(FakeEngine(script=(Say("text", "One."),)))
    first = openai_client(server.url).responses.create(model="fake", input="a")

    body = {"model": "fake", "input": [{**kind, "id": first.output[0].id}, {"role": "user", "content": "b"}]}
    answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=PATIENCE)

    assert answer.status_code == 200, answer.text
    assert texts(server) == [("assistant", "One."), ("user", "b")]

    more = {"model": "fake", "input": "c", "previous_response_id": answer.json()["id"]}
    httpx.post(f"{server.url}/v1/responses", json=more, timeout=PATIENCE).raise_for_status()

    assert texts(server) == [("assistant", "One."), ("user", "b"), ("assistant", "One."), ("user", "c")]


def test_keys_do_not_see_each_others_responses(serve: Serve) -> None:
    server = serve(api_keys=("one", "two"), cache_sharing=True)
    first = openai_client(server.url, "one").responses.create(model="fake", input="a")
    other = openai_client(server.url, "two")

    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError):
        other.responses.create(model="fake", input="b", previous_response_id=first.id)
    assert openai_client(server.url, "one").responses.retrieve(first.id).id == first.id


def test_state_and_seals_survive_a_restart(serve: Serve, tmp_path: Path) -> None:
    script = (Say("reasoning", "hm"), Say("text", "One."))
    first_server = serve(FakeEngine(script=script), state_directory=tmp_path)
    asked: dict[str, Any] = {"model": "fake", "input": "a", "include": ["reasoning.encrypted_content"]}
    first = openai_client(first_server.url).responses.create(**asked)
    first_server.stop()

    server = serve(FakeEngine(), state_directory=tmp_path)
    client = openai_client(server.url)
    client.responses.create(model="fake", input="b", previous_response_id=first.id)
    items = [item.model_dump(exclude_none=True) for item in first.output]
    client.responses.create(model="fake", input=[{"role": "user", "content": "a"}, *items])

    assert [message.reasoning for message in server.engine.requests[0].messages] == ["", "hm", ""]
    assert server.engine.requests[1].messages[1].reasoning == "hm"


@pytest.mark.parametrize("query", ["stream=true&starting_after=--5", "stream=true&starting_after=\N{SUPERSCRIPT TWO}"])
def test_a_number_that_is_none_is_refused(serve: Serve, query: str) -> None:
    server = serve()
    made = openai_client(server.url).responses.create(model="fake", input="a", background=True)

    answer = httpx.get(f"{server.url}/v1/responses/{made.id}?{query}", timeout=PATIENCE)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "starting_after"


@pytest.mark.parametrize("limit", ["\N{SUPERSCRIPT TWO}", "0", "101", "000000100000000", "-1"])
def test_a_page_of_items_has_its_bounds(serve: Serve, limit: str) -> None:
    server = serve()
    made = openai_client(server.url).responses.create(model="fake", input="a")

    answer = httpx.get(f"{server.url}/v1/responses/{made.id}/input_items?limit={limit}", timeout=PATIENCE)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "limit"


def test_a_compacted_conversation_goes_on_from_its_summary(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "They said hello."),)))
    client = openai_client(server.url)
    first = client.responses.create(model="fake", input="hello")

    asked = {"model": "fake", "previous_response_id": first.id, "input": "more"}
    compacted = client.responses.compact(**asked)
    items = httpx.post(f"{server.url}/v1/responses/compact", json=asked, timeout=PATIENCE).json()["output"]
    client.responses.create(model="fake", input=[*items, {"role": "user", "content": "go on"}])

    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert [role for role, _ in texts(server)] == ["user"] * 4
    assert texts(server)[2][1].endswith("They said hello.")
    assert "They said" not in str(items[-1])


def test_truncation_leaves_out_the_oldest_rounds_and_keeps_the_instructions(serve: Serve) -> None:
    server = serve()
    client = openai_client(server.url)
    said = [{"role": "user", "content": f"{number} " + "w " * 1000} for number in range(12)]

    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="fake", input=said, instructions="Be brief.")
    client.responses.create(model="fake", input=said, instructions="Be brief.", truncation="auto")

    kept = texts(server)
    assert error.value.code == "context_length_exceeded"
    assert kept[0] == ("system", "Be brief.")
    assert [text.split()[0] for _, text in kept[1:]] == ["4", "5", "6", "7", "8", "9", "10", "11"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_trigger_in_the_input_is_answered_by_one_sealed_item(serve: Serve, stream: bool) -> None:
    server = serve(FakeEngine(script=(Say("reasoning", "hm"), Say("text", "They said hello."))))
    client = openai_client(server.url)
    asked: dict[str, Any] = {"model": "fake", "input": [{"role": "user", "content": "hello"}, {"type": "compaction_trigger"}]}
    if stream:
        events = list(client.responses.create(**asked, stream=True))
        response = events[-1].response
        kinds = [event.type.removeprefix("response.") for event in events]
        assert kinds == ["created", "in_progress", "output_item.added", "output_item.done", "completed"]
    else:
        response = client.responses.create(**asked)
    (item,) = response.output
    client.responses.create(model="fake", input=[item.model_dump(exclude_none=True), {"role": "user", "content": "go on"}])
    sealed = texts(server)
    client.responses.create(model="fake", previous_response_id=response.id, input="go on")

    assert item.type == "compaction"
    assert response.status == "completed"
    assert sealed[0][1].endswith("They said hello.")
    assert [role for role, _ in texts(server)] == ["user", "user", "user"]
    assert response.output_text == ""


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: ResponseStore, row: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(ResponseStore, "put", put)


@pytest.mark.usefixtures("full_disk")
def test_a_response_that_cannot_be_kept_says_so_in_its_own_stream(serve: Serve) -> None:
    """T7, RS3: one end, with the next number, and it is not the one that could not be kept."""
    server = serve(FakeEngine(script=(Say("text", "abc" * 4),), pause_seconds=0.02))
    client = openai_client(server.url)

    events = list(client.responses.create(model="fake", input="a", stream=True))

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events if event.type in ("response.completed", "response.failed")] == ["response.failed"]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.message == OUR_FAULT
    assert events[-1].response.output_text == "abc" * 4
    assert client.responses.create(model="fake", input="a", store=False).status == "completed"


@pytest.mark.usefixtures("full_disk")
def test_a_whole_response_that_cannot_be_kept_is_an_error(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "One."),)))

    with pytest.raises(openai.InternalServerError, match=OUR_FAULT):
        openai_client(server.url).responses.create(model="fake", input="a")
