"""llama.cpp's own way to disk and back: one slot saved to a file, restored by a server that was started afterwards.

The same prefix as on our side, the same suffixes, the file's pages dropped and warm. Its K/V are f16, so its file has the size
of ours in bfloat16. Two differences stay and are said beside the figures: it writes without sync and without checksums, and
its times are taken over HTTP on loopback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from zllm_ref.commands.bench_work import PREFIX_SEED, BenchWork, Figures, median, prompt_ids
from zllm_ref.commands.page_cache import drop_pages
from zllm_ref.commands.peer_process import PeerError

SLOT = 0
_FILE = "prefix.slot"

FirstToken = Callable[[list[int], int], float]
"""Runs a prompt in the slot for one token, of which at least so many tokens must not be computed → seconds."""


def save_slot(client: httpx.Client, first_token: FirstToken, work: BenchWork) -> Figures:
    """Computes the prefix and has it saved: `ssd_write_seconds`, `ssd_bytes`."""
    first_token(prompt_ids(work.prefix_length, PREFIX_SEED), 0)
    started = time.perf_counter()
    saved = _act(client, "save")
    seconds = time.perf_counter() - started
    return {"ssd_write_seconds": seconds, "ssd_bytes": saved["n_written"]}


def measure_restore(
    client: httpx.Client, first_token: FirstToken, directory: Path, work: BenchWork, turns: Iterable[int]
) -> Figures:
    """In a server that never saw the prefix: `ttft_ssd_seconds` (warm) and `ttft_ssd_dropped_seconds`."""
    dropped, warm = [], []
    for n in turns:
        drop_pages(directory)
        dropped.append(_once(client, first_token, work, 2 * n))
        warm.append(_once(client, first_token, work, 2 * n + 1))
    return {"ttft_ssd_seconds": median(warm), "ttft_ssd_dropped_seconds": median(dropped)}


def _once(client: httpx.Client, first_token: FirstToken, work: BenchWork, n: int) -> float:
    """Seconds from the restore's request to the first token."""
    _act(client, "erase")
    prompt = prompt_ids(work.prefix_length, PREFIX_SEED) + prompt_ids(work.suffix_length, PREFIX_SEED + 1 + n)
    started = time.perf_counter()
    restored = _act(client, "restore")["n_restored"]
    if restored < work.prefix_length:
        raise PeerError(f"llama.cpp: {restored} tokens were restored, expected {work.prefix_length}")
    first_token(prompt, work.prefix_length)
    return time.perf_counter() - started


def _act(client: httpx.Client, action: str) -> Mapping[str, Any]:
    answer = client.post(f"/slots/{SLOT}", params={"action": action}, json={"filename": _FILE})
    if answer.status_code != 200:
        raise PeerError(f"llama.cpp answered {answer.status_code} to the slot's {action}: {answer.text[:300]}")
    found: Mapping[str, Any] = answer.json()
    return found
