"""Text: short, long, in other scripts, cut by a limit or a stop string, by schema, with reasoning, with log probabilities."""

from __future__ import annotations

import json

import jsonschema

from conformance.checker.dialogue import ask
from conformance.checker.probe import Probe
from conformance.checker.scenarios.table import Table

TABLE = Table()
_LONG = "Count from one to one hundred in words, then tell a story of at least five hundred words about a ship at sea."
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "rainy": {"type": "boolean"}},
    "required": ["city", "rainy"],
    "additionalProperties": False,
}


@TABLE.scenario("text", "text", "X1 RS25 AN22 T11")
def short_text(probe: Probe) -> None:
    """A short text, streamed."""
    answer = probe.ask(ask("Say hello in five words."))

    probe.expect(
        "T11", _has_request_id(answer.exchange.headers), "a request id header", sorted(answer.exchange.headers), answer.exchange
    )
    probe.need(answer.text, "the model said nothing")


@TABLE.scenario("stream-equals-unary", "text", "X1 RS25 AN22 CH23")
def stream_equals_unary(probe: Probe) -> None:
    """The same request streamed and not; a target that answers differently twice anyway gives no verdict."""
    question = ask("Name three colours.", max_tokens=48)
    streamed = probe.ask(question)
    first, second = probe.ask(question, stream=False), probe.ask(question, stream=False)

    probe.need(first.text == second.text, "two equal unary requests got different texts: the target is not deterministic")
    probe.compare(streamed, first)
    rule = {"chat": "CH23", "responses": "RS25", "messages": "AN22"}[probe.protocol]
    probe.expect(rule, streamed.text == first.text, first.text, streamed.text, streamed.exchange, "text, streamed and not")


@TABLE.scenario("arrives-in-pieces", "text", "T9")
def arrives_in_pieces(probe: Probe) -> None:
    """A long answer is spread over time. Where this machine reads late and finds many pieces in one, it is asked again."""
    for _ in range(3):
        answer = probe.ask(ask(_LONG, max_tokens=96))
        arrivals = [seconds for seconds, _ in answer.exchange.chunks]
        if len(arrivals) >= 4:
            break

    probe.need((answer.counts.completion or 0) >= 24, "the answer was too short to tell")
    probe.expect(
        "T9", len(arrivals) >= 4 and arrivals[-1] > arrivals[0], "pieces over time", f"{len(arrivals)} pieces", answer.exchange
    )


@TABLE.scenario("unicode", "text", "T2 T3")
def unicode_text(probe: Probe) -> None:
    """Other scripts and characters outside the basic plane: streaming destroys no character that the unary answer has."""
    question = ask("Repeat exactly: naïve 你好 مرحبا 😀 👨‍👩‍👧 e\u0301 \u2028 end", max_tokens=96)
    streamed, unary = probe.ask(question), probe.ask(question, stream=False)

    probe.need(streamed.text, "the model said nothing")
    is_whole = "\ufffd" not in streamed.text or "\ufffd" in unary.text
    probe.expect("T3", is_whole, "no U+FFFD that the unary answer has not", streamed.text, streamed.exchange)


@TABLE.scenario("max-tokens", "text", "CH19 X10 CH6")
def max_tokens(probe: Probe) -> None:
    """The limit ends the answer and is not exceeded."""
    limit = 16 if probe.protocol == "responses" else 5
    rule = "CH19" if probe.protocol == "chat" else "X10"
    answer = probe.ask(ask(_LONG, max_tokens=limit))
    count = answer.counts.completion

    probe.need(count is None or count >= limit or answer.end == "length", "the answer ended by itself below the limit")
    word = {"chat": "length", "responses": "incomplete", "messages": "max_tokens"}[probe.protocol]
    probe.expect(rule, answer.end == "length", f"ended by the limit: {word}", answer.end or "no end", answer.exchange)
    probe.expect(rule, count is not None and count <= limit, f"at most {limit} tokens", count, answer.exchange)


