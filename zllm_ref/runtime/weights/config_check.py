"""Reading a config.json that a stranger wrote: numbers that must be there, switches that nothing here computes, rotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zllm_ref.runtime.weights.checkpoint import CheckpointError

MOST: Mapping[str, int] = {
    "num_hidden_layers": 1024,
    "num_nextn_predict_layers": 64,
    "num_hash_layers": 1024,
    "n_routed_experts": 4096,
    "n_shared_experts": 4096,
}
"""Numbers that say how often something is listed: bounds what a damaged config can cost before the shapes are compared."""


def without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


def positive(where: str, config: Mapping[str, Any], key: str) -> int:
    """An integer of at least 1. Raises `CheckpointError`."""
    return _integer(where, config, key, 1)


def count(where: str, config: Mapping[str, Any], key: str) -> int:
    """An integer of at least 0. Raises `CheckpointError`."""
    return _integer(where, config, key, 0)


def positive_number(where: str, config: Mapping[str, Any], key: str) -> float:
    """A number above 0, whole or not. Raises `CheckpointError`."""
    value = config.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise CheckpointError(f"{where}: {key}", repr(value), "a positive finite number")
    return float(value)


def refuse(where: str, config: Mapping[str, Any], key: str, allowed: object) -> None:
    """What the model would compute differently is refused, never ignored."""
    if config.get(key) not in (None, allowed):
        raise CheckpointError(f"{where}: {key}", repr(config[key]), repr(allowed))


def rope(where: str, config: Mapping[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """`rope_theta` and `rope_scaling` (None: plain) from either spelling: top level, or one `rope_parameters` object.

    Raises `CheckpointError`.
    """
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{where}: rope_scaling", repr(found), "an object or null")
    parameters = dict(found)
    theta = positive_number(where, {"rope_theta": 10000.0} | without_none(config) | without_none(parameters), "rope_theta")
    parameters.pop("rope_theta", None)
    old_spelling = parameters.pop("type", None)
    kind = parameters.get("rope_type", old_spelling)
    if kind in (None, "default"):
        return theta, None
    return theta, parameters | {"rope_type": kind}


def _integer(where: str, config: Mapping[str, Any], key: str, least: int) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CheckpointError(f"{where}: {key}", repr(value), f"an integer of at least {least}")
    if value > MOST.get(key, 1 << 32):
        raise CheckpointError(f"{where}: {key}", str(value), f"at most {MOST.get(key, 1 << 32)}")
    return value
