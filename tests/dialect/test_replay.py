"""Own answers come back as the ids that were generated, and the prompt of the next turn begins with all of this turn."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.dialect.conftest import BYTES, answer_of, tool
from zllm_ref.canonical.json_value import dump_json, parse_json_object
from zllm_ref.canonical.message import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect import MemoryStore, ReplaySegment, ToolDialect, dialect_for, encode
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.replay import message_digest
from zllm_ref.tokenizer import Detokenizer, Vocabulary, byte_vocabulary
from zllm_ref.tokenizer.byte_vocabulary import CHATML_MARKERS

TOOLS = [tool("add", a="integer", note="string?")]
QUESTION = (Message(Role.SYSTEM, (Text("S"),)), Message(Role.USER, (Text("1+1?"),)))
OPENS = {name: definition.reasoning is not None for name, definition in DEFINITIONS.items()}

TEXT_MODE = byte_vocabulary(CHATML_MARKERS)
JOINED = byte_vocabulary((*CHATML_MARKERS, "</think>\n\n", "</think>\n\nSo"))
"""Stands for a vocabulary whose ordinary tokens hold a tag and more (markers here, which the dialect does not know)."""

CALLS = {
    "dsml": '{o}<｜DSML｜{s}{w}>\n<｜DSML｜{s}invoke name="add">\n<｜DSML｜{s}parameter name="a" string="false"> 1e0'
    "</｜DSML｜{s}parameter>\n</｜DSML｜{s}invoke>\n</｜DSML｜{s}{w}>",
    "glm": "{n}<tool_call>add{n}<arg_key>a</arg_key>{n}<arg_value> 1e0</arg_value>{n}</tool_call>",
    "chatml": '{o}<tool_call>\n{{"name":"add",  "arguments":{{"a":1e0,"note":"\\u4e2d\\/"}}}}\n</tool_call>',
    "qwen3": "{o}<tool_call>\n<function=add>\n<parameter=a>\n 1e0\n</parameter>\n</function>\n</tool_call>",
}
"""What a model wrote, in no canonical form: blanks, escapes, numbers that a client's JSON library would write otherwise."""


def call_text(name: str, has_content: bool) -> str:
    family = name.split("-")[0]
    word = {"dsml-v3.2": "function_calls", "dsml-v4": "tool_calls", "dsml-v4.1": "calls"}.get(name, "")
    lead = {"dsml": "\n\n", "qwen3": "\n\n" if has_content else "", "chatml": "\n" if has_content else ""}.get(family, "")
    newline = "\n" if name == "glm-4.5" else ""
    return CALLS[family].format(o=lead, s=" " if name == "dsml-v4.1" else "", w=word, n=newline)


class Server:
    """The words' half of a server: prompt, generation by script, answer, and what the client sends back."""

    def __init__(self, name: str, store: MemoryStore | None = None) -> None:
        self.dialect: ToolDialect = dialect_for(None, BYTES, name)
        self.replay = self.dialect.replay(store or MemoryStore(), "model")

    def prompt(self, messages: tuple[Message, ...], reasoning: ReasoningSettings, keep: bool = False) -> list[int]:
        return encode(
            self.dialect.render(messages, TOOLS, reasoning=reasoning, keep_reasoning=keep, generated=self.replay.find),
            BYTES,
        )

    def answer(self, text: str, reasoning: ReasoningSettings) -> tuple[Message, list[int]]:
        """The model says `text` and ends its turn; the message as the client gets it, and the generated ids."""
        ids = BYTES.encode_with_markers(text)
        starts = self.dialect.starts_in_reasoning(reasoning)
        parser = self.dialect.parser(TOOLS, starts_in_reasoning=starts)
        detokenizer = Detokenizer(BYTES)
        events = [event for token_id in ids for event in parser.push(detokenizer.push(token_id))]
        read = answer_of([*events, *parser.finish()])
        assert not read.diagnostics
        parts: list[Part] = [Reasoning(read.reasoning)] if read.reasoning else []
        parts += [Text(read.content)] if read.content else []
        parts += [ToolCall(f"call_{i}", name, parse_json_object(text)) for i, (name, text) in enumerate(read.calls)]
        message = Message(Role.ASSISTANT, tuple(parts))
        stop = self.dialect.stop_ids[0]
        self.replay.remember(message, [*ids, stop], reasoning, starts_in_reasoning=starts)
        return message, ids


