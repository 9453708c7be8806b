"""DeepSeek DSML: V3.2 answers results with `<function_results>` in the open turn, V4 and V4.1 with a user turn of results.

Sources: encoding_dsv32.py (as packaged in sglang) for V3.2, the vendor's package deepseek-recipe for V4 and V4.1. A system turn
in mid-conversation stays in its place in every revision: moving it to the front would throw away the cached prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zllm_ref.canonical.json_value import dump_json
from zllm_ref.canonical.message import Role
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.conversation import AssistantTurn, ResultTurn, SystemTurn, Turn, UserTurn, last_user_index
from zllm_ref.dialect.definitions import DSML_ASSISTANT, DSML_BOS, DSML_EOS, DSML_SYSTEM, DSML_USER, END_THINK, THINK
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob, replayed, settings_of, write_content_and_calls
from zllm_ref.dialect.tool_instructions import (
    DSML_V4_1_DEFAULT_EFFORT,
    DSML_V4_1_EFFORT,
    DSML_V4_1_EFFORTS,
    DSML_V4_EFFORT_HIGH,
    DSML_V4_EFFORT_MAX,
)
from zllm_ref.dialect.tool_wire import wire_tool
from zllm_ref.dialect.writer import SegmentWriter

_V4_EFFORTS = {"high": DSML_V4_EFFORT_HIGH, "xhigh": DSML_V4_EFFORT_HIGH, "max": DSML_V4_EFFORT_MAX}


@dataclass(frozen=True, slots=True)
class DsmlRenderer:
    """The parts that all revisions share; `write_results` and `write_front` are the revision's own."""

    definition: ProtocolDefinition
    instructions_head: str
    instructions_tail: str

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        return (THINK,) if reasoning.enabled else (END_THINK,)

    def _write_tools(self, writer: SegmentWriter, job: RenderJob) -> None:
        if not job.tools:
            return
        writer.template("\n\n", Role.SYSTEM)
        writer.trusted(self.instructions_head, Role.SYSTEM)
        for index, tool in enumerate(job.tools):
            writer.template("\n" if index else "", Role.SYSTEM)
            writer.schema(dump_json(wire_tool(tool).get("function")))
        writer.trusted(self.instructions_tail, Role.SYSTEM)

    def _write_answer(self, writer: SegmentWriter, job: RenderJob, turn: AssistantTurn, *, keeps: bool) -> None:
        """From the marker that opens or closes thinking to the end of the turn."""
        generated = replayed(job, turn.message, keeps=keeps)
        if generated is not None:
            writer.template(self.prompt_tail(settings_of(generated)) if keeps else (END_THINK,), Role.ASSISTANT)
            writer.replay(generated.ids)
        else:
            if keeps and (job.reasoning.enabled or turn.reasoning):
                writer.template((THINK,), Role.ASSISTANT)
                writer.client(turn.reasoning, Role.ASSISTANT)
            writer.template((END_THINK,), Role.ASSISTANT)
            write_content_and_calls(writer, self.definition, turn, turn.text)
        writer.template((DSML_EOS,), Role.ASSISTANT)


@dataclass(frozen=True, slots=True)
class DsmlV32Renderer(DsmlRenderer):
    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        writer.template((DSML_BOS,))
        last_user = last_user_index(job.turns)
        turns = job.turns
        if not (turns and isinstance(turns[0], SystemTurn)):
            self._write_tools(writer, job)
        awaits_answer = False
        for index, turn in enumerate(turns):
            match turn:
                case SystemTurn():
                    writer.client(turn.text, Role.SYSTEM)
                    if index == 0:
                        self._write_tools(writer, job)
                case UserTurn():
                    if awaits_answer:
                        writer.template((END_THINK,), Role.ASSISTANT)
                    writer.template((DSML_USER,), Role.USER)
                    writer.client(turn.text, Role.USER)
                    writer.template((DSML_ASSISTANT,), Role.ASSISTANT)
                    awaits_answer = True
                case ResultTurn():
                    self._write_result(writer, turns, index, turn)
                    awaits_answer = True
                case AssistantTurn():
                    keeps = job.keep_reasoning or (bool(job.reasoning.enabled) and index > last_user)
                    self._write_answer(writer, job, turn, keeps=keeps)
                    awaits_answer = False
        if job.add_generation_prompt:
            writer.template(self.prompt_tail(job.reasoning), Role.ASSISTANT)

    @staticmethod
    def _write_result(writer: SegmentWriter, turns: tuple[Turn, ...], index: int, turn: ResultTurn) -> None:
        if not (index and isinstance(turns[index - 1], ResultTurn)):
            writer.template("\n\n<function_results>", Role.TOOL)
        writer.template("\n<result>", Role.TOOL)
        writer.client(turn.text, Role.TOOL)
        writer.template("</result>", Role.TOOL)
        if not (index + 1 < len(turns) and isinstance(turns[index + 1], ResultTurn)):
            writer.template("\n</function_results>\n\n", Role.TOOL)


