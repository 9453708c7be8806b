"""The peer `transformers`: its own eager `generate`, greedy, on the same dequantised weights. Runs as a child process.

Several streams are one batch, as `generate` does it. There is no server, so nothing of another client's can stall a stream.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

from zllm_ref.commands.bench_work import BenchWork, Figures, counted, decode_rate, median, prompt_ids, with_prefix_rate
from zllm_ref.runtime.weights import Checkpoint, open_checkpoint


class _Clock(StoppingCriteria):  # type: ignore[misc]  # the package has no types
    """Never stops; notes when each token was there."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.arrivals.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def main(order: Mapping[str, Any]) -> None:
    """Writes progress and figures as JSON lines."""
    torch.set_num_threads(order["threads"])
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[order["dtype"]]
    model = _build(open_checkpoint(Path(order["gguf_path"]), dtype), dtype)
    with torch.inference_mode():
        figures = _measure(model, BenchWork.from_json(order["work"]))
    print(json.dumps({"figures": figures}), flush=True)


def _measure(model: Any, work: BenchWork) -> Figures:
    figures: Figures = {}
    _generate(model, [prompt_ids(16, 1)], 4)  # the first call allocates and chooses kernels
    for name, measure in _MEASURES.items():
        if name in work.figures:
            figures |= measure(model, work)
    return with_prefix_rate(figures, work)


def _prefill(model: Any, work: BenchWork) -> Figures:
    rates: dict[str, float] = {}
    for length in work.prefill_lengths:
        seconds = [_first_token(model, prompt_ids(length, 100 + n)) for n in counted(f"transformers: prefill {length}", work)]
        rates[str(length)] = length / median(seconds)
    return {"prefill_tokens_per_second": rates}


def _decode(model: Any, work: BenchWork) -> Figures:
    alone = [
        decode_rate([_generate(model, [prompt_ids(work.decode_prompt_length, 200 + n)], work.decode_length)[1:]])
        for n in counted("transformers: decode, 1 stream", work)
    ]
    together = []
    for n in counted(f"transformers: decode, {work.num_streams} streams", work):
        prompts = [prompt_ids(work.decode_prompt_length, 300 + 10 * n + lane) for lane in range(work.num_streams)]
        together.append(decode_rate([_generate(model, prompts, work.decode_length)[1:]] * work.num_streams))
    return {
        "decode_tokens_per_second": median(alone),
        f"decode_tokens_per_second_{work.num_streams}_streams": median(together),
    }


def _first_tokens(model: Any, work: BenchWork) -> Figures:
    prefix, cold, resident = prompt_ids(work.prefix_length, 400), [], []
    cache = DynamicCache(config=model.config)
    for n in counted("transformers: first token", work):
        cold.append(_first_token(model, prompt_ids(work.prefix_length, 500 + n)))
        if n == 0:
            _generate(model, [prefix], 1, cache)
        if cache.get_seq_length() > work.prefix_length:
            cache.crop(work.prefix_length - cache.get_seq_length())  # negative: so many tokens less
        resident.append(_first_token(model, prefix + prompt_ids(work.suffix_length, 600 + n), cache))
    return {"ttft_cold_seconds": median(cold), "ttft_resident_seconds": median(resident)}


_MEASURES: dict[str, Callable[[Any, BenchWork], Figures]] = {
    "prefill": _prefill,
    "decode": _decode,
    "first-token": _first_tokens,
    "stall": lambda model, work: {"stall_seconds": None},
}


def _first_token(model: Any, ids: list[int], cache: Any = None) -> float:
    start, arrival = _generate(model, [ids], 1, cache)
    return arrival - start


def _generate(model: Any, prompts: list[list[int]], num_tokens: int, cache: Any = None) -> list[float]:
    """The time of the start, then of each token."""
    ids = torch.tensor(prompts)
    clock = _Clock()
    start = time.perf_counter()
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=num_tokens,
        do_sample=False,
        cache=cache,
        stopping_criteria=StoppingCriteriaList([clock]),
    )
    assert len(clock.arrivals) == num_tokens, f"got {len(clock.arrivals)} tokens, expected {num_tokens}"
    return [start, *clock.arrivals]


def _build(checkpoint: Checkpoint, dtype: torch.dtype) -> Any:
    settings = {key: value for key, value in checkpoint.config.items() if key not in ("model_type", "eos_token_id")}
    # Without an end token every stream runs to its full length.
    config = LlamaConfig(**settings, eos_token_id=None, pad_token_id=0)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    tensors = dict(checkpoint.tensors.items())
    if config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its table is computed, not loaded
    return model.to(dtype).eval()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
