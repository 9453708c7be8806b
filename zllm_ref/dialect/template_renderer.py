"""A template that this project does not know: plain conversations as it writes them, tools as content if it has none.

A template that never looks at tools would lose them. So the instructions go to the end of the system message, past calls to the
end of the assistant's content, results into user messages: all in chatml-hermes, and all through the template unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zllm_ref.canonical.json_value import dump_json
from zllm_ref.canonical.message import Message, Role, Text, ToolResult
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.call_writer import write_calls
from zllm_ref.dialect.definitions import END_TOOL_RESPONSE, TOOL_RESPONSE
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob, replayed
from zllm_ref.dialect.segment import Segment
from zllm_ref.dialect.template import ChatTemplate
from zllm_ref.dialect.tool_instructions import CHATML_HEAD, CHATML_TAIL
from zllm_ref.dialect.tool_wire import wire_tool
from zllm_ref.dialect.unrenderable import UnrenderableValue
from zllm_ref.dialect.writer import SegmentWriter
from zllm_ref.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TemplateRenderer:
    definition: ProtocolDefinition
    template: ChatTemplate
    vocabulary: Vocabulary

    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        if job.tools and self.template.renders_tools:
            raise UnrenderableValue(
                "tools: got some, allowed none with a chat template of an unknown family; name its dialect with --dialect"
            )
        messages, opaque = self._lowered(job)
        writer.extend(
            self.template.render(
                messages, reasoning=job.reasoning, add_generation_prompt=job.add_generation_prompt, opaque=opaque
            )
        )

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        return ()

    def _lowered(self, job: RenderJob) -> tuple[list[Message], dict[int, Sequence[Segment]]]:
        """Messages that any template can write, and the contents that it must not read."""
        messages: list[Message] = []
        opaque: dict[int, Sequence[Segment]] = {}
        source = list(job.messages)
        if job.tools:
            system = source.pop(0) if source and source[0].role in (Role.SYSTEM, Role.DEVELOPER) else None
            opaque[0] = self._system(system, job)
            messages.append(Message(Role.SYSTEM, (Text("tools"),)))
        results: list[ToolResult] = []
        for message in [*source, None]:
            if message is not None and message.tool_results:
                results += message.tool_results
                if not message.text:
                    continue
            if results:
                opaque[len(messages)] = self._results(results)
                messages.append(Message(Role.USER, (Text("results"),)))
                results = []
            if message is None:
                continue
            if message.role is Role.ASSISTANT:
                content = self._answer(message, job)
                if content is not None:
                    opaque[len(messages)] = content
            messages.append(Message(Role.USER if message.role is Role.TOOL else message.role, (Text(message.text),)))
        return messages, opaque

    def _system(self, system: Message | None, job: RenderJob) -> Sequence[Segment]:
        writer = SegmentWriter(self.vocabulary)
        if system is not None and system.text:
            writer.client(system.text, Role.SYSTEM)
            writer.template("\n\n", Role.SYSTEM)
        writer.trusted(CHATML_HEAD, Role.SYSTEM)
        for tool in job.tools:
            writer.template("\n", Role.SYSTEM)
            writer.schema(dump_json(wire_tool(tool)))
        writer.trusted(CHATML_TAIL, Role.SYSTEM)
        return writer.segments

    def _results(self, results: Sequence[ToolResult]) -> Sequence[Segment]:
        writer = SegmentWriter(self.vocabulary)
        for index, result in enumerate(results):
            writer.template(("\n", TOOL_RESPONSE, "\n") if index else (TOOL_RESPONSE, "\n"), Role.TOOL)
            writer.client(result.text, Role.TOOL)
            writer.template(("\n", END_TOOL_RESPONSE), Role.TOOL)
        return writer.segments

    def _answer(self, message: Message, job: RenderJob) -> Sequence[Segment] | None:
        """The content as segments where calls or generated ids are in it; None: the template writes its text."""
        writer = SegmentWriter(self.vocabulary)
        generated = replayed(job, message, keeps=job.keep_reasoning)
        if generated is not None:
            writer.replay(generated.ids)
        elif message.tool_calls:
            writer.client(message.text, Role.ASSISTANT)
            write_calls(writer, self.definition.calls, message.tool_calls, has_content=bool(message.text))
        else:
            return None
        return writer.segments
