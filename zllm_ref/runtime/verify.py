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
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from zllm_ref.runtime.decode import Fail, accept, choose, may_take_the_largest, raise_it, takes_the_largest
from zllm_ref.runtime.draft.drafter import Drafter
from zllm_ref.runtime.draft.planner import DraftPlanner, Outlook, Proposal
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
    """A sequence, who guesses for it (None: nobody), and how its guesses did so far."""

    sequence: Sequence
    drafter: Drafter | None = None
    outlook: Outlook | None = None


@dataclass(frozen=True)
class Verified:
    """What a round gave one sequence."""

    guesses: tuple[int, ...]
    """The guesses that were fed."""
    right: int
    """So many of them were what the sequence said."""
    accepted: int
    """So many of them are in its state now: the right ones, but for the one with which the sequence ended."""

    @property
    def proposed(self) -> int:
        return len(self.guesses)


@dataclass(frozen=True)
class _Draft:
    """The guesses for one lane that its fence lets through, and the chance of each."""

    ids: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _Fed:
    """One lane of the round before its logits are looked at."""

    drafted: DraftedSequence
    proposed: list[int]
    draft: list[int]
    start: int
    pending: list[int]
    num_produced: int
    row: int
    mark: StateMark | None


def verify_round(
    model: Model,
    lanes: Ids[DraftedSequence],
    num_token_ids: int,
    tell: Tell,
    planner: DraftPlanner | None = None,
    feature_layers: tuple[int, ...] = (),
    fail: Fail = raise_it,
) -> list[Verified]:
    """One round. Every sequence gains a token at least; `tell` hears of them position by position, and may end a sequence.

    A sequence that `fail` ends is worth nothing any more: its state is left as it is, its drafter hears nothing.

    Without a `planner` all that is proposed is verified. `feature_layers`: whose rows the drafters follow (none: the last).
    """
    fed = _feed(lanes, num_token_ids, planner, fail)
    started = planner.clock() if planner is not None else 0.0
    states = [(lane.drafted.sequence.state, lane.pending + lane.draft) for lane in fed]
    step = build_step(states, model.numerics, model.device, feature_layers)
    hidden = model.forward(step)
    commit_step(step)
    places = [row for lane in fed for row in range(lane.row, lane.row + len(lane.draft) + 1)]
    needed = hidden[: step.num_rows] if len(places) == step.num_rows else hidden[torch.tensor(places, device=hidden.device)]
    logits = model.logits(needed)[:, :num_token_ids]
    best = logits.argmax(-1).tolist() if any(may_take_the_largest(lane.sequence) for lane in lanes) else []
    if planner is not None:
        _wait_for(model.device)
        planner.cost.observe(step.num_rows, planner.clock() - started)
    walked, first = list[tuple[_Fed, Verified | None]](), 0
    for lane in fed:
        end = first + len(lane.draft) + 1
        walked.append((lane, _walked(lane, logits[first:end], best[first:end], tell, fail)))
        first = end
    whole = [(lane, result) for lane, result in walked if result is not None]
    _forget(model, whole)
    followed = hidden if step.features is None else step.features.side_by_side()
    for lane, result in whole:
        _teach(lane, result, followed, planner)
    return [Verified((), 0, 0) if result is None else result for _, result in walked]


def fenced(fence: TokenFence | None, draft: Ids[int], limit: int) -> tuple[list[int], list[bool]]:
    """The draft as far as the fence lets it go, with every id that the fence forces put in; and which of them those are."""
    if fence is None or not draft:
        return list(draft[:limit]), [False] * min(limit, len(draft))
    probe = fence.clone()
    walked: list[int] = []
    is_forced: list[bool] = []
    while len(walked) < min(len(draft), limit) and _allows(probe, draft[len(walked)]):
        token = draft[len(walked)]
        probe.advance(token)
        walked.append(token)
        is_forced.append(False)
        forced = list(probe.forced())
        for token in forced:
            probe.advance(token)
        place = len(walked)
        walked += forced
        is_forced += [True] * len(forced)
        if list(draft[place : place + len(forced)]) != forced:
            break  # the guess goes another way than the fence must
    return walked[:limit], is_forced[:limit]


def _feed(lanes: Ids[DraftedSequence], num_token_ids: int, planner: DraftPlanner | None, fail: Fail) -> list[_Fed]:
    drafts = [_guessed(lane, num_token_ids, planner, fail) for lane in lanes]
    lengths = [len(draft.ids) for draft in drafts]
    if planner is not None and any(lengths):
        lengths = planner.cut([_proposal(lane, draft) for lane, draft in zip(lanes, drafts, strict=True)])
    fed, row = [], 0
    for lane, draft, length in zip(lanes, drafts, lengths, strict=True):
        state = lane.sequence.state
        mark = None if state.declaration.cuttable or not length else state.mark()
        pending = list(lane.sequence.pending)
        produced = len(lane.sequence.produced)
        fed.append(_Fed(lane, draft.ids, draft.ids[:length], state.length, pending, produced, row + len(pending) - 1, mark))
        row += len(pending) + length
    return fed


