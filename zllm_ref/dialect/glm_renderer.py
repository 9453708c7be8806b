"""GLM: role markers without an end of turn. 4.5/4.6 writes a line break after every tag, 4.7/5 none.

Source: the chat templates of GLM-4.6 and GLM-4.7 (see `tool_instructions`). The templates strip content and reasoning, and so
does this renderer: a history that was edited by hand loses outer whitespace there, replayed turns do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.canonical.json_value import dump_json
from zllm_ref.canonical.message import Role
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.conversation import AssistantTurn, ResultTurn, SystemTurn, UserTurn, last_user_index
from zllm_ref.dialect.definitions import (
    END_THINK,
    END_TOOL_RESPONSE,
    GLM_ASSISTANT,
    GLM_OBSERVATION,
    GLM_PREFIX,
    GLM_SYSTEM,
    GLM_USER,
    THINK,
    TOOL_RESPONSE,
)
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob, replayed, settings_of, write_content_and_calls
from zllm_ref.dialect.tool_instructions import GLM_HEAD
from zllm_ref.dialect.tool_wire import wire_tool
from zllm_ref.dialect.writer import SegmentWriter

_NO_THINK = "/nothink"


@dataclass(frozen=True, slots=True)
class GlmRenderer:
    """`newline` is what stands after every tag: a line break (4.5) or nothing (4.7)."""

    definition: ProtocolDefinition
    instructions_tail: str
    newline: str
    prompt_opens_reasoning: bool
    """4.7 writes `<think>` or `</think>` into the prompt; 4.5 lets the model open its reasoning."""
    empty_reasoning: Framing
    """What an answer of the history shows in place of reasoning that is not there."""
    marks_users: bool
    """4.5 appends `/nothink` to every user turn when reasoning is off."""

    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        writer.template(GLM_PREFIX)
        if job.tools:
            writer.template((GLM_SYSTEM, "\n"), Role.SYSTEM)
            writer.trusted(GLM_HEAD, Role.SYSTEM)
            for index, tool in enumerate(job.tools):
                writer.template("\n" if index else "", Role.SYSTEM)
                writer.schema(dump_json(wire_tool(tool)))
            writer.trusted("\n" + self.instructions_tail, Role.SYSTEM)
        last_user = last_user_index(job.turns)
        for index, turn in enumerate(job.turns):
            match turn:
                case SystemTurn():
                    writer.template((GLM_SYSTEM, self.newline), Role.SYSTEM)
                    writer.client(turn.text, Role.SYSTEM)
                case UserTurn():
                    writer.template((GLM_USER, self.newline), Role.USER)
                    writer.client(turn.text, Role.USER)
                    if self.marks_users and job.reasoning.enabled is False and not turn.text.endswith(_NO_THINK):
                        writer.template(_NO_THINK, Role.USER)
                case AssistantTurn():
                    writer.template((GLM_ASSISTANT,), Role.ASSISTANT)
                    self._write_answer(writer, job, turn, keeps=index > last_user or job.keep_reasoning)
                case ResultTurn():
                    if not (index and isinstance(job.turns[index - 1], ResultTurn)):
                        writer.template((GLM_OBSERVATION,), Role.TOOL)
                    writer.template((self.newline, TOOL_RESPONSE, self.newline), Role.TOOL)
                    writer.client(turn.text, Role.TOOL)
                    writer.template((self.newline, END_TOOL_RESPONSE), Role.TOOL)
        if job.add_generation_prompt:
            writer.template((GLM_ASSISTANT,), Role.ASSISTANT)
            writer.template(self.prompt_tail(job.reasoning), Role.ASSISTANT)

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        if self.prompt_opens_reasoning:
            return (END_THINK,) if reasoning.enabled is False else (THINK,)
        return self.empty_reasoning if reasoning.enabled is False else ()

    def _write_answer(self, writer: SegmentWriter, job: RenderJob, turn: AssistantTurn, *, keeps: bool) -> None:
        generated = replayed(job, turn.message, keeps=keeps)
        if generated is not None:
            thought = bool(generated.num_reasoning)
            tail = self.prompt_tail(settings_of(generated)) if keeps else self._tail_without(thought, generated.reasoning_enabled)
            writer.template(tail, Role.ASSISTANT)
            writer.replay(generated.ids)
            return
        content, reasoning = turn.text.strip(), turn.reasoning.strip()
        layout = self.definition.reasoning
        if keeps and reasoning and layout is not None:
            writer.template((layout.before_open, layout.open_marker), Role.ASSISTANT)
            writer.client(reasoning, Role.ASSISTANT)
            writer.template((layout.close_marker,), Role.ASSISTANT)
        else:
            writer.template(self.empty_reasoning, Role.ASSISTANT)
        writer.template(self.newline if content else "", Role.ASSISTANT)
        write_content_and_calls(writer, self.definition, turn, content)

    def _tail_without(self, thought: bool, enabled: bool | None) -> Framing:
        """Before an old answer whose reasoning is dropped. One that never thought, and whose prompt did not say so, has none."""
        if not thought and not self.prompt_opens_reasoning and enabled is not False:
            return ()
        return self.empty_reasoning