@dataclass(frozen=True, slots=True)
class DsmlV4Renderer(DsmlRenderer):
    has_system_marker: bool = False
    """V4.1 opens a system turn with its own marker and writes the effort as a number."""

    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        writer.template((DSML_BOS,))
        self._write_front(writer, job)
        turns = tuple(_in_call_order(job.turns))
        last_speech = max((index for index, turn in enumerate(turns) if not isinstance(turn, AssistantTurn)), default=-1)
        is_user_open = False
        for index, turn in enumerate(turns):
            match turn:
                case SystemTurn():
                    if index:
                        writer.template((DSML_SYSTEM,) if self.has_system_marker else (), Role.SYSTEM)
                        writer.client(turn.text, Role.SYSTEM)
                        is_user_open = False
                case UserTurn() | ResultTurn():
                    writer.template("\n\n" if is_user_open else (DSML_USER,), Role.USER)
                    self._write_speech(writer, turn)
                    is_user_open = True
                case AssistantTurn():
                    writer.template((DSML_ASSISTANT,), Role.ASSISTANT)
                    # With tools in the prompt no reasoning is ever dropped.
                    is_kept = bool(job.reasoning.enabled) and (bool(job.tools) or index > last_speech)
                    self._write_answer(writer, job, turn, keeps=job.keep_reasoning or is_kept)
                    is_user_open = False
        if job.add_generation_prompt:
            writer.template((DSML_ASSISTANT,), Role.ASSISTANT)
            writer.template(self.prompt_tail(job.reasoning), Role.ASSISTANT)

    def _write_front(self, writer: SegmentWriter, job: RenderJob) -> None:
        first = job.turns[0] if job.turns else None
        effort = self._effort(job.reasoning)
        if self.has_system_marker and (effort or job.tools or isinstance(first, SystemTurn)):
            writer.template((DSML_SYSTEM,), Role.SYSTEM)
        writer.template(effort, Role.SYSTEM)
        if isinstance(first, SystemTurn):
            writer.client(first.text, Role.SYSTEM)
        self._write_tools(writer, job)

    def _effort(self, reasoning: ReasoningSettings) -> str:
        if not reasoning.enabled:
            return ""
        if self.has_system_marker:
            wanted = reasoning.effort or ""
            effort = int(wanted) if wanted.isdecimal() else DSML_V4_1_EFFORTS.get(wanted, DSML_V4_1_DEFAULT_EFFORT)
            return DSML_V4_1_EFFORT.format(effort=effort)
        return _V4_EFFORTS.get(reasoning.effort or "", "")

    @staticmethod
    def _write_speech(writer: SegmentWriter, turn: UserTurn | ResultTurn) -> None:
        if isinstance(turn, UserTurn):
            writer.client(turn.text, Role.USER)
            return
        writer.template("<tool_result>", Role.TOOL)
        writer.client(turn.text, Role.TOOL)
        writer.template("</tool_result>", Role.TOOL)


def _in_call_order(turns: tuple[Turn, ...]) -> Iterator[Turn]:
    """The results between two answers in the order of the calls that they answer; all other turns where they stand."""
    order: dict[str, int] = {}
    waiting: list[Turn] = []
    for turn in turns:
        if isinstance(turn, UserTurn | ResultTurn):
            waiting.append(turn)
            continue
        yield from _sorted_results(waiting, order)
        waiting = []
        if isinstance(turn, AssistantTurn) and turn.calls:
            order = {call.id: index for index, call in enumerate(turn.calls)}
        yield turn
    yield from _sorted_results(waiting, order)


def _sorted_results(turns: list[Turn], order: dict[str, int]) -> Iterator[Turn]:
    results = [turn for turn in turns if isinstance(turn, ResultTurn)]
    in_order = iter(sorted(results, key=lambda result: order.get(result.call_id, 0)))
    for turn in turns:
        yield next(in_order) if isinstance(turn, ResultTurn) else turn
