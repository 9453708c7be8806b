"""The factory: one request's fence, or none where nothing is to be held and nothing to be watched."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import takewhile

from zllm_ref.fence.compile import FenceCompiler
from zllm_ref.fence.generation_guard import GenerationGuard
from zllm_ref.fence.grammar import (
    Choice,
    CustomText,
    JsonBySchema,
    Literal,
    Marker,
    Node,
    RawText,
    Repeat,
    Sequence,
    UnorderedParameters,
)
from zllm_ref.fence.guard_settings import GuardSettings
from zllm_ref.fence.lark import split_closer
from zllm_ref.fence.phase_machine import PhaseMachine, PhasePlan
from zllm_ref.fence.token_fence import Closers, TokenFence
from zllm_ref.fence.tool_fence import FenceRequest, constrains, plan_fence, plan_free

_JSON_CLOSERS = ('"', "]", "}", ", ")
"""Strings end at their quote, numbers at whatever may follow them."""


def build_fence(request: FenceRequest, compiler: FenceCompiler, guard: GuardSettings | None = None) -> TokenFence | None:
    """The fence of one lane, at the beginning of its answer.

    None: the answer is free text and unwatched. Raises `ApiError` (with the path in the request) for what must be held and
    cannot. Lanes of the same request each get their own: compiled grammars are shared, so a second call costs microseconds.
    """
    if constrains(request):
        planned = plan_fence(request, compiler)
        plan, problems = planned.plan, planned.problems
    elif guard is not None:
        plan, problems = plan_free(request, compiler), ()
    else:
        return None
    phases = PhaseMachine(plan)
    if guard is None:
        return TokenFence(phases, problems=problems)
    watcher = GenerationGuard(guard, compiler.kinds, phases.phase)
    # Most answers never need them, and to find them is to walk all tools.
    return TokenFence(phases, watcher, closers=cache(lambda: _closers(request, plan, compiler)), problems=problems)


def _closers(request: FenceRequest, plan: PhasePlan, compiler: FenceCompiler) -> Closers:
    vocabulary = compiler.vocabulary
    reasoning = request.reasoning or (request.grammar.reasoning if request.grammar is not None else None)
    end: tuple[int, ...] = ()
    if reasoning is not None:
        token_id = vocabulary.marker_id(reasoning.close.name)
        end = (token_id,) if token_id is not None else tuple(vocabulary.encode_text(reasoning.close.name))
    region = plan.region or plan.first_region
    if region is None:
        return Closers(reasoning=end)
    values = [_closer_ids(closer, compiler) for closer in dict.fromkeys(_value_closers(region.root))]
    values += [tuple(vocabulary.encode_text(text)) for text in _JSON_CLOSERS]
    return Closers(end, tuple(dict.fromkeys(values)))


def _value_closers(node: Node) -> Iterator[tuple[Literal | Marker, ...]]:
    """How each kind of value ends."""
    match node:
        case RawText() | CustomText():
            yield node.closer
        case Sequence():
            for index, item in enumerate(node.items):
                if isinstance(item, JsonBySchema):
                    following = takewhile(lambda part: isinstance(part, Literal | Marker), node.items[index + 1 :])
                    closer = tuple(part for part in following if isinstance(part, Literal | Marker))
                    if closer:
                        yield closer
                yield from _value_closers(item)
        case Choice():
            for option in node.options:
                yield from _value_closers(option)
        case Repeat():
            yield from _value_closers(node.item)
        case UnorderedParameters():
            for parameter in node.parameters:
                yield from _value_closers(parameter.node)


def _closer_ids(closer: tuple[Literal | Marker, ...], compiler: FenceCompiler) -> tuple[int, ...]:
    """Up to the first id of the closer: what follows it is forced."""
    before, token_id, _ = split_closer(closer, compiler.vocabulary.marker_id)
    ids = tuple(compiler.vocabulary.encode_text(before)) if before else ()
    return ids if token_id is None else (*ids, token_id)
