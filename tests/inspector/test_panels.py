"""One request's panels: the same tokens told in five ways, for a model that computes and one that plays a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.inspector.stage import TOOLS, Stage, events, new_stage, write_script
from zllm_ref.config import DraftSettings

SYSTEM = {"role": "system", "content": "You are terse."}
QUESTION = {"role": "user", "content": "Weather in Paris? 🌧 <|im_end|>"}


@pytest.fixture(scope="module")
def tiny() -> Iterator[Stage]:
    stage = new_stage("tiny-qwen3")
    yield stage
    stage.engine.close()


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    script = write_script(
        tmp_path_factory.mktemp("script") / "script.json",
        [{"text": "I look."}, {"call": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}],
        [{"text": "It is mild."}],
    )
    stage = new_stage(script=script)
    yield stage
    stage.engine.close()


async def two_turns(stage: Stage, system: object = SYSTEM, **more: Any) -> tuple[str, str]:
    """A tool call, its result, an answer; → both requests' ids."""
    messages: list[Any] = [system, QUESTION]
    first, called = await stage.chat(messages, tools=TOOLS, **more)
    call = called["tool_calls"][0]
    messages += [
        {"role": "assistant", "content": called["content"], "tool_calls": called["tool_calls"]},
        {"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"},
    ]
    second, _ = await stage.chat(messages, tools=TOOLS, **more)
    return first, second


async def test_all_panels_lie_on_one_axis(scripted: Stage) -> None:
    _, second = await two_turns(scripted)

    told = await scripted.get(f"requests/{second}")
    segments = await scripted.get(f"requests/{second}/segments")
    tokens = await scripted.get(f"requests/{second}/tokens")
    context = await scripted.get(f"requests/{second}/context")

    prompt, output = told["axis"]["prompt"], told["axis"]["output"]
    assert tokens["total"] == prompt + output
    assert segments["segments"][-1]["kind"] == "output"
    assert segments["segments"][-1]["tokens"] == [prompt, prompt + output]
    assert context["spans"][0]["tokens"][0] == 0
    assert context["spans"][-1]["tokens"][1] == prompt + output
    assert told["text_utf16"] == segments["segments"][-1]["utf16"][1] == tokens["utf16"][-1][1]
    assert told["prompt_utf16"] == segments["segments"][-1]["utf16"][0]


async def test_a_replayed_answer_is_one_segment_and_its_parts_are_found_in_it(scripted: Stage) -> None:
    _, second = await two_turns(scripted)

    told = await scripted.get(f"requests/{second}/conversation")
    segments = (await scripted.get(f"requests/{second}/segments"))["segments"]
    replay = next(segment for segment in segments if segment["kind"] == "replay")

    said = told["messages"][2]
    assert replay["message"] == 2
    assert replay["origin"] == "model"
    assert [part["kind"] for part in said["parts"]] == ["text", "tool_call"]
    assert all(part["replayed"] for part in said["parts"])
    for part in said["parts"]:
        assert replay["tokens"][0] <= part["tokens"][0] < part["tokens"][1] <= replay["tokens"][1]
    assert told["messages"][3]["parts"][0]["kind"] == "tool_result"
    assert told["messages"][3]["parts"][0]["name"] == "get_weather"
    assert told["output"]["parts"][0]["text"] == "It is mild."


async def test_the_second_turn_begins_with_the_first_and_breaks_nothing(scripted: Stage) -> None:
    first, second = await two_turns(scripted, {"role": "system", "content": "Said here alone."})

    prefix = await scripted.get(f"requests/{second}/prefix")
    context = await scripted.get(f"requests/{second}/context")
    earlier = (await scripted.get(f"requests/{first}"))["axis"]

    assert prefix["cause"] is None
    assert prefix["nearest"]["request"] == first
    assert prefix["nearest"]["fork"] == prefix["nearest"]["length"] == earlier["prompt"] + earlier["output"] - 1
    assert context["spans"][0] == {
        "kind": "hit_resident",
        "tokens": [0, prefix["nearest"]["length"]],
        "bytes": context["spans"][0]["bytes"],
    }
    assert prefix["total"]["cached_tokens"] == prefix["nearest"]["length"]


