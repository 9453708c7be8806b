"""The arguments that name a model and its numbers, shared by every command that loads one."""

from __future__ import annotations

import argparse
from pathlib import Path

from zllm_ref.commands.argument_numbers import byte_count, count, positive, share
from zllm_ref.config import (
    DEFAULT_RESIDENT_BYTES,
    DEFAULT_SSD_BYTES,
    DRAFTERS,
    UNITS,
    CacheSettings,
    DraftSettings,
    EngineSettings,
    ModelSettings,
)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """--model, --dtype, --threads, --device, --context-length and the cache's budget."""
    defaults = ModelSettings()
    group = parser.add_argument_group("model")
    group.add_argument("--model", default="", help="default model, tiny-*, scripted, a GGUF file, or a Hugging Face folder")
    group.add_argument(
        "--served-model-name",
        action="append",
        default=[],
        metavar="NAME",
        help="what answers call the model; further ones are names that requests may use, as is its own",
    )
    group.add_argument("--dtype", choices=("float32", "bfloat16"), default=defaults.dtype)
    group.add_argument("--threads", type=positive, default=defaults.threads, help="CPU threads of the runtime")
    group.add_argument("--device", default=defaults.device, help="cpu or cuda")
    group.add_argument("--context-length", type=positive, default=None, help="beyond the model's own: stretched by YaRN")
    group.add_argument("--dialect", default=None, help="tool dialect; default: found from the model's template")
    group.add_argument("--resident-bytes", type=byte_count, default=DEFAULT_RESIDENT_BYTES, help="e.g. 4GiB")
    group.add_argument("--ssd-dir", type=Path, default=None, help="keep evicted states here as snapshots")
    group.add_argument("--ssd-bytes", type=byte_count, default=DEFAULT_SSD_BYTES, help="budget of --ssd-dir")
    group.add_argument("--stages", type=positive, default=1, help="groups of layers that a restore brings one by one")
    group.add_argument("--no-write-behind", action="store_true", help="write a state only when it is about to be evicted")
    group.add_argument("--whole-states-only", action="store_true", help="reuse only whole saved states")
    group.add_argument("--units", type=_units, default=UNITS, help=f"where whole states are kept, of {','.join(UNITS)}, or none")
    group.add_argument("--unit-interval", type=count, default=0, help="tokens between states kept inside long prompts")
    group.add_argument("--near-miss-tokens", type=count, default=1024)
    group.add_argument("--near-miss-share", type=share, default=0.9)
    group.add_argument("--prefix-rounds", type=count, default=CacheSettings().prefix_rounds)
    group.add_argument("--keep-reasoning", action="store_true", help="render old reasoning although the template drops it")
    group.add_argument("--no-guard", action="store_true", help="do not watch for runaway loops")
    group.add_argument("--fence-policy", choices=("lenient", "strict"), default=EngineSettings().fence_policy,
                       help="rules that no mask holds: validate the finished call, or refuse the request")  # fmt: skip
    group.add_argument("--reasoning-budget", type=positive, default=None, help="tokens of reasoning; a request may ask for fewer")
    group.add_argument("--value-budget", type=positive, default=None, help="tokens of one value in a call, then it is closed")
    group.add_argument("--call-budget", type=positive, default=None, help="tokens of one call, then it is brought to its end")
    group.add_argument("--script", type=Path, default=None, help="what the scripted model says")
    group.add_argument("--draft", choices=DRAFTERS, default="none", help="who guesses tokens; answers stay the same")
    group.add_argument("--draft-tokens", type=positive, default=None, help="guesses in a round at most")
    group.add_argument("--draft-model", default="", help="of --draft model: as --model; of --draft dspark: a file of weights")
    group.add_argument("--max-lanes", type=positive, default=EngineSettings().max_lanes)


def engine_settings(args: argparse.Namespace) -> EngineSettings:
    """The settings that the arguments describe."""
    return EngineSettings(
        model=ModelSettings(
            model=args.model,
            dtype=args.dtype,
            threads=args.threads,
            device=args.device,
            context_length=args.context_length,
            dialect=args.dialect,
        ),
        cache=CacheSettings(
            resident_bytes=args.resident_bytes,
            prefix_rounds=args.prefix_rounds,
            ssd_directory=args.ssd_dir,
            ssd_bytes=args.ssd_bytes,
            num_stages=args.stages,
            write_behind=not args.no_write_behind,
            whole_states_only=args.whole_states_only,
            units=args.units,
            unit_interval_tokens=args.unit_interval,
            near_miss_tokens=args.near_miss_tokens,
            near_miss_share=args.near_miss_share,
        ),
        served_names=tuple(args.served_model_name),
        draft=DraftSettings(drafter=args.draft, most_tokens=args.draft_tokens, model=args.draft_model),
        max_lanes=args.max_lanes,
        script=args.script,
        guard=not args.no_guard,
        fence_policy=args.fence_policy,
        reasoning_budget=args.reasoning_budget,
        value_budget=args.value_budget,
        call_budget=args.call_budget,
        keep_reasoning=args.keep_reasoning,
        state_directory=getattr(args, "state_dir", None),
    )


def _units(text: str) -> tuple[str, ...]:
    """`end-of-prompt,common-prefix`, or `none`."""
    names = () if text == "none" else tuple(text.split(","))
    for name in names:
        if name not in UNITS:
            raise argparse.ArgumentTypeError(f"got {name!r}, allowed {', '.join(UNITS)}, or none")
    return names
