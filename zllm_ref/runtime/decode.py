"""One decode round: every running sequence feeds its pending ids and gets its next token.

All lanes go through the model in one step; logits are made for the last row of each lane only; the fence stands between
head and sampling on every lane. What a lane has of its own (fence, sampler, script) may break: that ends this lane alone.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ids

import torch
from torch import Tensor

from zllm_ref.runtime.model import Model
from zllm_ref.runtime.sampler import SampledToken, Sampler
from zllm_ref.runtime.sequence import ChoicePlan, GenerationJob, Sequence
from zllm_ref.runtime.state import SessionState
from zllm_ref.runtime.step import build_step, commit_step

Fail = Callable[[Sequence, Exception], None]
"""Ends a sequence of which something of its own raised."""


def raise_it(sequence: Sequence, error: Exception) -> None:
    """A `Fail` for those who have one sequence, or want to know."""
    raise error


def first_tokens(model: Model, job: GenerationJob, state: SessionState, hidden: Tensor, num_token_ids: int) -> list[Sequence]:
    """The sequences of a job whose prompt is in `state`, each with its first token(s). Further choices fork the state.

    `num_token_ids`: ids that exist; a model's output may be wider (padding), and what lies beyond is never sampled.
    """
    logits = model.logits(hidden)[:, :num_token_ids]
    sequences = []
    for choice, plan in enumerate(job.choices):
        own_state = state if choice == 0 else state.fork()
        sequence = _sequence(job, choice, plan, own_state)
        sequence.first = choose(sequence, logits[0])
        sequences.append(sequence)
    return sequences


def decode_round(model: Model, sequences: Ids[Sequence], num_token_ids: int, fail: Fail = raise_it) -> list[list[SampledToken]]:
    """The tokens that each sequence gained: one sampled, and those that its fence forced after it; none where it failed."""
    step = build_step([(sequence.state, sequence.pending) for sequence in sequences], model.numerics, model.device)
    hidden = model.forward(step)
    commit_step(step)
    if step.is_decode_round:
        last_rows = hidden[: step.num_rows]
    else:
        last = [lane.row + lane.num_rows - 1 for lane in step.lanes]
        last_rows = hidden[torch.tensor(last, device=hidden.device)]
    logits = model.logits(last_rows)[:, :num_token_ids]
    best = logits.argmax(-1).tolist() if all(may_take_the_largest(sequence) for sequence in sequences) else None
    return [_gain(sequence, logits, lane, best, fail) for lane, sequence in enumerate(sequences)]


def _gain(sequence: Sequence, logits: Tensor, lane: int, best: list[int] | None, fail: Fail) -> list[SampledToken]:
    try:
        if best is not None and takes_the_largest(sequence):
            return accept(sequence, SampledToken(best[lane]))
        return choose(sequence, logits[lane])
    except Exception as error:  # noqa: BLE001  what is wrong with one lane is no matter of the others
        fail(sequence, error)
        return []


def _sequence(job: GenerationJob, choice: int, plan: ChoicePlan, state: SessionState) -> Sequence:
    sampler = Sampler(plan.sampling, job.prompt_ids.tolist() if plan.sampling.repetition_penalty != 1.0 else ())
    return Sequence(job, choice, state, sampler, plan.fence, plan.script)


def takes_the_largest(sequence: Sequence) -> bool:
    """True where the largest raw logit is the token, so that a round of such lanes is one argmax."""
    return may_take_the_largest(sequence) and (sequence.fence is None or sequence.fence.allowed() is None)


def may_take_the_largest(sequence: Sequence) -> bool:
    """False where it never is the largest, at whatever place."""
    return sequence.script is None and sequence.sampler.parameters.is_plain_greedy


def choose(sequence: Sequence, row: Tensor) -> list[SampledToken]:
    """Samples from one row of logits, then takes what the fence leaves no choice about."""
    if sequence.script is not None:
        return _play(sequence)
    fence = sequence.fence
    mask = fence.allowed() if fence is not None else None
    return accept(sequence, sequence.sampler.sample(row, sequence.num_tokens, mask))


def accept(sequence: Sequence, token: SampledToken) -> list[SampledToken]:
    """`token` enters the sequence, and after it every token that the fence forces, up to the job's limit."""
    tokens = [token]
    sequence.pending = [token.token_id]
    sequence.produced.append(token.token_id)
    sequence.sampler.accept(token.token_id)
    fence = sequence.fence
    if fence is None:
        return tokens
    fence.advance(token.token_id)
    if token.token_id in sequence.job.stop_ids:
        return tokens
    room = sequence.job.max_new_tokens - len(sequence.produced)
    for token_id in list(fence.forced())[:room]:
        if token_id in sequence.job.stop_ids:
            break
        fence.advance(token_id)
        tokens.append(SampledToken(token_id, forced=True))
        sequence.pending.append(token_id)
        sequence.produced.append(token_id)
        sequence.sampler.accept(token_id)
    return tokens


def _play(sequence: Sequence) -> list[SampledToken]:
    """The script's next ids, as if they had been sampled."""
    assert sequence.script is not None
    room = sequence.job.max_new_tokens - len(sequence.produced)
    ids = list(sequence.script.next_ids(sequence.produced))[:room]
    sequence.pending = ids
    sequence.produced.extend(ids)
    top = sequence.sampler.parameters.top_logprobs
    if top is None:
        return [SampledToken(token_id) for token_id in ids]
    # what is dictated is certain, and there is no alternative to it
    return [SampledToken(token_id, 0.0, ((token_id, 0.0),) if top else ()) for token_id in ids]