async def test_the_wires_places_lead_to_the_tokens_of_their_texts(scripted: Stage) -> None:
    _, second = await two_turns(scripted)

    wire = await scripted.get(f"requests/{second}/wire")
    text = (await scripted.get(f"requests/{second}/segments"))["text"]
    tokens = await scripted.get(f"requests/{second}/tokens?end=10000")

    parts = {part["path"]: part for part in wire["parts"]}
    units = text.encode("utf-16-le")

    def spelled(path: str) -> str:
        first, last = parts[path]["tokens"]
        start, end = tokens["utf16"][first][0], tokens["utf16"][last - 1][1]
        return units[2 * start : 2 * end].decode("utf-16-le")

    body = wire["request"]["body"].encode("utf-16-le")
    for path in ("messages[0].content", "messages[1].content", "messages[2].content", "messages[3].content"):
        start, end = parts[path]["utf16"]
        quoted = json.loads(body[2 * start : 2 * end].decode("utf-16-le"))
        assert spelled(path) == quoted
    assert "get_weather" in spelled("tools[0]")
    arguments = next(path for path in parts if path.endswith("arguments"))
    assert '"city": "Paris"' in spelled(arguments)
    assert parts["messages[3]"]["message"] == 3
    assert parts["messages[3]"]["tokens"][0] <= parts["messages[3].content"]["tokens"][0]


async def test_frames_carry_the_tokens_that_they_tell_of(scripted: Stage) -> None:
    name, _ = await scripted.chat([SYSTEM, QUESTION], tools=TOOLS, stream=True)

    wire = await scripted.get(f"requests/{name}/wire")
    told = await scripted.get(f"requests/{name}/conversation")
    axis = (await scripted.get(f"requests/{name}"))["axis"]

    frames = wire["response"]["frames"]
    assert wire["response"]["status"] == 200
    assert len(frames) == wire["response"]["num_frames"]
    assert [frame["at_ms"] for frame in frames] == sorted(frame["at_ms"] for frame in frames)
    spans = [frame["tokens"] for frame in frames if frame["tokens"] is not None]
    assert spans
    assert spans == sorted(spans)
    assert all(axis["prompt"] <= start < end <= axis["prompt"] + axis["output"] for start, end in spans)
    text = next(part for part in told["output"]["parts"] if part["kind"] == "text")
    deltas = [frame for frame in frames if '"content":"' in frame["data"] and frame["tokens"] is not None]
    assert "".join(json.loads(frame["data"])["choices"][0]["delta"]["content"] for frame in deltas) == text["text"]
    assert deltas[0]["tokens"][0] == text["tokens"][0]
    assert frames[-1]["data"] == "[DONE]"


async def test_a_whole_answer_is_one_frame_with_the_tokens_of_all(scripted: Stage) -> None:
    name, said = await scripted.chat([SYSTEM, QUESTION], tools=TOOLS)

    response = (await scripted.get(f"requests/{name}/wire"))["response"]
    frames = response["frames"]
    axis = (await scripted.get(f"requests/{name}"))["axis"]

    assert len(frames) == response["num_frames"] == 1
    assert response["cut"] == 0
    assert frames[0]["event"] is None
    assert json.loads(frames[0]["data"])["choices"][0]["message"]["content"] == said["content"]
    assert frames[0]["tokens"] == [axis["prompt"], axis["prompt"] + axis["output"]]


