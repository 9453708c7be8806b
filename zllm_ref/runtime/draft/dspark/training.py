"""Training of a drafter: it learns to say what its target said, from rows that the target computed anyway.

    answer        p p p p | a0 a1 a2 a3 a4 a5 a6 a7 …
    a block at a1           ·  ↑  ?  ?  ?  ?  ?              context: rows before a1 · labels: a2 … a6

Each step takes some answers and some places in each. The loss of a guess joins the log loss of the id that came and the
cross entropy with what the target found likely; later guesses count less, since those before them must be right first.
The Markov head sees the id that really came before, not its own guess. The confidence head learns beside it, without a pull
on the rest, whether the best guess is the id that came; its scale and shift are fitted afterwards, on answers kept apart.

Matrices are stepped along their orthogonalised momentum (Muon), all else by AdamW: on the few minutes that there are, that
learns about twice as fast.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from zllm_ref.runtime.draft.dspark.answers import Answer
from zllm_ref.runtime.draft.dspark.block import BlockContext, DsparkBlock
from zllm_ref.runtime.draft.dspark.heads import DsparkHeads
from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.draft.dspark.weights import DsparkWeights
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.rope import RopeTable, build_rope

_COMPUTED_IN = torch.bfloat16


@dataclass(frozen=True)
class TrainingPlan:
    """How long and how fast."""

    num_steps: int = 1500
    answers_per_step: int = 16
    blocks_per_answer: int = 16
    matrix_rate: float = 0.02
    other_rate: float = 0.002
    warm_up_steps: int = 20
    other_columns: int = 512
    """Unlikely ids in the loss of each step, drawn anew: a sample of the many, which costs a fraction of all."""
    dropped: float = 0.1
    """Share of the features, and of what a layer adds, that a training step does not see: there are more weights than ids to
    learn from, and without this they learn the answers by heart."""
    likely_weight: float = 0.5
    """Of the cross entropy with what the target found likely; the rest is the log loss of the id that came."""
    matrix_decay: float = 0.1
    place_weight: float = 0.75
    """Of each place, relative to the one before."""
    seed: int = 0


@dataclass(frozen=True)
class Blocks:
    """Blocks of one step, and what came: B blocks of the answers of this step, one answer after the other."""

    features: Tensor
    """[rows of all answers, layers × width]."""
    positions: Tensor
    """[rows]."""
    spans: tuple[tuple[int, int, int], ...]
    """For each answer: its first row, the row behind its last, and its blocks."""
    starts: Tensor
    """[B]: the position of each block's newest id."""
    ids: Tensor
    """[B, block + 1]: the newest id and those that followed; -1 behind the answer's end."""
    likely_ids: Tensor
    """[B, block, LIKELY]."""
    likely_shares: Tensor