def javascript_number(text: str) -> float | int:
    """JavaScript has one kind of number, and prints whole ones without a point."""
    value = float(text)
    return int(value) if value.is_integer() else value


def as_client_sends_it(message: Message, *, with_reasoning: bool = True) -> Message:
    """Other ids, arguments through a JSON library that writes compactly, text in pieces."""
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case Text():
                parts += [Text(part.text[:1]), Text(part.text[1:])]
            case ToolCall():
                arguments = json.loads(dump_json(part.arguments), parse_float=javascript_number)
                compact = json.dumps(arguments, separators=(",", ":"))
                parts.append(replace(part, id=f"client_{part.id}", arguments=parse_json_object(compact)))
            case Reasoning():
                parts += [replace(part, signature="s")] if with_reasoning else []
            case _:
                parts.append(part)
    return Message(message.role, tuple(parts))


def next_turn(message: Message) -> tuple[Message, ...]:
    results = tuple(Message(Role.TOOL, (ToolResult(call.id, "2"),)) for call in message.tool_calls)
    return results or (Message(Role.USER, (Text("And 2+2?"),)),)


@pytest.mark.parametrize("content", ["", "Let me see."])
def test_the_next_prompt_begins_with_all_of_this_turn_calls_included(dialect_name: str, content: str) -> None:
    server = Server(dialect_name)
    reasoning = ReasoningSettings(enabled=False)
    prompt = server.prompt(QUESTION, reasoning)
    separator = "\n" if content and dialect_name == "glm-4.5" else ""

    message, ids = server.answer(separator + content + call_text(dialect_name, bool(content)), reasoning)
    sent = as_client_sends_it(message)
    following = server.prompt((*QUESTION, sent, *next_turn(sent)), reasoning)

    assert len(message.tool_calls) == 1
    assert following[: len(prompt) + len(ids)] == prompt + ids

    # And once more: the answer after the results. Qwen3's template takes even the empty thoughts out of answered questions.
    keep = dialect_name == "chatml-qwen3"
    last, last_ids = server.answer(f"{separator or NEWLINE.get(dialect_name, '')}It is 2.", reasoning)
    whole = server.prompt((*QUESTION, sent, *next_turn(sent), as_client_sends_it(last), *next_turn(last)), reasoning, keep)

    assert whole[: len(following) + len(last_ids)] == following + last_ids


NEWLINE = {"glm-4.5": "\n"}


def thought(name: str) -> str:
    """Reasoning as the model writes it after the generation prompt of its family."""
    if name == "glm-4.5":
        return "\n<think>Hm, <b>.</think>"
    if name == "chatml-qwen3":
        return "<think>\nHm, <b>.\n</think>\n\n"
    return "Hm, <b>.\n</think>\n\n" if name == "chatml-hermes" else "Hm, <b>.</think>"


THINKING = [name for name in DEFINITIONS if OPENS[name]]
DROPS = [name for name in THINKING if name not in ("dsml-v4", "dsml-v4.1")]
"""V4 and V4.1 keep all reasoning as long as tools are in the prompt."""


@pytest.mark.parametrize("name", THINKING)
def test_within_a_tool_loop_reasoning_stays_and_the_prefix_is_whole(name: str) -> None:
    server = Server(name)
    reasoning = ReasoningSettings(enabled=True)
    prompt = server.prompt(QUESTION, reasoning)

    message, ids = server.answer(thought(name) + call_text(name, False), reasoning)
    sent = as_client_sends_it(message)
    following = server.prompt((*QUESTION, sent, *next_turn(sent)), reasoning)

    assert message.reasoning == "Hm, <b>."
    assert following[: len(prompt) + len(ids)] == prompt + ids


@pytest.mark.parametrize("name", THINKING)
@pytest.mark.parametrize("with_reasoning", [True, False])
def test_keep_reasoning_makes_the_prefix_whole_after_a_new_question(name: str, with_reasoning: bool) -> None:
    server = Server(name)
    reasoning = ReasoningSettings(enabled=True)
    prompt = server.prompt(QUESTION, reasoning)
    separator = "\n" if name == "glm-4.5" else ""

    message, ids = server.answer(f"{thought(name)}{separator}Two.", reasoning)
    sent = as_client_sends_it(message, with_reasoning=with_reasoning)
    following = server.prompt((*QUESTION, sent, *next_turn(message)), reasoning, keep=True)

    assert following[: len(prompt) + len(ids)] == prompt + ids