@TABLE.scenario("stop-string", "text", "CH20 AN10", ("chat", "messages"))
def stop_string(probe: Probe) -> None:
    """The text ends before a string that the same answer is known to contain."""
    question = "Say hello in five words."
    whole = probe.ask(ask(question), stream=False)
    probe.need(len(whole.text) >= 8, "the text is too short to be stopped")
    middle = len(whole.text) // 2
    stop = whole.text[middle : middle + 4].strip()
    probe.need(len(stop) >= 2, "no usable stop string in the text")
    streamed, unary = probe.ask(ask(question, stop=(stop,))), probe.ask(ask(question, stop=(stop,)), stream=False)

    probe.need(whole.text.startswith(streamed.text[:middle]), "the target is not deterministic")
    rule = "CH20" if probe.protocol == "chat" else "AN10"
    wanted = whole.text[: whole.text.find(stop)]
    for answer in (streamed, unary):
        probe.expect(rule, stop not in answer.text, f"no {stop!r}", answer.text, answer.exchange)
        probe.expect(rule, answer.text == wanted, wanted, answer.text, answer.exchange, "text before the stop string")
    if probe.protocol == "messages":
        told = streamed.raw.get("stop_reason"), streamed.raw.get("stop_sequence")
        probe.expect("AN10", told == ("stop_sequence", stop), ("stop_sequence", stop), told, streamed.exchange)


@TABLE.scenario("structured-output", "structured", "X9", is_optional=True)
def structured_output(probe: Probe) -> None:
    """An answer by schema validates, streamed and not."""
    question = ask("Is it raining in Paris? Answer as JSON.", schema=_SCHEMA, max_tokens=128)
    for stream in (True, False):
        answer = probe.ask(question, stream=stream)
        probe.need(not answer.was_cut(128), "the answer was cut by the token limit")
        probe.expect("X9", _validates(answer.text), "an object of the schema", answer.text, answer.exchange)


@TABLE.scenario("reasoning", "reasoning", "CH22 X11 AN8 RS15", is_optional=True)
def reasoning(probe: Probe) -> None:
    """Reasoning, where the model has it, comes first and in its own place."""
    answer = probe.ask(ask("How much is 17 times 23?", thinks=True, max_tokens=512))

    probe.need(answer.reasoning, "no reasoning came")
    rule = "CH22" if probe.protocol == "chat" else "X11"
    probe.expect(rule, answer.reasoning not in answer.text, "reasoning outside the text", answer.text[:80], answer.exchange)


@TABLE.scenario("logprobs", "logprobs", "CH21", ("chat",), is_optional=True)
def logprobs(probe: Probe) -> None:
    """One entry a token, whose bytes join to the content; none where none were asked for."""
    answer = probe.ask(ask("Say hello in five words.", extra={"logprobs": True, "top_logprobs": 2}))
    joined = b"".join(bytes(entry.get("bytes") or ()) for entry in answer.logprobs)
    plain = probe.ask(ask("Say hello in five words."))

    probe.need(answer.text, "the model said nothing")
    probe.need("\ufffd" not in answer.text, "the model wrote broken UTF-8: bytes cannot be compared")
    probe.expect("CH21", joined == answer.text.encode(), answer.text, joined.decode(errors="replace"), answer.exchange)
    probe.expect("CH21", not plain.logprobs, "no logprobs unasked", f"{len(plain.logprobs)} entries", plain.exchange)


@TABLE.scenario("several-choices", "choices", "CH8", ("chat",), is_optional=True)
def several_choices(probe: Probe) -> None:
    """n = 2: two choices, each from role to finish."""
    answer = probe.ask(ask("Say hello in five words.", extra={"n": 2}))

    probe.expect("CH8", answer.num_choices == 2, 2, answer.num_choices, answer.exchange)


def _validates(text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), _SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def _has_request_id(headers: dict[str, str]) -> bool:
    return bool({"x-request-id", "request-id"} & {name.lower() for name in headers})