class DsparkTrainer:
    """Trains one drafter for a target's embedding and head."""

    def __init__(self, weights: DsparkWeights, embedding: Tensor, head: Tensor, plan: TrainingPlan, num_threads: int = 1) -> None:
        self._weights = weights
        self._plan = plan
        self._numerics = Numerics(_COMPUTED_IN, num_threads, invariant=False)
        self._embedding, self._head = embedding.to(_COMPUTED_IN), head.to(_COMPUTED_IN)
        self._tensors = {
            name: tensor if name == "drafted_ids" else tensor.float().clone().requires_grad_()
            for name, tensor in weights.tensors.items()
        }
        self._place_of = torch.full((head.shape[0],), -1, dtype=torch.int64)
        self._place_of[weights.tensors["drafted_ids"].long()] = torch.arange(weights.shape.num_drafted)
        self._rope: RopeTable | None = None
        self._generator = torch.Generator().manual_seed(plan.seed)

    def train(self, answers: Sequence[Answer], report: Callable[[int, float, list[float]], None]) -> None:
        """All steps. `report` hears the step's number, its loss, and the share of right guesses at each place.

        Raises ValueError where no answer has a token behind its first one.
        """
        plan = self._plan
        usable = _usable(answers)
        draw = random.Random(plan.seed)
        matrices, others = self._groups()
        momenta = [torch.zeros_like(matrix) for matrix in matrices]
        adam = torch.optim.AdamW(others, lr=plan.other_rate, betas=(0.9, 0.98), weight_decay=0.0)
        order: list[int] = []
        for number in range(plan.num_steps):
            if len(order) < plan.answers_per_step:
                order += draw.sample(range(len(usable)), len(usable))
            chosen, order = order[: plan.answers_per_step], order[plan.answers_per_step :]
            blocks = take_blocks(self._weights.shape, [usable[index] for index in chosen], plan.blocks_per_answer, draw)
            loss, right = self._loss(blocks)
            loss.backward()  # type: ignore[no-untyped-call]
            rate = min(1.0, (number + 1) / plan.warm_up_steps) * max(0.02, 1 - number / plan.num_steps)
            with torch.no_grad():
                for matrix, momentum in zip(matrices, momenta, strict=True):
                    _step_matrix(matrix, momentum, rate * plan.matrix_rate, plan.matrix_decay)
            adam.param_groups[0]["lr"] = rate * plan.other_rate
            adam.step()
            adam.zero_grad()
            report(number + 1, float(loss.detach()), right)

    def calibrate(self, answers: Sequence[Answer]) -> None:
        """Fits the scale and shift of each place, on answers that training has not seen.

        Raises ValueError where no answer has a token behind its first one.
        """
        draw = random.Random(self._plan.seed + 1)
        usable = _usable(answers)
        gathered: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for first in range(0, len(usable), self._plan.answers_per_step):
                blocks = take_blocks(
                    self._weights.shape, usable[first : first + self._plan.answers_per_step], self._plan.blocks_per_answer, draw
                )
                _, evidence, right, valid = self._guesses(blocks, None)
                # a guess behind a wrong one is never tried, so it says nothing
                tried = valid & torch.cat((torch.ones_like(right[:, :1]), right[:, :-1].cumprod(1)), 1).bool()
                gathered.append((evidence.masked_fill(~tried, torch.nan), right))
        for place in range(self._weights.shape.block):
            evidence = torch.cat([piece[:, place] for piece, _ in gathered])
            right = torch.cat([piece[:, place] for _, piece in gathered])
            is_tried = ~evidence.isnan()
            scale, shift = _fit(evidence[is_tried].double(), right[is_tried].double())
            with torch.no_grad():
                self._tensors["confidence.scale"][place] = scale
                self._tensors["confidence.shift"][place] = shift

    def result(self) -> DsparkWeights:
        return replace(self._weights, tensors={name: tensor.detach() for name, tensor in self._tensors.items()})

    def _groups(self) -> tuple[list[Tensor], list[Tensor]]:
        """Matrices between layers, and all else that learns here."""
        matrices: list[Tensor] = []
        others: list[Tensor] = []
        for name, tensor in self._tensors.items():
            if name.startswith("confidence.s") or name == "drafted_ids":
                continue
            is_matrix = tensor.dim() == 2 and name not in ("block.masks", "confidence.weight")
            (matrices if is_matrix else others).append(tensor)
        return matrices, others

    def _drop(self, rows: Tensor) -> Tensor:
        kept = 1 - self._plan.dropped
        mask = torch.empty_like(rows).bernoulli_(kept, generator=self._generator)
        return rows * mask / kept

    def _parts(self, learns: bool) -> tuple[DsparkBlock, DsparkHeads]:
        """The drafter as it is now, in the dtype in which it computes; gradients flow through."""
        shape = self._weights.shape
        if self._rope is None:
            self._rope = build_rope(shape.head_dim, shape.rope_theta, 8192, _COMPUTED_IN, torch.device("cpu"))
        cast = {
            name: tensor.long()
            if name == "drafted_ids"
            else tensor
            if name.startswith("confidence.")
            else tensor.to(_COMPUTED_IN)
            for name, tensor in self._tensors.items()
        }
        return (
            DsparkBlock(shape, cast, self._numerics, self._rope, self._drop)
            if learns
            else DsparkBlock(shape, cast, self._numerics, self._rope),
            DsparkHeads(shape, cast, self._numerics, self._embedding, self._head),
        )

    def _columns(self, blocks: Blocks) -> Tensor:
        """Ids among which a training step decides: those that came or were likely, and some that were not."""
        wanted = self._place_of[torch.cat((blocks.ids.clamp_min(0).flatten(), blocks.likely_ids.flatten()))]
        others = torch.randint(0, self._weights.shape.num_drafted, (self._plan.other_columns,), generator=self._generator)
        columns: Tensor = torch.unique(torch.cat((wanted[wanted >= 0], others)))
        return columns

    def _guesses(self, blocks: Blocks, columns: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`columns`: of a training step, None otherwise.

        → log probabilities [B, block, drafted or columns] · evidence, right (0 or 1), valid [B, block].
        """
        shape = self._weights.shape
        block, heads = self._parts(learns=columns is not None)
        context = block.context(blocks.features.to(_COMPUTED_IN))
        keys_values = block.context_keys_values(context, blocks.positions)
        contexts, newest, first = [], [], 0
        pieces = torch.split(keys_values, [end - begin for begin, end, _ in blocks.spans], 1)
        for (begin, end, count), piece in zip(blocks.spans, pieces, strict=True):
            starts = blocks.starts[first : first + count, None]
            positions = blocks.positions[None, begin:end]
            visible = (positions < starts) & (positions >= starts - shape.window)
            contexts.append(BlockContext(piece, visible))
            newest.append(begin + starts[:, 0] - 1)
            first += count
        known = blocks.ids.clamp_min(0)
        rows = block.rows(heads.embedded(known[:, 0]), context[torch.cat(newest)], blocks.starts, contexts)
        links = heads.link(heads.embedded(known[:, :-1].flatten()), rows)
        log_probabilities = F.log_softmax(heads.logits(rows, links, columns), -1)
        best, guess = log_probabilities.detach().max(-1)
        evidence = heads.evidence(rows.detach(), links.detach(), best)
        valid = blocks.ids[:, 1:] >= 0
        place = guess if columns is None else columns[guess]
        right = (place.view(valid.shape) == self._place_of[known[:, 1:]]).float()
        return log_probabilities.view(*valid.shape, -1), evidence.view(valid.shape), right, valid

    def _loss(self, blocks: Blocks) -> tuple[Tensor, list[float]]:
        columns = self._columns(blocks)
        logs, evidence, right, valid = self._guesses(blocks, columns)
        column_of = torch.full((self._weights.shape.num_drafted + 1,), -1)  # the last one: ids that are never guessed
        column_of[columns] = torch.arange(len(columns))
        labels = column_of[self._place_of[blocks.ids[:, 1:].clamp_min(0)]]
        came = -logs.gather(-1, labels.clamp_min(0)[..., None])[..., 0] * (labels >= 0)
        likely = column_of[self._place_of[blocks.likely_ids]]
        shares = blocks.likely_shares * (likely >= 0)
        likely_loss = -(shares * logs.gather(-1, likely.clamp_min(0))).sum(-1)
        weights = self._plan.place_weight ** torch.arange(valid.shape[1]) * valid
        confidence = F.binary_cross_entropy_with_logits(evidence, right, reduction="none")
        share = self._plan.likely_weight
        loss = (((1 - share) * came + share * likely_loss + confidence) * weights).sum() / weights.sum()
        return loss, ((right * valid).sum(0) / valid.sum(0).clamp_min(1)).tolist()


def _usable(answers: Sequence[Answer]) -> list[Answer]:
    """Those in which there was something to guess: the first token comes from the prompt. Raises ValueError without any."""
    usable = [answer for answer in answers if len(answer.ids) - answer.prompt_length >= 2]
    if not usable:
        raise ValueError(f"training: got {len(answers)} answers of one token or none, allowed some of two and more")
    return usable


def take_blocks(shape: DsparkShape, answers: Sequence[Answer], blocks_per_answer: int, draw: random.Random) -> Blocks:
    """Blocks at random places of each answer, and what came there."""
    spans, starts, ids, likely_ids, likely_shares, row = [], [], [], [], [], 0
    for answer in answers:
        length = len(answer.ids)
        places = sorted(draw.randrange(answer.prompt_length, length - 1) for _ in range(blocks_per_answer))
        chosen = torch.tensor(places)
        spans.append((row, row + answer.features.shape[0], len(places)))
        row += answer.features.shape[0]
        starts.append(chosen)
        further = chosen[:, None] + torch.arange(shape.block + 1)
        padded = F.pad(answer.ids, (0, shape.block), value=-1)
        ids.append(padded[further])
        likely_rows = (further[:, :-1] - answer.prompt_length).clamp_max(answer.likely_ids.shape[0] - 1)
        likely_ids.append(answer.likely_ids[likely_rows])
        likely_shares.append(answer.likely_shares[likely_rows])
    return Blocks(
        torch.cat([answer.features for answer in answers]),
        torch.cat([torch.arange(answer.features.shape[0]) for answer in answers]),
        tuple(spans),
        torch.cat(starts),
        torch.cat(ids),
        torch.cat(likely_ids),
        torch.cat(likely_shares),
    )


def _step_matrix(matrix: Tensor, momentum: Tensor, rate: float, decay: float) -> None:
    """One step along the orthogonalised momentum, with decay."""
    assert matrix.grad is not None
    momentum.mul_(0.95).add_(matrix.grad)
    direction = _orthogonal(matrix.grad + 0.95 * momentum)
    matrix.mul_(1 - decay * rate).add_(direction, alpha=-rate * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5)
    matrix.grad = None


def _orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix whose singular values are about 1, by four steps of an odd polynomial."""
    x = matrix.to(torch.bfloat16)
    x = x / (x.norm() + 1e-7)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(4):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    direction: Tensor = x.T if is_tall else x
    return direction.float()


def _fit(evidence: Tensor, right: Tensor, num_steps: int = 30) -> tuple[float, float]:
    """Scale and shift with which σ(scale · evidence + shift) explains `right` best: Newton's method, damped."""
    parameters = torch.tensor([1.0, 0.0], dtype=torch.float64)
    if not len(evidence):
        return 1.0, 0.0
    columns = torch.stack((evidence, torch.ones_like(evidence)), -1)
    for _ in range(num_steps):
        chance = torch.sigmoid(columns @ parameters)
        gradient = columns.T @ (chance - right)
        curvature = (columns * (chance * (1 - chance))[:, None]).T @ columns + 0.1 * torch.eye(2, dtype=torch.float64)
        parameters = parameters - torch.linalg.solve(curvature, gradient)
    return float(parameters[0].clamp(0.05, 20.0)), float(parameters[1])
