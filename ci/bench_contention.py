"""Decode speed beside processes that burn a core each, for several spin counts of the thread pool.

Two spinning threads on two cores stall for whole scheduler slices when a third wants to run; threads that never spin lose half
of their speed when nobody else does. `zllm_ref.config.SPIN_COUNT` is chosen from this table (docs/decisions/0003).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from rich.console import Console
from rich.table import Table

CHILD = """
import json, sys, time
import torch
from equivalence.subjects import default_model_path
from zllm_ref.commands.bench_own import _generate
from zllm_ref.commands.bench_work import decode_rate, median, prompt_ids
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.weights import open_checkpoint
threads = int(sys.argv[1])
torch.set_num_threads(threads)
model = build_model(open_checkpoint(default_model_path(), torch.bfloat16), Numerics(torch.bfloat16, threads))
_generate(model, [prompt_ids(16, 1)], 4)
print(json.dumps([decode_rate(_generate(model, [prompt_ids(64, 2 + n)], 64)[1]) for n in range(3)]))
"""
HOG = "while True: pass"


def rate(spin: str, threads: int, hogs: int) -> float:
    """Median tokens/s of one stream beside `hogs` busy processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment.pop("GOMP_SPINCOUNT", None)
    environment.pop("OMP_WAIT_POLICY", None)
    if spin == "passive":
        environment["OMP_WAIT_POLICY"] = "passive"
    elif spin != "default":
        environment["GOMP_SPINCOUNT"] = spin
    burners = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(hogs)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(threads)], env=environment, capture_output=True, text=True, check=True, timeout=600
        )
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    return sorted(json.loads(done.stdout.splitlines()[-1]))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spins", default="default,passive,1000,10000,100000,1000000")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    table = Table(title=f"decode, tokens/s, {args.threads} threads")
    for column in ("spin count", "alone", "beside 1 hog", "beside 2 hogs", "alone / 1 hog"):
        table.add_column(column, justify="right")
    for spin in args.spins.split(","):
        alone, one, two = (rate(spin, args.threads, hogs) for hogs in (0, 1, 2))
        print(f"spin {spin}: {alone:.1f} alone, {one:.1f} beside one, {two:.1f} beside two", file=sys.stderr, flush=True)
        table.add_row(spin, f"{alone:.1f}", f"{one:.1f}", f"{two:.1f}", f"{alone / one:.1f}")
    alone, one, two = (rate("default", 1, hogs) for hogs in (0, 1, 2))
    table.add_row("(1 thread)", f"{alone:.1f}", f"{one:.1f}", f"{two:.1f}", f"{alone / one:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
