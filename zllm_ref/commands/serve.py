"""`serve`: loads a model and answers on three protocols until it is told to stop."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

from zllm_ref.commands.argument_numbers import byte_count, port, positive, price, seconds
from zllm_ref.commands.model_arguments import add_model_arguments, engine_settings
from zllm_ref.config import ServerSettings, limit_spinning, spin_description


def add_parser(subparsers: Any) -> None:
    defaults = ServerSettings()
    parser = subparsers.add_parser("serve", help="serve a model to OpenAI and Anthropic clients")
    add_model_arguments(parser)
    group = parser.add_argument_group("server")
    group.add_argument("--host", default=defaults.host, help="loopback by default")
    group.add_argument("--port", type=port, default=defaults.port, help="0 picks a free one")
    group.add_argument("--profile", choices=("openai", "deepseek", "codex", "openresponses"), default=defaults.profile)
    group.add_argument("--api-key", action="append", default=[], help="let only these keys in; may be given several times")
    group.add_argument("--cache-sharing", action="store_true", help="all keys share one namespace of the prefix cache")
    group.add_argument("--max-body-bytes", type=byte_count, default=defaults.max_body_bytes)
    group.add_argument("--max-concurrent-requests", type=positive, default=defaults.max_concurrent_requests)
    group.add_argument("--heartbeat-seconds", type=seconds, default=defaults.heartbeat_seconds)
    group.add_argument("--state-dir", type=Path, default=None, help="stored responses and the sealing key; default: in memory")
    group.add_argument("--response-ttl", type=seconds, default=defaults.response_ttl_seconds, help="seconds")
    group.add_argument(
        "--max-stored-bytes",
        type=byte_count,
        default=defaults.max_stored_bytes,
        help="of stored responses; the least used go first",
    )
    group.add_argument("--keep-billing-line", action="store_true", help="do not strip Claude Code's per-request line")
    group.add_argument("--no-inspect", action="store_true", help="no inspector: nothing is recorded, /inspect is not there")
    group.add_argument("--inspect-remote", action="store_true", help="the inspector answers other machines than this one too")
    group.add_argument("--price-input", type=price, default=3.0, help="the inspector's price of a million computed tokens")
    group.add_argument("--price-cached", type=price, default=0.3, help="the inspector's price of a million cached tokens")
    group.add_argument("--quiet", action="store_true", help="no line per request")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    limit_spinning(args.threads)  # before torch is imported: its thread pool reads it once

    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    console.print("[bold]zllm_ref[/] starting …")

    from zllm_ref.model_files import ModelFileError, progress_bar, resolve_model

    try:
        resolve_model(args.model, Path.cwd())  # a wrong name is told before anything listens
    except ModelFileError as error:
        console.print(f"[bold red]cannot serve:[/] {escape(str(error))}", soft_wrap=True)
        return 2

    from zllm_ref.engine import Engine
    from zllm_ref.server import create_app
    from zllm_ref.server import run as listen

    logging.basicConfig(level=logging.WARNING if args.quiet else logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    settings = server_settings(args)
    failed = threading.Event()
    with progress_bar(console) as report:
        engine = Engine(engine_settings(args), report)

        def load(host: str, port: int) -> None:
            try:
                engine.load()
            except Exception as error:  # whatever it is, nothing can be served, and a person must be told
                logging.getLogger("zllm_ref").debug("loading failed", exc_info=True)
                console.print(f"[bold red]cannot serve:[/] {escape(str(error) or type(error).__name__)}", soft_wrap=True)
                failed.set()
                _stop_listening()
                return
            _settle_heap()
            _announce(console, engine, host, port, args)

        def on_ready(host: str, port: int) -> None:
            print(f"listening on http://{_shown(host)}:{port}", flush=True)
            threading.Thread(target=load, args=(host, port), name="zllm-load", daemon=True).start()

        # uvicorn ends all streams and then raises the signal again: by default the process would be gone at once, and with
        # it the states that only memory holds
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            listen(create_app(engine, settings, _inspect(engine, args)), args.host, args.port, on_ready, settings)
        except KeyboardInterrupt:  # uvicorn hands the signal on once all streams are closed
            return 2 if failed.is_set() else 130
        except OSError as error:
            console.print(
                f"[bold red]cannot listen on {args.host}:{args.port}:[/] {error.strerror}; try another --port, 0 picks one",
                soft_wrap=True,
            )
            return 2
        finally:
            engine.close()
            signal.signal(signal.SIGTERM, before)
    return 2 if failed.is_set() else 0


def _settle_heap() -> None:
    """Takes what loading made out of the collector's sight: it lives until the end, and walking it is what others wait for.

    A full collection also waits until the garbage is a quarter of what it sees; with a model's vocabularies in sight that is
    tens of megabytes of closed streams.
    """
    gc.collect()
    gc.freeze()


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """What the arguments say of the server."""
    return ServerSettings(
        host=args.host,
        port=args.port,
        profile=args.profile,
        api_keys=tuple(args.api_key),
        cache_sharing=args.cache_sharing,
        strip_billing_line=not args.keep_billing_line,
        max_body_bytes=args.max_body_bytes,
        inspect_remote=args.inspect_remote,
        max_concurrent_requests=args.max_concurrent_requests,
        heartbeat_seconds=args.heartbeat_seconds,
        state_directory=args.state_dir,
        response_ttl_seconds=args.response_ttl,
        max_stored_bytes=args.max_stored_bytes,
    )


def _inspect(engine: Any, args: argparse.Namespace) -> Any:
    """The inspector, told by the engine and the server alike; None where nobody wants one."""
    if args.no_inspect:
        return None
    from zllm_ref.inspector import Recorder
    from zllm_ref.inspector.inspector import Inspector
    from zllm_ref.inspector.prefix_panel import Prices
    from zllm_ref.server import Inspect

    recorder = Recorder()
    engine.observer = recorder
    prices = Prices(args.price_input, args.price_cached)
    return Inspect(recorder, Inspector(engine, recorder, keys_required=bool(args.api_key), prices=prices))


def _announce(console: Any, engine: Any, host: str, port: int, args: argparse.Namespace) -> None:
    card = engine.models[0]
    url = f"http://{_shown(host)}:{port}"
    console.print(
        f"ready: [bold]{card.id}[/], {args.dtype}, {args.threads} threads ({spin_description(args.threads)}), "
        f"context {card.context_length:,} tokens, {args.resident_bytes / (1 << 30):.1f} GiB for states"
        + ("" if args.draft == "none" else f", drafts by {args.draft}"),
        soft_wrap=True,
    )
    console.print(f"[bold]{url}[/]   try:")
    if not args.no_inspect:
        console.print(f"see what the model sees: [bold]{url}/inspect[/]", soft_wrap=True)
    question = {"role": "user", "content": "What is a prefix cache?"}
    body = json.dumps({"model": card.id, "stream": True, "messages": [question]})
    console.print(
        f"curl -N {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _stop_listening() -> None:
    """Ends uvicorn the way a person would. To the process, not to this thread: the main thread sleeps and must wake."""
    os.kill(os.getpid(), signal.SIGINT)
