"""A request explained without a model: what its prompt is made of, and where it parts from an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zllm_ref.cache.prefix_graph import id_bytes_of, num_common_tokens
from zllm_ref.canonical.request import Request
from zllm_ref.dialect import Segment, encode
from zllm_ref.dialect.conversation import turns_of
from zllm_ref.dialect.render_job import Renderer, RenderJob
from zllm_ref.dialect.tool_wire import shown_tools
from zllm_ref.dialect.writer import SegmentWriter
from zllm_ref.inspector.prefix_panel import Other, Prices, fork_cause, named, nearest_shown, shares
from zllm_ref.inspector.prefix_words import cause
from zllm_ref.inspector.prompt_view import PromptView
from zllm_ref.inspector.token_panels import segment_list
from zllm_ref.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class Writing:
    """How prompts are written: a dialect's renderer, under its name, on a vocabulary."""

    dialect: str
    renderer: Renderer
    vocabulary: Vocabulary
    shows_tools: bool = True
    keep_reasoning: bool = False

    def segments(self, request: Request) -> tuple[Segment, ...]:
        """Raises UnrenderableValue and TemplateError."""
        writer = SegmentWriter(self.vocabulary)
        tools = shown_tools(request.tools) if self.shows_tools else ()
        job = RenderJob(request.messages, turns_of(request.messages), tools, request.reasoning, self.keep_reasoning)
        self.renderer.render(writer, job)
        return writer.segments

    def view(self, request: Request) -> PromptView:
        segments = self.segments(request)
        ids = encode(segments, self.vocabulary)
        namespace = f"{request.cache.namespace}\0{request.cache.salt or ''}"
        return PromptView(
            self.vocabulary, request.messages, request.tools, segments, ids, dialect=self.dialect, namespace=namespace
        )


@dataclass(frozen=True)
class Explained:
    """A prompt, an earlier one beside it (None: none was given), and the number of tokens that both begin with."""

    view: PromptView
    earlier: PromptView | None
    fork: int
    prices: Prices

    def shown(self) -> dict[str, Any]:
        """The same fields as `GET requests/{id}/prefix`, and the segments. What both begin with counts as cached."""
        parts, total = shares(self.view, self.fork, self.prices, None)
        return {
            "dialect": self.view.dialect,
            "vocabulary_size": self.view.axis.vocabulary.size,
            "prompt_tokens": self.view.axis.num_prompt,
            "prices": {"input": self.prices.input, "cached": self.prices.cached, "currency": self.prices.currency},
            "composition": parts,
            "total": total,
            "nearest": self._nearest(),
            "cause": self.cause,
            "segments": segment_list(self.view.axis, self.view.owners),
            "text": self.view.axis.text,
        }

    @property
    def cause(self) -> dict[str, Any] | None:
        if self.earlier is None:
            return None
        length = self.earlier.axis.num_prompt
        if self.view.namespace != self.earlier.namespace:
            return named(cause("other_namespace", "salt_of_both"), (0, self.fork), length)
        return fork_cause(self.view, self.earlier, self.fork, length)

    def _nearest(self) -> dict[str, Any] | None:
        if self.earlier is None:
            return None
        length = self.earlier.axis.num_prompt
        differs = self.view.namespace != self.earlier.namespace
        other = Other(self.earlier.axis, length, self.fork, None, None, differs, self.earlier)
        return nearest_shown(self.view, other, 0 if differs else self.fork)


def explain(request: Request, writing: Writing, earlier: Request | None, earlier_writing: Writing, prices: Prices) -> Explained:
    """Both requests written, and compared."""
    view = writing.view(request)
    if earlier is None:
        return Explained(view, None, 0, prices)
    other = earlier_writing.view(earlier)
    fork = num_common_tokens(id_bytes_of(view.axis.ids), id_bytes_of(other.axis.ids))
    return Explained(view, other, fork, prices)
