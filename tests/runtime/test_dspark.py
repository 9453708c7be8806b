"""A block drafter's weights, its training, and that training and guessing compute the same thing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from zllm_ref.runtime.draft.dspark import training
from zllm_ref.runtime.draft.dspark.answers import LIKELY, Answer, AnswerRecorder, frequent_ids
from zllm_ref.runtime.draft.dspark.answers_file import read_answers, save_answers
from zllm_ref.runtime.draft.dspark.block import BlockContext, DsparkBlock
from zllm_ref.runtime.draft.dspark.factory import Dspark, load_dspark, seeded_dspark
from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.draft.dspark.training import DsparkTrainer, TrainingPlan, _fit, take_blocks
from zllm_ref.runtime.draft.dspark.weights import FORMAT, DsparkWeights, fresh_weights, read_weights
from zllm_ref.runtime.models.llama import Llama
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.models.scripted import Scripted
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.rope import build_rope
from zllm_ref.runtime.sampler import SamplingParameters
from zllm_ref.runtime.state import SessionState, StateDeclaration
from zllm_ref.runtime.weights import seeded_checkpoint
from zllm_ref.runtime.weights.checkpoint import CheckpointError

SHAPE = DsparkShape(
    width=128,
    feature_layers=(0, 2),
    num_drafted=64,
    context_width=64,
    heads=4,
    kv_heads=2,
    head_dim=32,
    intermediate=64,
    rank=32,
)
PLAN = TrainingPlan(num_steps=3, answers_per_step=2, blocks_per_answer=4, other_columns=16, warm_up_steps=1)


@pytest.fixture(scope="module")
def model() -> Llama:
    torch.set_num_threads(1)
    built = build_model(seeded_checkpoint("tiny-llama", torch.bfloat16), Numerics(torch.bfloat16))
    assert isinstance(built, Llama)
    return built


@pytest.fixture(scope="module")
def answers(model: Llama) -> list[Answer]:
    recorder = AnswerRecorder(model, 512, frozenset({3}), SHAPE.feature_layers)
    prompts = [list(range(first, first + 9)) for first in (10, 60, 110)]
    return recorder.record(prompts, [SamplingParameters(temperature=0.5, seed=n) for n in range(3)], 14, num_lanes=2)


def weights_of(seed: int = 0) -> DsparkWeights:
    return fresh_weights(SHAPE, range(SHAPE.num_drafted), seed, target="a target")


def trained(model: Llama, answers: list[Answer]) -> DsparkWeights:
    trainer = DsparkTrainer(weights_of(), model.embedding, model.head, PLAN)
    trainer.train(answers, lambda step, loss, right: None)
    trainer.calibrate(answers)
    return trainer.result()


def test_answers_are_recorded_as_they_would_be_alone(model: Llama, answers: list[Answer]) -> None:
    recorder = AnswerRecorder(model, 512, frozenset({3}), SHAPE.feature_layers)

    (alone,) = recorder.record([list(range(60, 69))], [SamplingParameters(temperature=0.5, seed=1)], 14)

    assert torch.equal(alone.ids, answers[1].ids)
    assert torch.equal(alone.features, answers[1].features)
    assert torch.equal(alone.likely_shares, answers[1].likely_shares)
    assert alone.features.shape == (len(alone.ids) - 1, 2 * 128)
    assert alone.likely_ids.shape == (len(alone.ids) - 9 - 1, LIKELY)


def test_answers_come_back_from_a_file_and_from_their_own_recording_only(answers: list[Answer], tmp_path: Path) -> None:
    save_answers(tmp_path / "answers", answers, "this model")

    back = read_answers(tmp_path / "answers", "this model")

    for one, other in zip(back, answers, strict=True):
        assert one.prompt_length == other.prompt_length
        assert all(
            torch.equal(getattr(one, name), getattr(other, name)) for name in ("ids", "features", "likely_ids", "likely_shares")
        )
    with pytest.raises(CheckpointError, match="another model"):
        read_answers(tmp_path / "answers", "another model")


def test_blocks_are_labelled_with_what_came_and_what_was_likely(answers: list[Answer]) -> None:
    blocks = take_blocks(SHAPE, answers, 4, random.Random(0))

    assert blocks.ids.shape == (12, SHAPE.block + 1)
    for number, (start, ids) in enumerate(zip(blocks.starts.tolist(), blocks.ids.tolist(), strict=True)):
        answer = answers[number // 4]
        came = answer.ids[start : start + SHAPE.block + 1].tolist()
        assert ids == came + [-1] * (SHAPE.block + 1 - len(came))
        # row j of the likely ids is what was likely behind the id at prompt_length + j
        assert torch.equal(blocks.likely_ids[number, 0], answer.likely_ids[start - answer.prompt_length])


def test_the_same_training_gives_the_same_bits(model: Llama, answers: list[Answer], tmp_path: Path) -> None:
    for name in ("one", "two"):
        trained(model, answers).save(tmp_path / name)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert not torch.equal(load_file(tmp_path / "one")["context.fuse"], weights_of().tensors["context.fuse"].bfloat16())


def test_answers_that_teach_nothing_are_refused(model: Llama) -> None:
    recorder = AnswerRecorder(model, 512, frozenset({3}), SHAPE.feature_layers)
    short = recorder.record([[1, 2, 4]], [SamplingParameters()], 1)

    with pytest.raises(ValueError, match="got 1 answers of one token"):
        trained(model, short)
    with pytest.raises(ValueError, match="got 1 answers of one token"):
        DsparkTrainer(weights_of(), model.embedding, model.head, PLAN).calibrate(short)


def test_training_and_guessing_compute_the_same_chances(
    model: Llama, answers: list[Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafter's guesses, given to the trainer as what came: each is its best one, with the same chance.

    Both in float32: in bfloat16 a near tie is a whole step of a logit wide, and which side wins depends on the kernel.
    """
    weights = trained(model, answers)
    weights.save(tmp_path / "weights")
    stored = replace(weights, tensors={name: tensor.float() for name, tensor in load_file(tmp_path / "weights").items()})
    exact = build_model(seeded_checkpoint("tiny-llama", torch.float32), Numerics(torch.float32))
    assert isinstance(exact, Llama)
    monkeypatch.setattr(training, "_COMPUTED_IN", torch.float32)
    trainer = DsparkTrainer(stored, exact.embedding, exact.head, PLAN)
    factory = load_dspark(tmp_path / "weights", exact, 512)
    declaration = StateDeclaration([*exact.state.tensors, *factory.state_tensors])
    blocks = take_blocks(SHAPE, answers[:1], 6, random.Random(5))

    guesses, chances = [], []
    for start in blocks.starts.tolist():
        drafter = factory.begin(SessionState(declaration, 64, model.device), [])
        with torch.inference_mode():
            drafter.follow(0, answers[0].features[:start].float(), answers[0].ids[1 : start + 1].tolist())
            guesses.append(drafter.propose(5))
        chances.append(drafter.chances())
    came = torch.cat((blocks.ids[:, :1], torch.tensor(guesses)), 1)
    with torch.no_grad():
        logs, evidence, right, _ = trainer._guesses(replace(blocks, ids=came), None)
        learnt = factory.heads.chances(evidence.flatten(), torch.arange(5).repeat(6)).view(6, 5)

    best, said = logs.max(-1).values, logs.gather(-1, torch.tensor(guesses)[..., None])[..., 0]  # id = place: 64 of 64
    assert bool((said >= best - 1e-3).all())  # other shapes, other last bits
    assert float(right.mean()) > 0.9
    assert torch.allclose(learnt, torch.tensor(chances), atol=1e-3)
    assert len({tuple(row) for row in guesses}) > 1


