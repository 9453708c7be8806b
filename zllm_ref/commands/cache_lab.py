"""`python -m zllm_ref cache-lab --base-url URL`: what a server's prefix cache reuses, and why not, as a table and a plot."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import httpx

from zllm_ref.commands.argument_numbers import count, pause, positive, seconds, share
from zllm_ref.commands.cache_experiment import Exchange, Plan, Prices, run_experiment

_BAR = 50


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("cache-lab", help="controlled experiment on the prefix cache of any OpenAI-compatible server")
    parser.add_argument("--base-url", required=True, help="up to and with /v1")
    parser.add_argument("--model", default=None, help="default: the first of GET /models")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--api-key-file", type=Path, default=None, help="instead of --api-key: the key is the file's first line")
    parser.add_argument("--prefix-words", type=positive, default=Plan.prefix_words, help="length of P")
    parser.add_argument("--repeats", type=positive, default=Plan.repeats, help="each with a fresh P")
    parser.add_argument("--wait", type=pause, default=Plan.wait_seconds, metavar="SECONDS", help="pause between requests")
    parser.add_argument("--max-tokens", type=positive, default=Plan.max_tokens)
    parser.add_argument("--changed-at", type=share, default=Plan.changed_at, help="where P' differs from P, 0 to 1")
    parser.add_argument("--tool-loop", type=count, default=0, metavar="ROUNDS", help="a tool loop instead of the five steps")
    parser.add_argument("--prices", type=parse_prices, default=None, metavar="HIT,MISS,OUT", help="per million tokens")
    parser.add_argument("--timeout", type=seconds, default=600.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=None, help="default: the time, so that every run is fresh")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0: every exchange was complete. 1: some were not. 2: the server could not be asked at all."""
    key = args.api_key_file.read_text().splitlines()[0].strip() if args.api_key_file is not None else args.api_key
    base_url = args.base_url.rstrip("/") + "/"
    with httpx.Client(base_url=base_url, headers={"Authorization": f"Bearer {key}"}, timeout=args.timeout) as client:
        try:
            model = args.model or client.get("models").raise_for_status().json()["data"][0]["id"]
        except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
            print(f"{base_url}models: {error}; name the model with --model", file=sys.stderr)
            return 2
        plan = Plan(
            model=model,
            prefix_words=args.prefix_words,
            repeats=args.repeats,
            wait_seconds=args.wait,
            max_tokens=args.max_tokens,
            seed=args.seed if args.seed is not None else time.time_ns(),
            changed_at=args.changed_at,
            tool_rounds=args.tool_loop,
        )
        exchanges = []
        for exchange in run_experiment(client, plan):
            exchanges.append(exchange)
            if not args.json:
                print(f"{exchange.step}: {exchange.status} {exchange.detail}", file=sys.stderr)
    if args.json:
        costs = [exchange.cost(args.prices) if args.prices else None for exchange in exchanges]
        found = [{**asdict(exchange), "cost": cost} for exchange, cost in zip(exchanges, costs, strict=True)]
        print(json.dumps({"base_url": args.base_url, "plan": asdict(plan), "exchanges": found}))
    else:
        print("\n".join([*table(exchanges, args.prices), "", *plot(exchanges)]))
    return 0 if exchanges and all(exchange.status == "complete" for exchange in exchanges) else 1


def parse_prices(text: str) -> Prices:
    """`0.028,0.28,0.42`."""
    try:
        hit, miss, output = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed three numbers such as 0.028,0.28,0.42") from None
    return Prices(hit, miss, output)


def table(exchanges: Sequence[Exchange], prices: Prices | None) -> list[str]:
    """One line an exchange; a question mark is what is unknown."""
    head = ["step", "status", "prompt", "cached", "computed", "out", "pause", "reasoning", "text", "total"]
    rows = [head + (["cost"] if prices else [])]
    for exchange in exchanges:
        row = [
            f"{exchange.repeat + 1}. {exchange.step}",
            exchange.status,
            _count(exchange.prompt_tokens),
            _count(exchange.cached_tokens),
            _count(exchange.missed_tokens),
            _count(exchange.output_tokens),
            _seconds(exchange.interval_seconds),
            _seconds(exchange.first_reasoning_seconds),
            _seconds(exchange.first_text_seconds),
            _seconds(exchange.total_seconds),
        ]
        if prices:
            cost = exchange.cost(prices)
            row.append(f"{cost:.6f}" if cost is not None else "?")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def plot(exchanges: Sequence[Exchange]) -> list[str]:
    """Each prompt as a bar, the reused part full; behind it what that means."""
    longest = max((exchange.prompt_tokens or 0 for exchange in exchanges), default=0)
    lines = []
    for index, exchange in enumerate(exchanges):
        if exchange.prompt_tokens is None or exchange.cached_tokens is None or not longest:
            bar = "?" * _BAR
        else:
            length = max(1, round(_BAR * exchange.prompt_tokens / longest))
            full = round(length * exchange.cached_tokens / exchange.prompt_tokens) if exchange.prompt_tokens else 0
            bar = ("█" * full + "░" * (length - full)).ljust(_BAR)
        lines.append(f"{exchange.step:>10} {bar} {explain(exchanges[:index], exchange)}")
    return lines


def explain(before: Sequence[Exchange], exchange: Exchange) -> str:
    """What the reuse says about the cache; a reading of the figures, not something that the server said."""
    if exchange.status != "complete":
        return f"unknown: {exchange.status}"
    if exchange.cached_tokens is None or not exchange.prompt_tokens:
        return "unknown: the server does not report it"
    share = exchange.cached_tokens / exchange.prompt_tokens
    earlier = {past.step: past for past in before if past.repeat == exchange.repeat}
    if not earlier:
        return "reused from before this run (template or tools)" if exchange.cached_tokens else "nothing to reuse yet"
    if exchange.step == "P'+S":
        return "the part before the changed word" if exchange.cached_tokens else "P changed before the end of every unit"
    if share >= 0.8:
        missed = earlier.get("P+R")
        if exchange.step == "P+S" and missed is not None and missed.cached_tokens == 0:
            return "P became a unit when P+R shared it"
        return "all but the end"
    if exchange.cached_tokens:
        return "a part: to a block border, or to the last unit"
    if exchange.step == "P+R":
        return "no saved unit ends with P: whole units only"
    return "not kept, evicted, too short, or another machine answered"


def _count(number: int | None) -> str:
    return f"{number:,}" if number is not None else "?"


def _seconds(number: float | None) -> str:
    return f"{number:.3f} s" if number is not None else "?"