@pytest.mark.parametrize("name", DROPS)
def test_where_the_template_drops_reasoning_the_prefix_ends_exactly_there(name: str) -> None:
    server = Server(name)
    reasoning = ReasoningSettings(enabled=True)
    prompt = server.prompt(QUESTION, reasoning)
    separator = "\n" if name == "glm-4.5" else ""

    message, ids = server.answer(f"{thought(name)}{separator}Two.", reasoning)
    following = server.prompt((*QUESTION, message, *next_turn(message)), reasoning)
    by_rendering = encode(server.dialect.render((*QUESTION, message, *next_turn(message)), TOOLS, reasoning=reasoning), BYTES)

    common = next(i for i, (a, b) in enumerate(zip(prompt + ids, following, strict=False)) if a != b)
    assert following == by_rendering, "the template wins"
    # Everything before the reasoning is shared: up to its opening marker or, where the prompt held that one, up to there.
    assert len(prompt) - 1 <= common + 2 <= len(prompt) + len("\n<think>") + 2
    assert "Hm" not in BYTES.decode(following)


@pytest.mark.parametrize(
    ("name", "vocabulary", "pieces", "starts", "count"),
    [
        ("chatml-qwen3", BYTES, ["<think>", "\n", "r", "</think>", "\n\n", "x"], False, 6),
        ("chatml-qwen3", BYTES, ["<think>", "\n", "r", "</think>", "x"], False, 4),
        ("chatml-qwen3", BYTES, ["x", "<think>", "</think>"], False, 0),
        ("chatml-qwen3", BYTES, ["<think>", "r"], False, 2),
        ("glm-4.5", BYTES, ["\n", "<think>", "r", "</think>", "\n", "x"], False, 4),
        ("glm-4.7", BYTES, ["r", "r"], True, 2),
        ("dsml-v4", BYTES, ["</think>", "x"], True, 1),
        ("chatml-qwen2.5", BYTES, ["<think>", "x"], False, 0),
        # text mode: the tags are letters, and one token may hold the end of reasoning and the start of the content
        ("chatml-hermes", TEXT_MODE, ["r", "</think>", "\n\n", "x"], True, 11),
        ("chatml-hermes", JOINED, ["r", "</think>\n\n", "x"], True, 2),
        ("chatml-hermes", JOINED, ["r", "</think>\n\nSo", "x"], True, None),
    ],
)
def test_reasoning_ends_where_its_framing_ends(
    name: str, vocabulary: Vocabulary, pieces: list[str], starts: bool, count: int | None
) -> None:
    replay = dialect_for(None, vocabulary, name).replay(MemoryStore())
    ids: list[int] = []
    for piece in pieces:
        marker = vocabulary.marker_id(piece)
        ids += vocabulary.encode_text(piece) if marker is None else [marker]
    message = Message(Role.ASSISTANT, (Text("x"),))

    replay.remember(message, ids, ReasoningSettings(enabled=starts), starts_in_reasoning=starts)

    found = replay.find(message)
    assert found is not None
    assert found.num_reasoning == count


def test_where_reasoning_cannot_be_cut_off_the_message_is_written_anew_unless_it_stays() -> None:
    dialect = dialect_for(None, JOINED, "chatml-hermes")
    replay = dialect.replay(MemoryStore())
    reasoning = ReasoningSettings(enabled=True)
    message = Message(Role.ASSISTANT, (Reasoning("r"), Text("So.")))
    joined = JOINED.marker_id("</think>\n\nSo")
    assert joined is not None
    ids = [*JOINED.encode_text("r"), joined, *JOINED.encode_text(".")]
    replay.remember(message, ids, reasoning, starts_in_reasoning=True)
    turns = (*QUESTION, message, *next_turn(message))

    kept = dialect.render(turns, reasoning=reasoning, keep_reasoning=True, generated=replay.find)
    dropped = dialect.render(turns, reasoning=reasoning, generated=replay.find)

    assert [segment.ids for segment in kept if isinstance(segment, ReplaySegment)] == [tuple(ids)]
    assert dropped == dialect.render(turns, reasoning=reasoning)


