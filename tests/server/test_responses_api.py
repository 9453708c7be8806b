"""Conversation state: chains, lookups, deletion, background runs, compaction; seen through the official SDK."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.server.conftest import RunningServer, Serve
from tests.server.fake_engine import FakeEngine, Say
from tests.server.test_exchange import eventually
from tests.server.test_sdk_text import openai_client
from zllm_ref.canonical.message import Role
from zllm_ref.server.response_store import ResponseStore, StoredFrame, StoredResponse

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


def test_a_reference_may_be_an_id_and_nothing_else(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "One."),)))
    first = openai_client(server.url).responses.create(model="fake", input="a")

    body = {"model": "fake", "input": [{"id": first.output[0].id}, {"role": "user", "content": "b"}]}
    answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=5)

    assert answer.status_code == 200, answer.text
    assert texts(server) == [("assistant", "One."), ("user", "b")]


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


def test_a_background_response_runs_by_itself(serve: Serve) -> None:
    server = serve(FakeEngine(script=SLOW, pause_seconds=0.001))
    client = openai_client(server.url)

    queued = client.responses.create(model="fake", input="a", background=True)
    assert queued.status == "queued"
    assert eventually(lambda: client.responses.retrieve(queued.id).status == "completed")

    assert client.responses.retrieve(queued.id).output_text == "abc" * 300
    assert client.responses.cancel(queued.id).status == "completed"


def test_a_background_stream_is_taken_up_again_with_the_same_numbers(serve: Serve) -> None:
    server = serve(FakeEngine(script=SLOW, pause_seconds=0.002))
    client = openai_client(server.url)
    seen: list[Any] = []
    stream = client.responses.create(model="fake", input="a", background=True, stream=True)
    for event in stream:
        seen.append(event)
        if event.sequence_number == 50:
            break
    stream.close()

    live = list(client.responses.retrieve(seen[0].response.id, stream=True, starting_after=50))
    later = list(client.responses.retrieve(seen[0].response.id, stream=True, starting_after=10))

    assert [event.sequence_number for event in seen + live] == list(range(51 + len(live)))
    assert live[-1].type == "response.completed"
    assert [event.to_dict() for event in later] == [event.to_dict() for event in (seen + live)[11:]]
    assert not server.engine.generations[0].cancelled.is_set()


def test_a_background_response_is_queued_until_its_first_token(serve: Serve) -> None:
    gate = threading.Event()
    server = serve(FakeEngine(script=SLOW, pause_seconds=0.005, gate=gate))
    client = openai_client(server.url)
    stream = iter(client.responses.create(model="fake", input="a", background=True, stream=True))

    first = [next(stream), next(stream)]
    identity = first[0].response.id  # type: ignore[union-attr]
    waiting = client.responses.retrieve(identity).status
    gate.set()
    third = next(stream)
    running = client.responses.retrieve(identity).status
    rest = list(stream)

    assert [event.type for event in (*first, third)] == ["response.created", "response.queued", "response.in_progress"]
    assert [event.response.status for event in (*first, third)] == ["queued", "queued", "in_progress"]  # type: ignore[union-attr]
    assert (waiting, running) == ("queued", "in_progress")
    assert rest[-1].type == "response.completed"


def test_what_was_heard_before_a_crash_is_there_after_it(serve: Serve, tmp_path: Path) -> None:
    """A copy of the files of a running server is what a killed one leaves behind."""
    server = serve(FakeEngine(script=SLOW, pause_seconds=0.005), state_directory=tmp_path / "one")
    heard: list[Any] = []
    for event in openai_client(server.url).responses.create(model="fake", input="a", background=True, stream=True):
        heard.append(event)
        if len(heard) == 40:
            break
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    client = openai_client(serve(state_directory=tmp_path / "two").url)
    found = client.responses.retrieve(heard[0].response.id)
    after = list(client.responses.retrieve(heard[0].response.id, stream=True, starting_after=heard[-1].sequence_number))

    assert found.status == "failed"
    assert found.output_text.startswith("".join(event.delta for event in heard if event.type == "response.output_text.delta"))
    assert [event.sequence_number for event in heard + after] == list(range(40 + len(after)))
    assert after[-1].type == "response.failed"
    assert after[-1].response.to_dict() == found.to_dict()


def test_nobody_hears_what_is_not_kept_yet(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [-1]
    keep = ResponseStore.add_frames

    def keep_slowly(self: ResponseStore, identity: str, frames: Sequence[StoredFrame]) -> None:
        time.sleep(0.02)
        keep(self, identity, frames)
        kept.append(frames[-1].number)

    monkeypatch.setattr(ResponseStore, "add_frames", keep_slowly)
    server = serve(FakeEngine(script=(Say("text", "abc" * 40),), pause_seconds=0.005))

    for event in openai_client(server.url).responses.create(model="fake", input="a", background=True, stream=True):
        assert event.sequence_number <= kept[-1]


def test_a_background_response_can_be_cancelled(serve: Serve) -> None:
    server = serve(FakeEngine(script=SLOW, pause_seconds=0.01))
    client = openai_client(server.url)
    queued = client.responses.create(model="fake", input="a", background=True)
    followed: list[Any] = []
    follower = threading.Thread(target=lambda: followed.extend(client.responses.retrieve(queued.id, stream=True)))
    follower.start()
    time.sleep(0.1)

    cancelled = client.responses.cancel(queued.id)
    follower.join(5)

    assert cancelled.status == client.responses.retrieve(queued.id).status == "cancelled"
    assert server.engine.generations[0].cancelled.wait(1)
    assert followed[-1].type == "response.failed"
    with pytest.raises(openai.BadRequestError, match="cancelled"):
        client.responses.create(model="fake", input="b", previous_response_id=queued.id)


def test_a_foreground_response_cannot_be_cancelled_by_id(serve: Serve) -> None:
    client = openai_client(serve().url)
    first = client.responses.create(model="fake", input="a")

    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(first.id)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.create(model="fake", input="a", background=True, store=False)


def test_a_failed_background_response_says_why(serve: Serve) -> None:
    client = openai_client(serve(FakeEngine(fail_after=0)).url)
    queued = client.responses.create(model="fake", input="a", background=True)

    assert eventually(lambda: client.responses.retrieve(queued.id).status == "failed")
    error = client.responses.retrieve(queued.id).error
    assert error is not None
    assert "fell over" in error.message


def test_what_ran_when_the_process_ended_is_told_as_failed(serve: Serve, tmp_path: Path) -> None:
    kept = ResponseStore(tmp_path, ttl_seconds=1e9, max_bytes=1 << 20, clock=time.time)
    body = '{"id":"resp_x","object":"response","created_at":1,"status":"queued","error":null,"model":"fake","output":[]}'
    kept.put(StoredResponse("resp_x", "", None, "queued", True, body, "[]"))
    kept.close()

    found = openai_client(serve(state_directory=tmp_path).url).responses.retrieve("resp_x")

    assert found.status == "failed"
    assert found.error is not None


def test_a_compacted_conversation_goes_on_from_its_summary(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "They said hello."),)))
    client = openai_client(server.url)
    first = client.responses.create(model="fake", input="hello")

    asked = {"model": "fake", "previous_response_id": first.id, "input": "more"}
    compacted = client.responses.compact(**asked)
    items = httpx.post(f"{server.url}/v1/responses/compact", json=asked).json()["output"]
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
