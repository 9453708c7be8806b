"""A round with drafts: every sequence feeds its pending ids and guesses behind them, and keeps what it would have said anyway.

    fed        pending | draft d1 d2 d3            one step; a row's logits are those of a single-token round
    rows            r0     r1 r2 r3
    sampled         t0     t1                      t0 = d1: accepted, its row is there already; t1 ≠ d2: the round ends
    state      ….. pending d1 | forgotten          pending = t1

A guess is accepted if and only if it is the token that the sequence samples at that position, with that position's
randomness and fence: so a drafter changes time and nothing else. Rows of rejected guesses are forgotten: by cutting where
the state can be cut, else by returning to a mark and feeding the accepted ids once more.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import torch
from torch import Tensor

from zllm_ref.runtime.decode import accept, choose, takes_the_largest
from zllm_ref.runtime.draft.drafter import Drafter
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.ports import TokenFence
from zllm_ref.runtime.sampler import SampledToken
from zllm_ref.runtime.sequence import Sequence
from zllm_ref.runtime.state import StateMark
from zllm_ref.runtime.step import build_step, commit_step

Tell = Callable[[Sequence, list[SampledToken]], None]
"""Passes on the tokens of one position (a sampled one, and those that its fence forced); sets `ended` where they end it."""


@dataclass(frozen=True)
class DraftedSequence:
    """A sequence and who guesses for it (None: nobody)."""

    sequence: Sequence
    drafter: Drafter | None = None


@dataclass(frozen=True)
class Verified:
    """What a round gave one sequence: guesses fed, and how many of them are in its state now."""

    proposed: int
    accepted: int


@dataclass(frozen=True)
class _Fed:
    """One lane of the round before its logits are looked at."""

    drafted: DraftedSequence
    draft: list[int]
    start: int
    pending: list[int]
    row: int
    mark: StateMark | None


def verify_round(model: Model, lanes: Ids[DraftedSequence], num_token_ids: int, tell: Tell) -> list[Verified]:
    """One round. Every sequence gains a token at least; `tell` hears of them position by position, and may end a sequence."""
    fed = _feed(lanes)
    step = build_step([(lane.drafted.sequence.state, lane.pending + lane.draft) for lane in fed], model.numerics, model.device)
    hidden = model.forward(step)
    commit_step(step)
    places = [row for lane in fed for row in range(lane.row, lane.row + len(lane.draft) + 1)]
    needed = hidden[: step.num_rows] if len(places) == step.num_rows else hidden[torch.tensor(places, device=hidden.device)]
    logits = model.logits(needed)[:, :num_token_ids]
    best = logits.argmax(-1).tolist()
    results, first = [], 0
    for lane in fed:
        end = first + len(lane.draft) + 1
        accepted = _walk(lane, logits[first:end], best[first:end], tell)
        first = end
        results.append(Verified(len(lane.draft), accepted))
    _forget(model, fed, results)
    for lane, result in zip(fed, results, strict=True):
        _teach(lane, result, hidden)
    return results


def fenced(fence: TokenFence | None, draft: Ids[int], limit: int) -> list[int]:
    """The draft as far as the fence lets it go, with every id that the fence forces put in: those are right for sure."""
    if fence is None:
        return list(draft[:limit])
    probe = fence.clone()
    walked: list[int] = []
    place = 0
    while place < len(draft) and len(walked) < limit and _allows(probe, draft[place]):
        probe.advance(draft[place])
        walked.append(draft[place])
        place += 1
        forced = list(probe.forced())
        for token in forced:
            probe.advance(token)
        walked += forced
        if list(draft[place : place + len(forced)]) != forced:
            break  # the guess goes another way than the fence must
        place += len(forced)
    return walked[:limit]


def _feed(lanes: Ids[DraftedSequence]) -> list[_Fed]:
    fed, row = [], 0
    for lane in lanes:
        sequence = lane.sequence
        # The last token of an answer needs no row, so a guess more than that could never be looked at.
        room = sequence.job.max_new_tokens - len(sequence.produced) - 1
        draft: list[int] = []
        if lane.drafter is not None and sequence.script is None and room > 0:
            draft = fenced(sequence.fence, lane.drafter.propose(room), room)
        state = sequence.state
        mark = None if state.declaration.cuttable or not draft else state.mark()
        pending = list(sequence.pending)
        fed.append(_Fed(lane, draft, state.length, pending, row + len(pending) - 1, mark))
        row += len(pending) + len(draft)
    return fed


def _walk(lane: _Fed, logits: Tensor, best: list[int], tell: Tell) -> int:
    """Samples position by position as long as the guesses are what is sampled. → guesses that stay in the state.

    `best`: the largest logit of each row, which is the token where nothing else has a say.
    """
    sequence, accepted = lane.drafted.sequence, 0
    while True:
        if takes_the_largest(sequence):
            tokens = accept(sequence, SampledToken(best[accepted]))
        else:
            tokens = choose(sequence, logits[accepted])
        new = [token.token_id for token in tokens]
        matched = _common(new, lane.draft[accepted:])
        tell(sequence, tokens)
        if sequence.ended is not None:
            return accepted  # the newest ids stay pending, as they would without drafts
        accepted += matched
        sequence.pending = new[matched:]
        if sequence.pending:
            return accepted


def _forget(model: Model, fed: list[_Fed], results: list[Verified]) -> None:
    """Takes the rows of rejected guesses out of the states."""
    again = []
    for lane, result in zip(fed, results, strict=True):
        state = lane.drafted.sequence.state
        length = lane.start + len(lane.pending) + result.accepted
        if length == state.length:
            continue
        if lane.mark is None:
            state.rollback(length)
        else:
            state.return_to(lane.mark)
            again.append((state, lane.pending + lane.draft[: result.accepted]))
    if again:
        step = build_step(again, model.numerics, model.device)
        model.forward(step)
        commit_step(step)


def _teach(lane: _Fed, result: Verified, hidden: Tensor) -> None:
    """Tells the drafter what became true."""
    sequence, drafter = lane.drafted.sequence, lane.drafted.drafter
    if drafter is None or sequence.ended is not None:
        return
    drafter.judge(result.proposed, result.accepted)
    count = len(lane.pending) + result.accepted
    first = lane.row - len(lane.pending) + 1
    next_ids = [*lane.pending[1:], *lane.draft[: result.accepted], sequence.pending[0]]
    drafter.follow(lane.start, hidden[first : first + count], next_ids)


def _common(one: Ids[int], other: Ids[int]) -> int:
    """How many ids the two begin with together."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _allows(fence: TokenFence, token: int) -> bool:
    mask = fence.allowed()
    return mask is None or bool(int(mask[token // 32]) >> (token % 32) & 1)
