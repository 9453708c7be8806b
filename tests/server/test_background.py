"""Background responses: they run by themselves, are heard from any event on, and end one way or another."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.server.conftest import Serve
from tests.server.fake_engine import PATIENCE, FakeEngine, Say, unending
from tests.server.test_exchange import eventually
from tests.server.test_sdk_text import openai_client
from zllm_ref.server.response_store import ResponseStore, StoredFrame, StoredResponse

SLOW = (Say("text", "abc" * 300),)


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
    first_token, last_token = threading.Event(), threading.Event()
    server = serve(FakeEngine(script=SLOW, gates={0: first_token, 300: last_token}))
    client = openai_client(server.url)
    stream = iter(client.responses.create(model="fake", input="a", background=True, stream=True))

    first = [next(stream), next(stream)]
    identity = first[0].response.id  # type: ignore[union-attr]
    waiting = client.responses.retrieve(identity).status
    first_token.set()
    third = next(stream)
    running = client.responses.retrieve(identity).status
    last_token.set()
    rest = list(stream)

    assert [event.type for event in (*first, third)] == ["response.created", "response.queued", "response.in_progress"]
    assert [event.response.status for event in (*first, third)] == ["queued", "queued", "in_progress"]  # type: ignore[union-attr]
    assert (waiting, running) == ("queued", "in_progress")
    assert rest[-1].type == "response.completed"


def test_what_was_heard_before_a_crash_is_there_after_it(serve: Serve, tmp_path: Path) -> None:
    """A copy of the files of a running server is what a killed one leaves behind. It is silent while they are copied: a file
    that is copied while it is written is what no kill leaves."""
    num_deltas = 35
    server = serve(unending(1 + num_deltas), state_directory=tmp_path / "one")
    heard: list[Any] = []
    for event in openai_client(server.url).responses.create(model="fake", input="a", background=True, stream=True):
        heard.append(event)
        if sum(one.type == "response.output_text.delta" for one in heard) == num_deltas:
            break
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    client = openai_client(serve(state_directory=tmp_path / "two").url)
    found = client.responses.retrieve(heard[0].response.id)
    after = list(client.responses.retrieve(heard[0].response.id, stream=True, starting_after=heard[-1].sequence_number))

    assert found.status == "failed"
    assert found.output_text.startswith("".join(event.delta for event in heard if event.type == "response.output_text.delta"))
    assert [event.sequence_number for event in heard + after] == list(range(len(heard) + len(after)))
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
    server = serve(unending())
    client = openai_client(server.url)
    queued = client.responses.create(model="fake", input="a", background=True)
    followed: list[Any] = []

    def follow() -> None:
        for event in client.responses.retrieve(queued.id, stream=True):
            followed.append(event)

    follower = threading.Thread(target=follow)
    follower.start()
    assert eventually(lambda: bool(followed))

    cancelled = client.responses.cancel(queued.id)
    follower.join()

    assert cancelled.status == client.responses.retrieve(queued.id).status == "cancelled"
    assert server.engine.generations[0].cancelled.wait(PATIENCE)
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


def test_a_background_response_whose_events_could_not_be_kept_fails_and_its_stream_has_no_hole(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails at the first event of the text; the engine waits, so that none of them is the last one, too."""
    keep, failures = ResponseStore.add_frames, list[int]()

    def keep_but_once(store: ResponseStore, identity: str, frames: Sequence[StoredFrame]) -> None:
        deltas = [frame.number for frame in frames if frame.name == "response.output_text.delta"]
        if deltas and not failures:
            failures.extend(deltas)
            raise sqlite3.OperationalError("disk I/O error")
        keep(store, identity, frames)

    monkeypatch.setattr(ResponseStore, "add_frames", keep_but_once)
    client = openai_client(serve(unending()).url)

    heard = list(client.responses.create(model="fake", input="a", background=True, stream=True))
    kept = list(client.responses.retrieve(heard[0].response.id, stream=True))  # type: ignore[union-attr]

    assert failures
    assert heard[-1].type == "response.failed"
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    assert [event.to_dict() for event in kept] == [event.to_dict() for event in heard]
    assert client.responses.retrieve(heard[0].response.id).status == "failed"  # type: ignore[union-attr]


def test_what_ran_when_the_process_ended_is_told_as_failed(serve: Serve, tmp_path: Path) -> None:
    kept = ResponseStore(tmp_path, ttl_seconds=1e9, max_bytes=1 << 20, clock=time.time)
    body = '{"id":"resp_x","object":"response","created_at":1,"status":"queued","error":null,"model":"fake","output":[]}'
    kept.put(StoredResponse("resp_x", "", None, "queued", True, body, "[]"))
    kept.close()

    found = openai_client(serve(state_directory=tmp_path).url).responses.retrieve("resp_x")

    assert found.status == "failed"
    assert found.error is not None