def loud(weights: DsparkWeights) -> DsparkWeights:
    """No matrix is nothing: what training begins with has layers and a Markov head that add nothing yet."""
    generator = torch.Generator().manual_seed(3)
    drawn = {
        name: torch.randn(tensor.shape, generator=generator) / tensor.shape[-1] ** 0.5
        for name, tensor in weights.tensors.items()
        if name.endswith((".out", ".down", "markov.up"))
    }
    return replace(weights, tensors={**weights.tensors, **drawn})


def test_a_row_hears_its_whole_block_the_rows_it_sees_and_the_row_before_it_and_nothing_else() -> None:
    """By gradients: what a row does not depend on has a gradient of exactly zero."""
    numerics, blocks = Numerics(torch.float32), 2
    tensors = loud(weights_of()).cast(torch.float32, torch.device("cpu"))
    tensors["block.masks"].requires_grad_()
    rope = build_rope(SHAPE.head_dim, SHAPE.rope_theta, 64, torch.float32, torch.device("cpu"))
    block = DsparkBlock(SHAPE, tensors, numerics, rope)
    embedded, newest, keys_values = (
        torch.randn(size, generator=torch.Generator().manual_seed(size[0])).requires_grad_()
        for size in ((blocks, 128), (blocks, 64), (SHAPE.layers, 7, 2, SHAPE.kv_heads, SHAPE.head_dim))
    )
    visible = torch.tensor([[False, True, True, False, False, False, False], [False, False, True, True, True, True, False]])

    rows = block.rows(embedded, newest, torch.tensor([3, 6]), [BlockContext(keys_values, visible)])

    for place in range(SHAPE.block):
        wanted = (embedded, newest, tensors["block.masks"], keys_values)
        heard = torch.autograd.grad(rows[place].square().sum(), wanted, retain_graph=True)
        by_block, by_newest, by_mask, by_row = (
            part.transpose(0, axis).flatten(1).ne(0).any(1).tolist() for part, axis in zip(heard, (0, 0, 0, 1), strict=True)
        )
        assert by_block == [True, False]
        assert by_newest == [True, False]
        assert by_mask == [True] * (SHAPE.block - 1)
        assert by_row == visible[0].tolist()