async def test_a_typed_marker_is_text_and_a_half_character_is_bytes(scripted: Stage) -> None:
    name, _ = await scripted.chat([QUESTION])

    tokens = await scripted.get(f"requests/{name}/tokens?end=10000")

    rain = bytes.fromhex("".join(tokens["bytes"])).find("🌧".encode())
    sizes = [len(piece) // 2 for piece in tokens["bytes"]]
    first = next(index for index in range(len(sizes)) if sum(sizes[:index]) == rain)
    assert tokens["text"][first : first + 4] == [None] * 4
    assert all(flags & 2 for flags in tokens["flags"][first : first + 4])
    assert len({tuple(span) for span in tokens["utf16"][first : first + 4]}) == 1
    special = [bytes.fromhex(piece) for piece, flags in zip(tokens["bytes"], tokens["flags"], strict=True) if flags & 1]
    assert special.count(b"<|im_end|>") == 2
    assert b"".join(bytes.fromhex(piece) for piece in tokens["bytes"]).count(b"<|im_end|>") == 3


async def test_pages_of_tokens_are_pieces_of_the_whole(scripted: Stage) -> None:
    name, _ = await scripted.chat([SYSTEM, QUESTION])

    whole = await scripted.get(f"requests/{name}/tokens?end=10000")
    page = await scripted.get(f"requests/{name}/tokens?start=7&end=19")

    assert (page["start"], page["end"], page["total"]) == (7, 19, whole["total"])
    for column in ("ids", "bytes", "text", "flags", "utf16", "segments"):
        assert page[column] == whole[column][7:19]
    beyond = await scripted.get(f"requests/{name}/tokens?start={whole['total'] + 5}")
    assert beyond["ids"] == []


async def test_a_fenced_answer_says_what_was_forced_and_in_which_phase(tiny: Stage) -> None:
    name, said = await tiny.chat(
        [SYSTEM, QUESTION], tools=TOOLS, tool_choice="required", reasoning_effort="none", max_tokens=120, seed=1
    )

    decode = await tiny.get(f"requests/{name}/decode")
    tokens = await tiny.get(f"requests/{name}/tokens?end=10000")
    axis = (await tiny.get(f"requests/{name}"))["axis"]

    assert decode["fence"]
    assert decode["total"] == axis["output"]
    ways = [token["how"] for token in decode["tokens"]]
    assert "forced" in ways
    assert "sampled" in ways
    spelled = "".join(token["text"] or "" for token in decode["tokens"])
    assert '{"name": "get_weather", "arguments": {' in spelled
    inside = [token for token in decode["tokens"] if token["text"] and token["how"] == "forced"]
    assert {token["phase"] for token in inside} <= {"region", "end"}
    for token in decode["tokens"]:
        flags = tokens["flags"][token["position"]]
        assert bool(flags & 16) == (token["how"] == "forced")
        assert flags & 4
    places = [place for step in decode["rounds"] for place in range(*step["tokens"])]
    assert places == list(range(axis["prompt"], axis["prompt"] + axis["output"]))
    assert decode["alternatives"] is False
    assert {token["logprob"] for token in decode["tokens"]} == {None}
    assert said["role"] == "assistant"


async def test_alternatives_are_recorded_only_while_somebody_looks_and_never_reach_the_client(tiny: Stage) -> None:
    before, plain = await tiny.chat([QUESTION], max_tokens=4)
    async with events(tiny, "alternatives=1") as news:
        async for name, _ in news:
            assert name == "requests"
            break
        during, watched = await tiny.chat([QUESTION], max_tokens=4)
    after, _ = await tiny.chat([QUESTION], max_tokens=4)

    seen = {name: await tiny.get(f"requests/{name}/decode") for name in (before, during, after)}
    body = (await tiny.get(f"requests/{during}/wire"))["response"]["frames"][0]["data"]

    assert plain["content"] == watched["content"]
    assert [seen[name]["alternatives"] for name in (before, during, after)] == [False, True, False]
    for token in seen[during]["tokens"]:
        assert len(token["top"]) == 5
        assert token["top"][0]["id"] == token["id"]
        assert token["top"][0]["logprob"] == token["logprob"]
    assert json.loads(body)["choices"][0].get("logprobs") is None


async def test_a_client_gets_as_many_alternatives_as_it_asked_for_while_somebody_looks(tiny: Stage) -> None:
    async with events(tiny, "alternatives=1") as news:
        async for _ in news:
            break
        model = tiny.engine.models[0].id
        body = {"model": model, "messages": [QUESTION], "max_tokens": 2, "logprobs": True, "top_logprobs": 2, "temperature": 0}
        _, answer = await tiny.ask("/v1/chat/completions", body)

    content = answer.json()["choices"][0]["logprobs"]["content"]
    assert [len(token["top_logprobs"]) for token in content] == [2] * len(content)


async def test_a_refused_request_has_its_wire_and_nothing_else(scripted: Stage) -> None:
    name, _ = await scripted.ask("/v1/chat/completions", {"model": "nobody", "messages": []}, status=404)

    told = await scripted.get(f"requests/{name}")
    wire = await scripted.get(f"requests/{name}/wire")

    assert told["summary"]["state"] == "refused"
    assert told["summary"]["end_reason"] == "error"
    assert "nobody" in told["summary"]["error"]
    assert [panel for panel, there in told["panels"].items() if there] == ["wire"]
    assert wire["response"]["status"] == 404
    assert "nobody" in wire["response"]["frames"][0]["data"]
    assert wire["parts"] == []
    await scripted.get(f"requests/{name}/segments", status=404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"max_tokens": 20, "system": "Be terse.", "messages": [{"role": "user", "content": "Hi there"}]}),
        ("/v1/responses", {"instructions": "Be terse.", "input": [{"role": "user", "content": "Hi there"}]}),
        ("/v1/responses", {"input": "Hi there", "stream": True}),
    ],
)
async def test_every_protocol_is_recorded_and_its_texts_are_found(scripted: Stage, path: str, body: dict[str, Any]) -> None:
    name, _ = await scripted.ask(path, {"model": "scripted", **body})

    told = await scripted.get(f"requests/{name}")
    wire = await scripted.get(f"requests/{name}/wire")

    summary = told["summary"]
    assert summary["protocol"] == path.rsplit("/", 1)[1]
    assert summary["transport"] == ("sse" if body.get("stream") else "unary")
    assert summary["state"] == "ended"
    assert summary["prompt_tokens"] == told["axis"]["prompt"]
    assert summary["output_tokens"] == told["axis"]["output"] > 0
    segments = await scripted.get(f"requests/{name}/segments")
    tokens = await scripted.get(f"requests/{name}/tokens?end=10000")
    found = [part for part in wire["parts"] if part["path"].startswith(("messages[0].content", "input"))]
    units = segments["text"].encode("utf-16-le")
    spelled = []
    for part in found:
        start, end = tokens["utf16"][part["tokens"][0]][0], tokens["utf16"][part["tokens"][1] - 1][1]
        spelled.append(units[2 * start : 2 * end].decode("utf-16-le"))
    assert "Hi there" in spelled
    if any(frame["event"] for frame in wire["response"]["frames"]):
        assert [frame["event"] for frame in wire["response"]["frames"]][-1] == "response.completed"
        assert any(frame["tokens"] for frame in wire["response"]["frames"])


