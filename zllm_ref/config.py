"""All settings, one frozen dataclass per room, and the only place that reads the process's environment.

A command line makes these; everything below takes them as arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_PORT = 8000
DEFAULT_RESIDENT_BYTES = 4 << 30
DEFAULT_SSD_BYTES = 32 << 30


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and the numbers it computes in."""

    model: str = ""
    """A name or a path; empty: the default model."""
    dtype: str = "bfloat16"
    threads: int = 2
    device: str = "cpu"
    context_length: int | None = None
    """None: the model's own."""
    invariant: bool = True
    """False switches row-invariance off: for measurements and negative controls only."""
    dialect: str | None = None
    """None: found from the model's template."""


UNITS = ("end-of-prompt", "end-of-answer", "common-prefix")
"""What a state is kept at, each a switch; a fixed interval is the fourth."""


@dataclass(frozen=True)
class CacheSettings:
    """The prefix cache: resident states, and snapshots on SSD where a directory is given."""

    resident_bytes: int = DEFAULT_RESIDENT_BYTES
    prefix_rounds: int = 4
    ssd_directory: Path | None = None
    """None: no SSD tier, an evicted state is gone."""
    ssd_bytes: int = DEFAULT_SSD_BYTES
    num_stages: int = 1
    """Groups of layers that are restored one after the other, as if each had a device of its own."""
    write_behind: bool = True
    """Write states soon after their answer; False: only when they are about to be evicted."""
    whole_states_only: bool = False
    """Reuse only whole saved states, as services with sliding windows do."""
    units: tuple[str, ...] = UNITS
    """Which states on the way are kept, where states cannot be cut."""
    unit_interval_tokens: int = 0
    """Where states cannot be cut: keep one every so many prompt tokens; 0: only at the end of prompts and answers."""
    near_miss_tokens: int = 1024
    """A prompt that shares more tokens than this with a saved state, and still misses it, is reported."""
    near_miss_share: float = 0.9


@dataclass(frozen=True)
class ServerSettings:
    """Where the server listens, and what it lets in."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    profile: str = "openai"
    """Whose behaviour decides where sources disagree: openai, deepseek, codex, openresponses."""
    api_keys: tuple[str, ...] = ()
    """Empty: everybody is let in."""
    cache_sharing: bool = False
    """True: all keys share one namespace of the prefix cache."""
    strip_billing_line: bool = True
    """Drop the per-request line that Claude Code puts before its system prompt."""
    max_body_bytes: int = 32 << 20
    max_concurrent_requests: int = 256
    heartbeat_seconds: float = 10.0
    """After so long without an event a stream says that it is alive."""
    state_directory: Path | None = None
    """Where stored responses and the sealing key are kept; None: in memory, for this process only."""
    response_ttl_seconds: float = 30 * 86_400.0
    max_stored_bytes: int = 1 << 30
    shutdown_grace_seconds: float = 10.0
    inspect_remote: bool = False
    """The inspector answers other machines too."""
    websocket_lifetime_seconds: float = 3600.0


DRAFTERS = ("none", "prompt_lookup", "mtp", "dspark", "model")
"""Who may guess tokens before the model says them."""


@dataclass(frozen=True)
class DraftSettings:
    """Speculation: it changes how long an answer takes, and nothing else."""

    drafter: str = "none"
    most_tokens: int | None = None
    """Guesses in one round at most; None: what suits the drafter. How many there are is decided round by round."""
    model: str = ""
    """The smaller model, or the drafter's weights."""


@dataclass(frozen=True)
class EngineSettings:
    model: ModelSettings = field(default_factory=ModelSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    draft: DraftSettings = field(default_factory=DraftSettings)
    served_names: tuple[str, ...] = ()
    """What requests and answers call the model: the first in answers, all of them and its own name in requests."""
    max_lanes: int = 64
    script: Path | None = None
    """What the scripted model says; None: a short fixed text."""
    guard: bool = True
    """Watch for runaway loops."""
    fence_policy: str = "lenient"
    """What happens to a rule that no mask holds: `lenient` validates the finished call, `strict` refuses the request."""
    reasoning_budget: int | None = None
    """Tokens of reasoning at most; a request may ask for fewer."""
    value_budget: int | None = None
    """Tokens of one value in a call."""
    call_budget: int | None = None
    """Tokens of one call."""
    keep_reasoning: bool = False
    """Render old reasoning although the model's template drops it."""
    state_directory: Path | None = None
    """Where own answers are kept as ids; None: in memory."""


def home_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where models and state are kept: `ZLLM_HOME`, else the user's cache directory."""
    found = os.environ if environment is None else environment
    if found.get("ZLLM_HOME"):
        return Path(found["ZLLM_HOME"])
    base = Path(found["XDG_CACHE_HOME"]) if found.get("XDG_CACHE_HOME") else Path.home() / ".cache"
    return base / "zllm-ref"


def model_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where fetched model files lie."""
    return home_directory(environment) / "models"


SPIN_COUNT = 5_000
"""How often a worker thread of the CPU pool looks for new work before it sleeps (docs/decisions/0003 has the figures)."""


def limit_spinning(threads: int) -> None:
    """Tells the OpenMP pool to spin only shortly. Must be called before torch is imported; a setting of the user's stays.

    Two threads that spin for ever on two cores stall for whole scheduler slices when a third wants to run; threads that
    never spin lose half of their speed on small steps. Between lies a spin of some microseconds.
    """
    if threads > 1 and "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
        os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)


def spin_description(threads: int) -> str:
    """The setting in force, for the start-up line."""
    if threads == 1:
        return "no pool"
    if os.environ.get("OMP_WAIT_POLICY"):
        return f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}"
    return f"spin count {os.environ.get('GOMP_SPINCOUNT', 'of the library')}"


def process_environment() -> dict[str, str]:
    """A copy of the process's environment, for the programs that it starts."""
    return dict(os.environ)
