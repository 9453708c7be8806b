"""Decode: how each token of the answer came to be."""

from __future__ import annotations

from typing import Any, Protocol

from zllm_ref.inspector.record import ACCEPTED, FORCED
from zllm_ref.inspector.summary import milliseconds
from zllm_ref.inspector.view import Held, View
from zllm_ref.tokenizer.vocabulary import Vocabulary

MOST_TOKENS_A_PAGE = 5_000
TOKENS_A_PAGE = 1_000


class WalkedFence(Protocol):
    """The fence of a request, begun anew and walked along its answer."""

    @property
    def phase(self) -> Any: ...

    @property
    def excluded(self) -> tuple[int, ...]: ...

    def advance(self, token_id: int) -> None: ...


def walk(fence: WalkedFence | None, ids: list[int]) -> list[Held]:
    """What the fence said before each token. Ends early where a token was not the fence's (a script plays what it likes)."""
    held: list[Held] = []
    if fence is None:
        return held
    for token_id in ids:
        held.append(Held(str(fence.phase), fence.excluded))
        try:
            fence.advance(token_id)
        except ValueError:
            break
    return held


def decode(view: View, held: list[Held], drafter: str | None, start: int, end: int | None) -> dict[str, Any]:
    record, vocabulary, first = view.record, view.axis.vocabulary, view.axis.num_prompt
    total = view.axis.num_output
    start = min(max(0, start), total)
    end = max(start, min(start + TOKENS_A_PAGE if end is None else end, start + MOST_TOKENS_A_PAGE, total))
    steps = list(record.steps)  # once: while the request runs, a round takes the place of the steps that were its
    rounds = [step for step in steps if step.end > start and step.start < end]
    number_of = {}
    numbers = {id(step): number for number, step in enumerate(steps)}
    for step in rounds:
        for place in range(step.start, step.end):
            number_of[place] = step
    tokens = []
    for place in range(start, end):
        how = record.how[place]
        step_of = number_of.get(place)
        one = held[place] if place < len(held) else None
        chosen = record.alternatives.get(place)
        tokens.append(
            {
                "index": place,
                "position": first + place,
                **_spelled(vocabulary, view.output_ids[place]),
                "special": view.axis.is_marker(first + place),
                "how": "forced" if how & FORCED else "accepted" if how & ACCEPTED else "sampled",
                "round": numbers[id(step_of)] if step_of is not None else 0,
                "at_ms": milliseconds(step_of.at - record.received) if step_of is not None else None,
                "phase": one.phase if one is not None else None,
                "excluded": [_named(vocabulary, token_id) for token_id in one.excluded] if one is not None else [],
                "logprob": chosen[0] if chosen is not None else None,
                "top": [{**_spelled(vocabulary, other), "logprob": value} for other, value in chosen[1]]
                if chosen is not None
                else None,
            }
        )
    return {
        "total": total,
        "tokens": tokens,
        "rounds": [
            {
                "round": numbers[id(step)],
                "tokens": [first + step.start, first + step.end],
                "at_ms": milliseconds(step.at - record.received),
                "proposed": [
                    {**_named(vocabulary, guess), "accepted": place < step.num_accepted}
                    for place, guess in enumerate(step.proposed)
                ],
            }
            for step in rounds
        ],
        "fence": bool(held),
        "drafter": drafter,
        "alternatives": bool(record.alternatives),
    }


def _spelled(vocabulary: Vocabulary, token_id: int) -> dict[str, Any]:
    piece = vocabulary.token_bytes(token_id)
    try:
        text: str | None = piece.decode()
    except UnicodeDecodeError:
        text = None
    return {"id": token_id, "text": text, "bytes": piece.hex()}


def _named(vocabulary: Vocabulary, token_id: int) -> dict[str, Any]:
    spelled = _spelled(vocabulary, token_id)
    return {"id": token_id, "text": spelled["text"]}