def test_a_guess_follows_from_the_guess_before_it(model: Llama) -> None:
    factory = Dspark(loud(weights_of()), model, 512)
    heads, rows = factory.heads, torch.randn((SHAPE.block, 128), generator=torch.Generator().manual_seed(1)).bfloat16()
    drafter = factory.begin(SessionState(StateDeclaration(factory.state_tensors), 64, model.device), [])

    with torch.inference_mode():
        guesses = drafter._read(rows, torch.tensor([5]))
        logits = heads.base(rows) + heads.correction(heads.link(heads.embedded(torch.tensor([5, *guesses[:-1]])), rows))
        alone = heads.base(rows) + heads.correction(heads.link(heads.embedded(torch.tensor([5] * SHAPE.block)), rows))

    assert guesses == logits.argmax(-1).tolist()  # an id is its own place here
    assert guesses != alone.argmax(-1).tolist(), "these rows can tell the difference"


def test_frequent_ids_come_first_and_small_ones_fill_up(answers: list[Answer]) -> None:
    answer = replace(answers[0], ids=torch.tensor([0] * 9 + [400, 300, 400, 300, 400, 5]), prompt_length=9)

    assert frequent_ids([answer], 2, 512) == [300, 400]
    assert frequent_ids([answer], 6, 512) == [0, 1, 2, 5, 300, 400]
    assert frequent_ids([answer], 1000, 8) != []


def test_the_fit_finds_the_scale_and_shift_that_made_the_outcomes() -> None:
    generator = torch.Generator().manual_seed(0)
    evidence = torch.randn(20_000, generator=generator, dtype=torch.float64) * 2
    right = (torch.rand(20_000, generator=generator, dtype=torch.float64) < torch.sigmoid(0.5 * evidence + 1)).double()

    scale, shift = _fit(evidence, right)

    assert scale == pytest.approx(0.5, abs=0.04)
    assert shift == pytest.approx(1.0, abs=0.06)


def test_weights_come_back_from_their_file(tmp_path: Path) -> None:
    weights = weights_of()
    weights.save(tmp_path / "weights")

    back = read_weights(tmp_path / "weights")

    assert (back.shape, back.target) == (SHAPE, "a target")
    assert torch.equal(back.tensors["context.fuse"], weights.tensors["context.fuse"].bfloat16())
    assert back.tensors["confidence.scale"].dtype == torch.float32


def spoilt(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, str]], None]) -> Path:
    """The file of good weights with one fault."""
    weights_of().save(path)
    tensors = load_file(path)
    metadata = {FORMAT: f'{{"shape": {json.dumps(SHAPE.to_json())}, "target": "a target"}}'}
    change(tensors, metadata)
    save_file(tensors, path, metadata)
    return path


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda t, m: t.pop("block.norm"), "block.norm"),
        (lambda t, m: t.update({"block.norm": torch.ones(3, dtype=torch.bfloat16)}), "block.norm"),
        (lambda t, m: t.update({"block.norm": torch.ones(128)}), "block.norm"),
        (lambda t, m: t.update({"more": torch.ones(3)}), "more"),
        (lambda t, m: m.clear(), "metadata"),
        (lambda t, m: m.update({FORMAT: '{"shape": "[]", "target": ""}'}), "shape"),
        (lambda t, m: m.update({FORMAT: m[FORMAT].replace('block\\": 5', 'block\\": 99')}), "2 to 16 guesses"),
        (lambda t, m: m.update({FORMAT: m[FORMAT].replace("[0, 2]", "[2, 0]")}), "feature_layers"),
        (lambda t, m: m.update({FORMAT: m[FORMAT].replace('heads\\": 4', 'heads\\": -4')}), "heads"),
    ],
)
def test_a_file_with_a_fault_is_refused_in_plain_words(
    fault: Callable[[dict[str, torch.Tensor], dict[str, str]], None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_weights(spoilt(tmp_path / "weights", fault))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"\xff" * 100)

    for path in (tmp_path / "weights", tmp_path / "absent"):
        with pytest.raises(CheckpointError):
            read_weights(path)


def test_weights_for_another_target_are_refused(model: Llama) -> None:
    wide = DsparkShape(width=256, feature_layers=(0,), num_drafted=8)
    deep = replace(SHAPE, feature_layers=(0, 3))

    with pytest.raises(ValueError, match="width 256, allowed 128"):
        Dspark(fresh_weights(wide, range(8), 0), model, 512)
    with pytest.raises(ValueError, match="feature layer 3"):
        Dspark(fresh_weights(deep, range(64), 0), model, 512)
    with pytest.raises(ValueError, match="an id 63"):
        Dspark(weights_of(), model, 60)
    with pytest.raises(ValueError, match="shares its embedding"):
        Dspark(weights_of(), Scripted(512, 128, torch.device("cpu")), 512)


def test_the_cache_costs_what_its_declaration_says(model: Llama) -> None:
    factory = seeded_dspark(model)
    (tensor,) = factory.state_tensors

    assert (tensor.grows, tensor.advisory, tensor.tokens_per_row) == (True, True, 1)
    assert tensor.row_bytes == 2 * 2 * 2 * 32 * 2  # layers, keys and values, heads, width, bytes
    assert factory.session_bytes(1000) == 0
    assert StateDeclaration([*model.state.tensors, tensor]).cuttable
