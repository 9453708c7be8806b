"""The chat template that ships with a model, run in a sandbox, its output cut into segments."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from zllm_ref.canonical.message import Message, Role
from zllm_ref.canonical.request import ReasoningSettings, Tool
from zllm_ref.dialect.seal import LAST_PRIVATE, Seal
from zllm_ref.dialect.segment import Author, MarkerSegment, Origin, Segment, TextSegment
from zllm_ref.dialect.template_value import to_template_value, tojson
from zllm_ref.dialect.tool_wire import shown_tools, wire_arguments, wire_name, wire_tool
from zllm_ref.dialect.unrenderable import UnrenderableValue
from zllm_ref.tokenizer.vocabulary import Vocabulary


class TemplateError(ValueError):
    """The template is broken, or refused the conversation (`raise_exception`)."""


class ChatTemplate:
    """Renders conversations with one Jinja template. Immutable; share one between all requests.

    Filters and globals are those of `transformers`, so that the text is the same to the byte for the same conversation.
    """

    def __init__(
        self,
        source: str,
        vocabulary: Vocabulary,
        *,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        self.source = source
        self._vocabulary = vocabulary
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda layout: now().strftime(layout)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"chat template, line {error.lineno}: {error.message}") from None

    @property
    def renders_tools(self) -> bool:
        """The template looks at the tools of a request; one that does not would lose them silently."""
        return "tools" in self.source

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        reasoning: ReasoningSettings | None = None,
        add_generation_prompt: bool = True,
        variables: dict[str, Any] | None = None,
        opaque: Mapping[int, Sequence[Segment]] | None = None,
    ) -> tuple[Segment, ...]:
        """The prompt. A client's text that spells a marker stays text; every marker of the template itself is an id.

        `opaque` gives the content of some messages as segments, by the message's place: the template sees one character in
        their stead, so it can neither read nor change them (ids of earlier answers, tool instructions).
        """
        reasoning = reasoning or ReasoningSettings()
        opaque = opaque or {}
        seal = Seal(tuple(self._vocabulary.markers), _client_texts(messages, tools))
        stand_ins = {place: chr(ord(seal.character) + 1 + index) for index, place in enumerate(opaque)}
        if stand_ins and max(map(ord, stand_ins.values())) > LAST_PRIVATE:
            raise UnrenderableValue(f"conversation: got {len(opaque)} replayed messages, allowed fewer than 65,000")
        used = {character for text in _client_texts(messages, tools) for character in stand_ins.values() if character in text}
        if used:
            raise UnrenderableValue("texts of the request: got private-use characters of plane 15 that this server needs")
        given: dict[str, Any] = {
            "messages": [
                {**_message_value(message, seal.put), "content": stand_ins[place]}
                if place in stand_ins
                else _message_value(message, seal.put)
                for place, message in enumerate(messages)
            ],
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self._bos_text(),
            "eos_token": self._eos_text(),
            **(variables or {}),
        }
        given["tools"] = [to_template_value(wire_tool(tool), seal.put_loosely) for tool in shown_tools(tuple(tools))] or None
        if reasoning.enabled is not None:
            given["enable_thinking"] = reasoning.enabled
        if reasoning.effort is not None:
            given["reasoning_effort"] = reasoning.effort
        try:
            rendered = self._template.render(given)
        except (jinja2.TemplateError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, UnrenderableValue):
                raise
            raise TemplateError(f"chat template: {error}") from error
        contents = {character: opaque[place] for place, character in stand_ins.items()}
        finder = _AuthorFinder([message for place, message in enumerate(messages) if place not in opaque])
        return tuple(self._segments(rendered, seal, finder, contents))

    def _segments(
        self, rendered: str, seal: Seal, finder: _AuthorFinder, contents: Mapping[str, Sequence[Segment]]
    ) -> Iterable[Segment]:
        frame = Origin(None, Author.TEMPLATE)
        opaque = re.compile(f"([{''.join(contents)}])") if contents else re.compile("(?!)")
        for index, part in enumerate(seal.split(rendered)):
            if index % 2:
                yield MarkerSegment(self._vocabulary.markers[part], part, frame)
                continue
            for text in opaque.split(part):
                if text in contents:
                    yield from contents[text]
                elif text:
                    yield from finder.attribute(seal.remove(text))

    def _bos_text(self) -> str:
        token_id = self._vocabulary.bos_id
        return "" if token_id is None else self._vocabulary.marker_text(token_id) or ""

    def _eos_text(self) -> str:
        token_id = self._vocabulary.eos_id
        return "" if token_id is None else self._vocabulary.marker_text(token_id) or ""


class _AuthorFinder:
    """Says which stretch of rendered text is which client's text, by looking for the texts in their order."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._waiting = [(message.role, text) for message in messages for text in _texts_in_order(message) if text.strip()]

    def attribute(self, text: str) -> Iterable[TextSegment]:
        position = 0
        while self._waiting and position < len(text):
            role, wanted = self._waiting[0]
            found, length = text.find(wanted, position), len(wanted)
            if found < 0:  # templates strip
                found, length = text.find(wanted.strip(), position), len(wanted.strip())
            if found < 0:
                break
            if found > position:
                yield TextSegment(text[position:found], Origin(None, Author.TEMPLATE))
            yield TextSegment(text[found : found + length], Origin(role, Author.CLIENT))
            position = found + length
            self._waiting.pop(0)
        if position < len(text):
            yield TextSegment(text[position:], Origin(None, Author.TEMPLATE))


def _texts_in_order(message: Message) -> list[str]:
    return [message.reasoning, message.text, *(result.text for result in message.tool_results)]


def _message_value(message: Message, seal: Callable[[str], str]) -> dict[str, Any]:
    """One message as a template expects it; `content` is always a string, absent reasoning is absent."""
    role = Role.SYSTEM if message.role is Role.DEVELOPER else message.role
    value: dict[str, Any] = {"role": role.value, "content": seal(message.text)}
    if message.role is Role.TOOL:
        if len(message.tool_results) != 1:
            raise UnrenderableValue(f"tool message: got {len(message.tool_results)} results, allowed one a message")
        result = message.tool_results[0]
        value["content"] = seal(result.text)
        value["tool_call_id"] = seal(result.call_id)
        if result.name is not None:
            value["name"] = seal(result.name)
    if message.reasoning:
        value["reasoning_content"] = seal(message.reasoning)
    if message.tool_calls:
        value["tool_calls"] = [
            {
                "type": "function",
                "id": seal(call.id),
                "function": {"name": seal(wire_name(call)), "arguments": to_template_value(wire_arguments(call), seal)},
            }
            for call in message.tool_calls
        ]
    return value


def _client_texts(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterable[str]:
    for message in messages:
        yield from _texts_in_order(message)
        for call in message.tool_calls:
            yield call.id
            yield wire_name(call)
            yield tojson(to_template_value(wire_arguments(call)))
        for result in message.tool_results:
            yield result.call_id
            yield result.name or ""
    for tool in tools:
        yield tojson(to_template_value(wire_tool(tool)))


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks trained spans in some templates; here its body is only rendered."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that Jinja reads

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node | list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