def _guessed(lane: DraftedSequence, num_token_ids: int, planner: DraftPlanner | None, fail: Fail) -> _Draft:
    try:
        return _guess(lane, num_token_ids, planner)
    except Exception as error:  # noqa: BLE001  as in a plain round: what is wrong with one lane is no matter of the others
        fail(lane.sequence, error)
        return _Draft()


def _guess(lane: DraftedSequence, num_token_ids: int, planner: DraftPlanner | None) -> _Draft:
    """What the lane's drafter says, as far as it can be true."""
    sequence, drafter = lane.sequence, lane.drafter
    # The last token of an answer needs no row, so a guess more than that could never be looked at.
    room = sequence.job.max_new_tokens - len(sequence.produced) - 1
    if drafter is None or sequence.script is not None or room < 1:
        return _Draft()
    forced = sequence.pending[1:]  # those are in no row yet, so the drafter does not know them
    limit, started = room, 0.0
    if planner is not None and lane.outlook is not None:
        limit = planner.ask(lane.outlook, room, len(sequence.pending))
        if limit == 0:
            return _Draft()
        started = planner.clock()
    said = drafter.propose(limit + len(forced))
    if planner is not None and said:
        planner.observe_proposal(len(said), planner.clock() - started)
    if said[: len(forced)] != forced:
        return _Draft()
    stop_ids = sequence.job.stop_ids
    likely = said[len(forced) :]
    # Ids that do not exist are no guesses; nothing follows a stop id, and it needs no row itself.
    end = next((place for place, token in enumerate(likely) if token in stop_ids or not 0 <= token < num_token_ids), len(likely))
    ids, is_forced = fenced(sequence.fence, likely[:end], limit)
    end = next((place for place, token in enumerate(ids) if token in stop_ids), len(ids))
    chances = list(drafter.chances()[len(forced) :]) if planner is not None else []
    if not chances and lane.outlook is not None:
        chances = lane.outlook.record.chances()
    chances += [0.0] * (end - len(chances))
    return _Draft(ids[:end], [1.0 if sure else chance for sure, chance in zip(is_forced[:end], chances, strict=False)])


def _proposal(lane: DraftedSequence, draft: _Draft) -> Proposal:
    is_probe = lane.outlook is not None and lane.outlook.is_probe
    cuttable = lane.sequence.state.declaration.cuttable
    return Proposal(len(lane.sequence.pending), draft.chances, is_probe, cuttable)


def _walked(lane: _Fed, logits: Tensor, best: list[int], tell: Tell, fail: Fail) -> Verified | None:
    """None: the sequence failed, here or when its guesses were looked at."""
    sequence = lane.drafted.sequence
    if sequence.ended is not None:
        return None
    try:
        return _walk(lane, logits, best, tell)
    except Exception as error:  # noqa: BLE001  as in a plain round
        fail(sequence, error)
        return None


def _walk(lane: _Fed, logits: Tensor, best: list[int], tell: Tell) -> Verified:
    """Samples position by position as long as the guesses are what is sampled.

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
        if matched:
            tokens[0] = replace(tokens[0], drafted=True)
        tell(sequence, tokens)
        right = accepted + matched
        if sequence.ended is not None:
            break  # the newest ids stay pending, as they would without drafts
        accepted = right
        sequence.pending = new[matched:]
        if sequence.pending:
            break
    return Verified(tuple(lane.draft), right, accepted)


def _forget(model: Model, walked: list[tuple[_Fed, Verified]]) -> None:
    """Takes the rows of rejected guesses out of the states."""
    again = []
    for lane, result in walked:
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


def _teach(lane: _Fed, result: Verified, followed: Tensor, planner: DraftPlanner | None) -> None:
    """Tells the drafter what became true; at the end of an answer too, since its state may be kept."""
    sequence, drafter, outlook = lane.drafted.sequence, lane.drafted.drafter, lane.drafted.outlook
    if drafter is None or not sequence.pending:
        return
    if planner is not None and outlook is not None:
        said = sequence.produced[lane.num_produced :]
        right = _common(said, lane.proposed)
        compared = min(len(said), len(lane.proposed))
        planner.judge(outlook, len(lane.proposed), compared, right, len(lane.draft))
    drafter.judge(result.proposed, result.right)
    count = len(lane.pending) + result.accepted
    first = lane.row - len(lane.pending) + 1
    next_ids = [*lane.pending[1:], *lane.draft[: result.accepted], sequence.pending[0]]
    drafter.follow(lane.start, followed[first : first + count], next_ids)


def _wait_for(device: torch.device) -> None:
    """Returns when the device has done what it was told, so that a clock can be read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _common(one: Ids[int], other: Ids[int]) -> int:
    """How many ids the two begin with together."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _allows(fence: TokenFence, token: int) -> bool:
    mask = fence.allowed()
    return mask is None or bool(int(mask[token // 32]) >> (token % 32) & 1)
