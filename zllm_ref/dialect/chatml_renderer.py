"""ChatML: `<|im_start|>role⏎ … <|im_end|>⏎`. Hermes, Qwen2.5 and Qwen3 differ in the system turn and in reasoning.

Sources: the chat templates of Qwen2.5 and Qwen3 (packages named in `tool_instructions`). `chatml-hermes` is this project's own
revision for models whose template knows no tools: Qwen's instructions without Qwen's system prompt. Hermes' own template
writes past calls with their keys in another order than it teaches them and drops the content beside them, so no answer could
ever be written back as it was generated.
"""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.canonical.json_value import dump_json
from zllm_ref.canonical.message import Role
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.conversation import AssistantTurn, ResultTurn, SystemTurn, UserTurn, last_user_index
from zllm_ref.dialect.definitions import END_THINK, END_TOOL_RESPONSE, IM_END, IM_START, THINK, TOOL_RESPONSE
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob, replayed, settings_of, write_content_and_calls
from zllm_ref.dialect.tool_instructions import CHATML_HEAD, CHATML_TAIL
from zllm_ref.dialect.tool_wire import wire_tool
from zllm_ref.dialect.writer import SegmentWriter

_NO_THOUGHTS: Framing = (THINK, "\n\n", END_THINK, "\n\n")


@dataclass(frozen=True, slots=True)
class ChatmlRenderer:
    """`default_system` speaks where the client's conversation has no system turn first; empty: nobody does."""

    definition: ProtocolDefinition
    default_system: str = ""
    model_opens_reasoning: bool = False
    """Qwen3: the model itself writes `<think>`; otherwise the prompt does, if the request enables reasoning."""

    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        self._write_system(writer, job)
        last_query = last_user_index(job.turns)
        for index, turn in enumerate(job.turns):
            match turn:
                case SystemTurn():
                    if index:
                        self._open(writer, Role.SYSTEM)
                        writer.client(turn.text, Role.SYSTEM)
                        self._close(writer, Role.SYSTEM)
                case UserTurn():
                    self._open(writer, Role.USER)
                    writer.client(turn.text, Role.USER)
                    self._close(writer, Role.USER)
                case AssistantTurn():
                    self._open(writer, Role.ASSISTANT)
                    is_last = index == len(job.turns) - 1
                    self._write_answer(writer, job, turn, is_recent=index > last_query, is_last=is_last)
                    self._close(writer, Role.ASSISTANT)
                case ResultTurn():
                    self._write_result(writer, job, index, turn)
        if job.add_generation_prompt:
            self._open(writer, Role.ASSISTANT)
            writer.template(self.prompt_tail(job.reasoning), Role.ASSISTANT)

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        if self.definition.reasoning is None:
            return ()
        if self.model_opens_reasoning:
            return _NO_THOUGHTS if reasoning.enabled is False else ()
        return (THINK, "\n") if reasoning.enabled else ()

    def _write_system(self, writer: SegmentWriter, job: RenderJob) -> None:
        first = job.turns[0] if job.turns else None
        given = first.text if isinstance(first, SystemTurn) else None
        if given is None and not self.default_system and not job.tools:
            return
        self._open(writer, Role.SYSTEM)
        if given is not None:
            writer.client(given, Role.SYSTEM)
        else:
            writer.template(self.default_system, Role.SYSTEM)
        if job.tools:
            if given is not None or self.default_system:
                writer.template("\n\n", Role.SYSTEM)
            writer.trusted(CHATML_HEAD, Role.SYSTEM)
            for tool in job.tools:
                writer.template("\n", Role.SYSTEM)
                writer.schema(dump_json(wire_tool(tool)))
            writer.trusted(CHATML_TAIL, Role.SYSTEM)
        self._close(writer, Role.SYSTEM)

    def _write_answer(
        self, writer: SegmentWriter, job: RenderJob, turn: AssistantTurn, *, is_recent: bool, is_last: bool
    ) -> None:
        keeps = is_recent or job.keep_reasoning
        generated = replayed(job, turn.message, keeps=keeps)
        if generated is not None:
            if keeps:
                writer.template(self.prompt_tail(settings_of(generated)), Role.ASSISTANT)
            writer.replay(generated.ids)
            return
        content = turn.text
        if self.definition.reasoning is not None and keeps and (turn.reasoning or (is_last and self.model_opens_reasoning)):
            writer.template(self.definition.reasoning.open, Role.ASSISTANT)
            writer.client(turn.reasoning.strip("\n"), Role.ASSISTANT)
            writer.template(self.definition.reasoning.close, Role.ASSISTANT)
            content = content.lstrip("\n")
        write_content_and_calls(writer, self.definition, turn, content)

    def _write_result(self, writer: SegmentWriter, job: RenderJob, index: int, turn: ResultTurn) -> None:
        """Results in a row share one user turn."""
        before = job.turns[index - 1] if index else None
        after = job.turns[index + 1] if index + 1 < len(job.turns) else None
        if not isinstance(before, ResultTurn):
            writer.template((IM_START, "user"), Role.TOOL)
        writer.template(("\n", TOOL_RESPONSE, "\n"), Role.TOOL)
        writer.client(turn.text, Role.TOOL)
        writer.template(("\n", END_TOOL_RESPONSE), Role.TOOL)
        if not isinstance(after, ResultTurn):
            self._close(writer, Role.TOOL)

    @staticmethod
    def _open(writer: SegmentWriter, role: Role) -> None:
        writer.template((IM_START, f"{role.value}\n"), role)

    @staticmethod
    def _close(writer: SegmentWriter, role: Role) -> None:
        writer.template((IM_END, "\n"), role)
