"""What a prompt is made of: every token counted once, under the part that has its first byte."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from zllm_ref.canonical.message import Role
from zllm_ref.dialect.segment import Author
from zllm_ref.inspector.axis import Span
from zllm_ref.inspector.prompt_view import PromptView

KINDS = ("system", "tools", "workspace", "history", "tool_results", "new_input", "template")

_WORKSPACE_TAGS = (
    "environment_context", "user_instructions", "INSTRUCTIONS", "system-reminder", "env", "permissions instructions",
    "skills_instructions", "apps_instructions", "plugins_instructions", "collaboration_mode", "workspace_info", "workspace",
    "directoryStructure", "git_status", "context", "project_layout", "rules", "memory",
)  # fmt: skip
"""Tags in which agents put files, rules and the state of a machine, beside what a person said."""
_WORKSPACE = re.compile("|".join(f"<{tag}(?: [^>]*)?>.*?</{tag.split()[0]}[^>]*>" for tag in _WORKSPACE_TAGS).encode(), re.DOTALL)


@dataclass(frozen=True)
class Share:
    """One part of a prompt. `spans`: where it stands, in order."""

    kind: str
    tokens: int
    share: float
    spans: tuple[Span, ...]


def composition(view: PromptView) -> tuple[Share, ...]:
    """The parts in their fixed order, those without tokens included. Their tokens sum up to the prompt's."""
    labels = token_labels(view)
    total = len(labels)
    spans: dict[int, list[Span]] = {index: [] for index in range(len(KINDS))}
    place = 0
    for label, run in groupby(labels.tolist()):
        length = sum(1 for _ in run)
        spans[label].append((place, place + length))
        place += length
    counts = [sum(end - start for start, end in spans[index]) for index in range(len(KINDS))]
    return tuple(
        Share(kind, counts[index], counts[index] / total if total else 0.0, tuple(spans[index]))
        for index, kind in enumerate(KINDS)
    )


def token_labels(view: PromptView) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """For each prompt token the index of its kind."""
    axis = view.axis
    size = int(axis.starts[axis.num_prompt])
    labels = np.full(size + 1, KINDS.index("template"), np.uint8)
    new_from = _first_new_message(view)
    tools = _tool_region(view)
    for index, (placed, owner) in enumerate(zip(axis.placed, view.owners, strict=True)):
        start, end = placed.bytes
        kind = _kind(view, index, owner, new_from, tools)
        labels[start:end] = KINDS.index(kind)
        if kind in ("system", "new_input", "history") and placed.segment.origin.author is Author.CLIENT:
            for found in _WORKSPACE.finditer(axis.data, start, end):
                labels[found.start() : found.end()] = KINDS.index("workspace")
    return labels[axis.starts[: axis.num_prompt]]


def _kind(view: PromptView, index: int, owner: int | None, new_from: int, tools: Span | None) -> str:
    segment = view.segments[index]
    if tools is not None and tools[0] <= index < tools[1]:
        return "tools"
    if segment.origin.author is Author.TEMPLATE:
        is_default_system = segment.origin.role is Role.SYSTEM and owner is None and len(segment.text) > 40
        return "system" if is_default_system else "template"
    if segment.origin.author is Author.MODEL:
        return "history"
    role = segment.origin.role
    if owner is not None:
        role = view.messages[owner].role
    if role in (Role.SYSTEM, Role.DEVELOPER):
        return "system"
    if role is Role.TOOL:
        return "tool_results"
    return "new_input" if owner is not None and owner >= new_from else "history"


def _first_new_message(view: PromptView) -> int:
    """The messages behind the last answer are new."""
    answers = [index for index, message in enumerate(view.messages) if message.role is Role.ASSISTANT]
    return answers[-1] + 1 if answers else 0


def _tool_region(view: PromptView) -> Span | None:
    """Segments of the tools: their schemas, and the instructions around them."""
    schemas = [index for index, one in enumerate(view.segments) if one.origin.author is Author.TOOL_SCHEMA]
    if not schemas:
        return None
    start, end = schemas[0], schemas[-1] + 1
    while start and _is_instruction(view, start - 1):
        start -= 1
    while end < len(view.segments) and _is_instruction(view, end):
        end += 1
    if start and view.segments[start].text.endswith("\n") and len(view.segments[start].text) < 20 and start + 1 < schemas[0]:
        start += 1 if view.segments[start].text.strip() in ("system", "user") else 0
    return start, end


def _is_instruction(view: PromptView, index: int) -> bool:
    """Text or markers that the template wrote in the system's role: not the markers that open and close the turn."""
    segment = view.segments[index]
    if segment.origin.author is not Author.TEMPLATE or segment.origin.role is not Role.SYSTEM:
        return False
    return not segment.text.startswith(
        ("<|im_start|>", "<|im_end|>", "<|system|>", "[gMASK]", "<｜begin", "<｜System", "<|start|>")
    )
