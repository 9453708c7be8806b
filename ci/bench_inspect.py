"""What recording costs: the same streamed answers with and without a recorder, in turn, in one process.

    python ci/bench_inspect.py [--model NAME] [--pairs N] [--tokens N] [--whole]

What recording adds to a token is some microseconds, and a real model's token varies by more than that from run to run. So it is
measured where a step costs next to nothing: a scripted model that says thousands of tokens, one a step. What it adds there, for
each token and frame, is set against the processor time of a token of the served model. `--whole` measures the served model with
and without instead, and shows how far its runs lie apart. Processor time of the whole process, because a shared machine makes
wall-clock time say something about its neighbours. Exit 1: above 1 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
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
_SCRIPTED_TOKENS = 2_000


async def answer(app: Any, model: str, num_tokens: int) -> float:
    """Processor seconds for each token of one streamed answer."""
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    body = {"model": model, "messages": [{"role": "user", "content": "Tell a story."}], "stream": True, "temperature": 0}
    body |= {"max_tokens": num_tokens, "ignore_eos": True}
    began = time.process_time()
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=600) as client:
        reply = await client.post("/v1/chat/completions", json=body)
    seconds = time.process_time() - began
    assert reply.status_code == 200, reply.text
    return seconds / num_tokens


def pairs_of(settings: EngineSettings, num_pairs: int, num_tokens: int) -> list[tuple[float, float]]:
    """(without, with): processor seconds a token, in turn."""
    engine = Engine(settings)
    engine.load()
    recorder = Recorder()
    inspector = Inspector(engine, recorder)
    apps = {
        True: create_app(engine, ServerSettings(), Inspect(recorder, inspector)),
        False: create_app(engine, ServerSettings()),
    }
    name = engine.models[0].id

    async def run(records: bool) -> float:
        engine.observer = recorder if records else None
        return await answer(apps[records], name, num_tokens)

    found = []
    for index in range(num_pairs + 1):
        order = (True, False) if index % 2 else (False, True)
        spent = {records: asyncio.run(run(records)) for records in order}
        if index:  # the first pair warms up
            found.append((spent[False], spent[True]))
            print(f"{name}: {1000 * spent[False]:8.4f} ms a token without, {1000 * spent[True]:8.4f} ms with", flush=True)
    engine.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="", help="as for serve; default: the default model")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=48, help="of the served model")
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cache = CacheSettings(resident_bytes=1 << 30)
    served = EngineSettings(model=ModelSettings(model=args.model, threads=1), cache=cache)
    if args.whole:
        ratio = statistics.median(after / before for before, after in pairs_of(served, args.pairs, args.tokens))
        print(f"median ratio {ratio:.4f}, allowed {MOST_RATIO}")
        return 0 if ratio <= MOST_RATIO else 1
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"answers": [{"segments": [{"text": "x" * _SCRIPTED_TOKENS}]}]}))
        scripted = EngineSettings(model=ModelSettings(model="scripted", threads=1), cache=cache, script=script)
        added = statistics.median(after - before for before, after in pairs_of(scripted, args.pairs, _SCRIPTED_TOKENS))
    token = statistics.median(before for before, _ in pairs_of(served, 2, args.tokens))
    ratio = 1 + added / token
    print(f"recording adds {1e6 * added:.1f} µs to a token of {1000 * token:.2f} ms: ratio {ratio:.4f}, allowed {MOST_RATIO}")
    return 0 if ratio <= MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
