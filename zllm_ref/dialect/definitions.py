"""The nine definitions. Sources of the bytes: the vendors' templates and encoders, as named in `docs/dialects.md`."""

from __future__ import annotations

from zllm_ref.dialect.call_layout import JsonLayout, ProtocolDefinition, ReasoningLayout, TagLayout
from zllm_ref.dialect.markup import Framing
from zllm_ref.fence.grammar import Marker

THINK, END_THINK = Marker("<think>"), Marker("</think>")
TOOL_CALL, END_TOOL_CALL = Marker("<tool_call>"), Marker("</tool_call>")
TOOL_RESPONSE, END_TOOL_RESPONSE = Marker("<tool_response>"), Marker("</tool_response>")

IM_START, IM_END = Marker("<|im_start|>"), Marker("<|im_end|>")
_CHATML_END = ("<|im_end|>", "<|endoftext|>")
_CHATML_OTHERS = ("<|im_start|>", "<tool_response>", "</tool_response>")

GLM_PREFIX: Framing = (Marker("[gMASK]"), Marker("<sop>"))
GLM_SYSTEM, GLM_USER = Marker("<|system|>"), Marker("<|user|>")
GLM_ASSISTANT, GLM_OBSERVATION = Marker("<|assistant|>"), Marker("<|observation|>")
_ARG_KEY, _END_ARG_KEY = Marker("<arg_key>"), Marker("</arg_key>")
_ARG_VALUE, _END_ARG_VALUE = Marker("<arg_value>"), Marker("</arg_value>")
_GLM_END = ("<|endoftext|>", "<|user|>", "<|observation|>")  # no end-of-turn token: the next speaker ends the turn
_GLM_OTHERS = ("[gMASK]", "<sop>", "<|system|>", "<|assistant|>", "<tool_response>", "</tool_response>")

DSML = Marker("｜DSML｜")
DSML_BOS, DSML_EOS = Marker("<｜begin▁of▁sentence｜>"), Marker("<｜end▁of▁sentence｜>")
DSML_SYSTEM, DSML_USER = Marker("<｜System｜>"), Marker("<｜User｜>")
DSML_ASSISTANT = Marker("<｜Assistant｜>")
_DSML_OTHERS = ("<｜begin▁of▁sentence｜>", "<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>")


def _dsml(name: str, block: str, space: str) -> ProtocolDefinition:
    """One revision of DSML: `block` is the word of the enclosing tag, `space` stands before every tag's word."""
    return ProtocolDefinition(
        name=name,
        calls=TagLayout(
            lead="\n\n",
            lead_without_content=True,
            block_open=("<", DSML, f"{space}{block}>\n"),
            call_open=("<", DSML, f'{space}invoke name="'),
            name_close='">\n',
            parameter_open=("<", DSML, f'{space}parameter name="'),
            key_close=('" string="false">',),
            string_key_close=('" string="true">',),
            value_close=("</", DSML, f"{space}parameter>"),
            between_parameters="\n",
            call_close=("\n</", DSML, f"{space}invoke>"),
            between_calls="\n",
            block_close=("\n</", DSML, f"{space}{block}>"),
        ),
        reasoning=ReasoningLayout(THINK, END_THINK),
        end_markers=("<｜end▁of▁sentence｜>",),
        other_markers=_DSML_OTHERS,
    )


def _glm(name: str, newline: str) -> ProtocolDefinition:
    """One revision of GLM's tags: 4.5 puts every tag on its own line, 4.7 puts nothing between them."""
    return ProtocolDefinition(
        name=name,
        calls=TagLayout(
            lead=newline,
            lead_without_content=True,
            call_open=(TOOL_CALL,),
            name_close="",
            parameter_open=(newline, _ARG_KEY),
            key_close=(_END_ARG_KEY, newline, _ARG_VALUE),
            string_key_close=(_END_ARG_KEY, newline, _ARG_VALUE),
            value_close=(_END_ARG_VALUE,),
            call_close=(newline, END_TOOL_CALL),
            between_calls=newline,
        ),
        reasoning=ReasoningLayout(THINK, END_THINK, before_open=newline, after_close=newline, after_close_is_of_content=True),
        end_markers=_GLM_END,
        other_markers=_GLM_OTHERS,
    )


def _chatml_json(name: str, reasoning: ReasoningLayout | None) -> ProtocolDefinition:
    return ProtocolDefinition(
        name=name,
        calls=JsonLayout(
            lead="\n",
            lead_without_content=False,
            call_open=(TOOL_CALL, "\n"),
            call_close=("\n", END_TOOL_CALL),
            between_calls="\n",
        ),
        reasoning=reasoning,
        end_markers=_CHATML_END,
        other_markers=_CHATML_OTHERS,
    )


_QWEN3_REASONING = ReasoningLayout(THINK, END_THINK, after_open="\n", before_close="\n", after_close="\n\n")

DSML_V3_2 = _dsml("dsml-v3.2", "function_calls", "")
DSML_V4 = _dsml("dsml-v4", "tool_calls", "")
DSML_V4_1 = _dsml("dsml-v4.1", "calls", " ")
GLM_4_5 = _glm("glm-4.5", "\n")
GLM_4_7 = _glm("glm-4.7", "")
CHATML_HERMES = _chatml_json("chatml-hermes", _QWEN3_REASONING)
CHATML_QWEN2_5 = _chatml_json("chatml-qwen2.5", None)
CHATML_QWEN3 = _chatml_json("chatml-qwen3", _QWEN3_REASONING)
QWEN3_CODER = ProtocolDefinition(
    name="qwen3-coder",
    calls=TagLayout(
        lead="\n\n",
        lead_without_content=False,
        call_open=(TOOL_CALL, "\n<function="),
        name_close=">\n",
        parameter_open=("<parameter=",),
        key_close=(">\n",),
        string_key_close=(">\n",),
        value_close=("\n</parameter>\n",),
        call_close=("</function>\n", END_TOOL_CALL),
        between_calls="\n",
        python_scalars=True,
    ),
    reasoning=None,
    end_markers=_CHATML_END,
    other_markers=_CHATML_OTHERS,
)

DEFINITIONS = {
    definition.name: definition
    for definition in (
        DSML_V3_2,
        DSML_V4,
        DSML_V4_1,
        GLM_4_5,
        GLM_4_7,
        CHATML_HERMES,
        CHATML_QWEN2_5,
        CHATML_QWEN3,
        QWEN3_CODER,
    )
}
