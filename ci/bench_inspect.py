"""What recording costs: streamed answers of one model in one process, with and without a recorder, in turn.

    python ci/bench_inspect.py [--model NAME] [--rounds N] [--tokens N]

A round is four answers to the same prompt: without, with, with, without. So whatever grows or falls steadily over a round (heat,
a neighbour on the machine) weighs on both alike. Its ratio is the processor time of the two in the middle over that of the two
around them; the ratio of the last to the first, which are the same thing twice, says how far the machine lets two runs lie apart.
Processor time of the whole process for each token, because a shared machine makes wall-clock time say something about its
neighbours. Judged is the median over the rounds, whose 95 % interval (order statistics, no assumption about the noise) is printed
beside it, and the ratio of the fastest runs.

The same rounds of a scripted model, whose steps cost next to nothing, say what recording adds to a token in microseconds.
Exit 1: the median is above 1 %.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch

from zllm_ref.config import CacheSettings, EngineSettings, ModelSettings, ServerSettings
from zllm_ref.engine import Engine
from zllm_ref.inspector import Recorder
from zllm_ref.inspector.inspector import Inspector
from zllm_ref.server import Inspect, create_app

MOST_RATIO = 1.01
ORDER = (False, True, True, False)
"""Whether an answer of a round is recorded."""
_SCRIPTED_TOKENS = 2_000
_SCRIPTED_ROUNDS = 8
_HALF_OF_95 = 0.98
"""Half the width of the median's 95 % interval, in ranks, is this times √n."""


@dataclass(frozen=True)
class Round:
    """Processor seconds a token of the answers of a round, in their order."""

    spent: tuple[float, ...]

    def _mean(self, recorded: bool) -> float:
        return statistics.mean(spent for spent, records in zip(self.spent, ORDER, strict=True) if records is recorded)

    @property
    def ratio(self) -> float:
        return self._mean(True) / self._mean(False)

    @property
    def added(self) -> float:
        return self._mean(True) - self._mean(False)

    @property
    def control(self) -> float:
        return self.spent[-1] / self.spent[0]


def interval(values: list[float]) -> tuple[float, float]:
    """The median lies between these with 95 %."""
    ordered = sorted(values)
    half = _HALF_OF_95 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - half))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + half - 1))
    return ordered[low], ordered[high]


async def answer(app: Any, model: str, num_tokens: int) -> float:
    """Processor seconds for each token of one streamed answer."""
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    body = {"model": model, "messages": [{"role": "user", "content": "Tell a story."}], "stream": True, "temperature": 0}
    body |= {"max_tokens": num_tokens, "ignore_eos": True}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=600) as client:
        began = time.process_time()
        reply = await client.post("/v1/chat/completions", json=body)
        seconds = time.process_time() - began
    assert reply.status_code == 200, reply.text
    return seconds / num_tokens


def rounds_of(settings: EngineSettings, num_rounds: int, num_tokens: int) -> list[Round]:
    """The first round warms up and does not count."""
    engine = Engine(settings)
    engine.load()
    recorder = Recorder()
    apps = {
        True: create_app(engine, ServerSettings(), Inspect(recorder, Inspector(engine, recorder))),
        False: create_app(engine, ServerSettings()),
    }
    name = engine.models[0].id

    def measured(records: bool) -> float:
        engine.observer = recorder if records else None
        gc.collect()
        return asyncio.run(answer(apps[records], name, num_tokens))

    found = []
    try:
        for number in range(num_rounds + 1):
            one = Round(tuple(measured(records) for records in ORDER))
            if number:
                found.append(one)
                spent = "  ".join(f"{1000 * seconds:.4f}" for seconds in one.spent)
                print(f"{name} {number:3}: ms a token {spent}  ratio {one.ratio:.4f}  same twice {one.control:.4f}", flush=True)
    finally:
        engine.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="", help="as for serve; default: the default model")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    cache = CacheSettings(resident_bytes=1 << 30)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"answers": [{"segments": [{"text": "x" * _SCRIPTED_TOKENS}]}]}))
        scripted = EngineSettings(model=ModelSettings(model="scripted", threads=1), cache=cache, script=script)
        added = statistics.median(one.added for one in rounds_of(scripted, _SCRIPTED_ROUNDS, _SCRIPTED_TOKENS))
    served = EngineSettings(model=ModelSettings(model=args.model, threads=1), cache=cache)
    rounds = rounds_of(served, args.rounds, args.tokens)
    ratios, controls = [one.ratio for one in rounds], [one.control for one in rounds]
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    fastest = [
        min(spent for one in rounds for spent, on in zip(one.spent, ORDER, strict=True) if on is kind) for kind in (False, True)
    ]
    control_low, control_high = interval(controls)
    print(f"recording adds {1e6 * added:.1f} µs to a token of a scripted model")
    print(f"the same twice: {statistics.median(controls):.4f} ({control_low:.4f} to {control_high:.4f})")
    print(f"fastest answers, ms a token: {1000 * fastest[0]:.4f} without, {1000 * fastest[1]:.4f} with")
    print(f"with recording over without: median {ratio:.4f} (95 %: {low:.4f} to {high:.4f}), allowed {MOST_RATIO}")
    return 0 if ratio <= MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