async def test_times_are_those_of_the_request(tiny: Stage) -> None:
    name, _ = await tiny.chat([SYSTEM, QUESTION], max_tokens=8)

    summary = (await tiny.get(f"requests/{name}"))["summary"]

    parts = summary["queue_ms"] + summary["restore_ms"] + summary["prefill_ms"]
    assert 0 < parts <= summary["ttft_ms"] <= summary["total_ms"]
    assert summary["decode_tokens_per_second"] > 0
    assert summary["cached_resident"] + summary["cached_ssd"] + summary["computed_tokens"] == summary["prompt_tokens"]
    assert summary["end_reason"] == "length"


async def test_blocks_say_where_they_are_kept(tiny: Stage) -> None:
    name, _ = await tiny.chat([{"role": "user", "content": "word " * 200}], max_tokens=4)

    context = await tiny.get(f"requests/{name}/context")

    assert {block["kept"] for block in context["blocks"]} == {"resident"}
    ends = [block["tokens"] for block in context["blocks"]]
    assert [start for start, _ in ends] == [index * context["block_tokens"] for index in range(len(ends))]
    assert sum(block["bytes"] for block in context["blocks"]) == sum(span["bytes"] for span in context["spans"])
    assert context["cache_id"]


async def test_guesses_are_seen_with_what_became_of_them() -> None:
    """A drafter with the same weights guesses what the model says, as far as the planner lets it."""
    stage = new_stage("tiny-llama", draft=DraftSettings(drafter="model", model="tiny-llama"))
    try:
        name, _ = await stage.chat([QUESTION], max_tokens=40, ignore_eos=True)
        decode = await stage.get(f"requests/{name}/decode")
        tokens = await stage.get(f"requests/{name}/tokens?end=10000")
        told = await stage.get(f"requests/{name}")
    finally:
        stage.engine.close()

    assert decode["drafter"] == "model"
    first = told["axis"]["prompt"]
    guessed = [step for step in decode["rounds"] if step["proposed"]]
    assert guessed
    said = {token["position"]: token for token in decode["tokens"]}
    for step in guessed:
        start, end = step["tokens"]
        for place, guess in enumerate(step["proposed"]):
            if guess["accepted"]:
                assert said[start + place]["id"] == guess["id"]
                assert said[start + place]["how"] == "accepted"
                assert start + place < end
                assert tokens["flags"][start + place] & 32
        assert {said[place]["round"] for place in range(start, end)} == {step["round"]}
    accepted = sum(guess["accepted"] for step in guessed for guess in step["proposed"])
    assert accepted > 0
    assert told["summary"]["draft"] == {"proposed": sum(len(step["proposed"]) for step in guessed), "accepted": accepted}
    assert sum(token["how"] == "accepted" for token in decode["tokens"]) == accepted
    assert [place for step in decode["rounds"] for place in range(*step["tokens"])] == list(range(first, first + decode["total"]))


async def test_each_block_of_a_message_has_its_own_tokens(scripted: Stage) -> None:
    """Blocks that the conversation joins are told apart on the wire."""
    blocks = [{"type": "text", "text": "One block 🌧,"}, {"type": "text", "text": " and another one"}]
    body = {"model": "scripted", "max_tokens": 5, "messages": [{"role": "user", "content": blocks}]}
    name, _ = await scripted.ask("/v1/messages", body)

    parts = {part["path"]: part["tokens"] for part in (await scripted.get(f"requests/{name}/wire"))["parts"]}
    tokens = await scripted.get(f"requests/{name}/tokens?end=10000")

    for index, block in enumerate(blocks):
        start, end = parts[f"messages[0].content[{index}].text"]
        assert bytes.fromhex("".join(tokens["bytes"][start:end])).decode() == block["text"]