def test_a_message_that_was_edited_is_written_anew(dialect_name: str) -> None:
    server = Server(dialect_name)
    reasoning = ReasoningSettings(enabled=False)
    message, _ = server.answer(call_text(dialect_name, False), reasoning)
    call = message.tool_calls[0]
    assert isinstance(call, ToolCall)
    edited = Message(Role.ASSISTANT, (replace(call, arguments=parse_json_object('{"a": 2}')),))

    assert server.replay.find(message) is not None
    assert server.replay.find(edited) is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: Message(m.role, (Text("x"), *m.parts)),
        lambda m: Message(m.role, (*m.parts, m.parts[-1])),
        lambda m: Message(m.role, (replace(m.parts[-1], name="sub"),)),
        lambda m: Message(m.role, (replace(m.parts[-1], namespace="n"),)),
    ],
)
def test_every_visible_change_is_another_message(edit: object) -> None:
    message = Message(Role.ASSISTANT, (ToolCall("c", "add", parse_json_object('{"a": 1}')),))

    assert callable(edit)
    assert message_digest(edit(message)) != message_digest(message)


def test_spacing_of_arguments_ids_signatures_and_parts_are_no_change() -> None:
    def message(arguments: str, call_id: str, *texts: str) -> Message:
        return Message(Role.ASSISTANT, (*map(Text, texts), ToolCall(call_id, "add", parse_json_object(arguments))))

    assert message_digest(message('{"a":1,"s":"\\u4e2d"}', "x", "ab")) == message_digest(
        message('{ "a": 1, "s": "中" }', "y", "a", "b")
    )
    assert message_digest(message('{"a": [1.0, 1e2, 0.1234567890123456789, -0]}', "x")) == message_digest(
        message('{"a": [1, 100, 0.12345678901234568, 0]}', "x")
    )
    assert message_digest(message('{"a": 9007199254740993}', "x")) != message_digest(message('{"a": 9007199254740992}', "x"))
    assert message_digest(message('{"a": 1}', "x")) != message_digest(message('{"a": "1"}', "x"))
    assert message_digest(message('{"a": 1, "b": 2}', "x")) != message_digest(message('{"b": 2, "a": 1}', "x"))


def test_other_models_answers_are_not_ours() -> None:
    store = MemoryStore()
    server = Server("dsml-v4", store)
    message, _ = server.answer("Two.", ReasoningSettings(enabled=False))

    assert server.replay.find(message) is not None
    assert Server("dsml-v4.1", store).replay.find(message) is None
    assert server.dialect.replay(store, "other model").find(message) is None


def test_a_new_server_on_the_same_store_replays() -> None:
    store = MemoryStore()
    message, ids = Server("glm-4.7", store).answer(call_text("glm-4.7", False), ReasoningSettings(enabled=False))

    found = Server("glm-4.7", store).replay.find(message)

    assert found is not None
    assert list(found.ids) == ids


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "ids": [1], "num_reasoning": 0}',
        '{"format": 1, "ids": [999999], "num_reasoning": 0}',
        '{"format": 1, "ids": [true], "num_reasoning": 0}',
        '{"format": 1, "ids": [1], "num_reasoning": 2}',
        '{"format": 1, "ids": [1], "num_reasoning": 0, "enabled": 3}',
    ],
)
def test_what_the_store_gives_back_is_checked(stored: str) -> None:
    class BadStore:
        def put(self, key: str, value: str) -> None: ...

        def get(self, key: str) -> str | None:
            return stored

    replay = dialect_for(None, BYTES, "dsml-v4").replay(BadStore())

    assert replay.find(Message(Role.ASSISTANT, (Text("x"),))) is None


def test_the_memory_store_forgets_the_oldest() -> None:
    store = MemoryStore(2)
    for key in ("a", "b", "c"):
        store.put(key, key)

    assert (store.get("a"), store.get("b"), store.get("c")) == (None, "b", "c")


def test_replayed_ids_keep_their_place_between_borders_of_text() -> None:
    server = Server("chatml-hermes")
    message, ids = server.answer("Two.", ReasoningSettings())

    segments = server.dialect.render((*QUESTION, message, *next_turn(message)), TOOLS, generated=server.replay.find)

    assert [list(segment.ids) for segment in segments if isinstance(segment, ReplaySegment)] == [ids]
