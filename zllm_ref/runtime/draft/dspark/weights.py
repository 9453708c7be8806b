"""A drafter's own weights: drawn from a seed where training begins, kept in one safetensors file that names its target."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from zllm_ref.runtime.draft.dspark.shape import DsparkShape
from zllm_ref.runtime.weights.checkpoint import CheckpointError, check_shapes, file_digest

FORMAT = "zllm_ref dspark 1"
MOST_BYTES = 1 << 30
PACKAGED = Path(__file__).parent / "packaged"
"""Files that `python -m zllm_ref draft train` made for models that everybody can fetch, named by the target's digest."""


@dataclass(frozen=True)
class DsparkWeights:
    """The tensors of one drafter, and the digest of the weights of the target that it was trained on."""

    shape: DsparkShape
    tensors: Mapping[str, Tensor]
    target: str
    digest: str
    """Of the file; of the seed, where there is none."""

    def save(self, path: Path) -> None:
        """Matrices in bfloat16, what calibrates in float32."""
        stored = {name: tensor.to(_stored_type(name)).contiguous() for name, tensor in self.tensors.items()}
        # one entry: the order of several would differ from run to run, and the file with it
        save_file(stored, path, {FORMAT: json.dumps({"shape": self.shape.to_json(), "target": self.target}, sort_keys=True)})

    def cast(self, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        """The tensors as a running drafter wants them: calibration stays float32, ids are whole numbers."""
        return {
            name: tensor.to(device, torch.int64 if name == "drafted_ids" else torch.float32 if _is_exact(name) else dtype)
            for name, tensor in self.tensors.items()
        }


def read_weights(path: Path) -> DsparkWeights:
    """Reads and checks a file. Raises `CheckpointError`."""
    if not path.is_file():
        raise CheckpointError(str(path), "no such file", "the weights of a block drafter")
    if path.stat().st_size > MOST_BYTES:
        raise CheckpointError(str(path), f"{path.stat().st_size} bytes", f"at most {MOST_BYTES}")
    try:
        with safe_open(path, framework="pt") as reader:
            facts = _facts(path, reader.metadata() or {})
            shape = DsparkShape.from_json(f"{path}: shape", facts["shape"])
            tensors = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118  no mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(str(path), f"a file that does not open ({error})", "a whole safetensors file") from error
    check_shapes(str(path), {name: tuple(tensor.shape) for name, tensor in tensors.items()}, shape.parameter_shapes())
    for name, tensor in tensors.items():
        if tensor.dtype != _stored_type(name):
            raise CheckpointError(f"{path}: tensor {name!r}", f"type {tensor.dtype}", str(_stored_type(name)))
    return DsparkWeights(shape, tensors, facts["target"], file_digest(path))


def _facts(path: Path, metadata: Mapping[str, str]) -> dict[str, str]:
    """What the file says of itself: `shape` and `target`."""
    try:
        facts = json.loads(metadata.get(FORMAT, ""))
        return {"shape": str(facts["shape"]), "target": str(facts["target"])}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: metadata", repr(metadata)[:120], f"an entry {FORMAT!r} with shape and target") from error


def packaged_place(target: str) -> Path:
    """Where the file for the model with this digest belongs."""
    return PACKAGED / f"{target[:16]}.safetensors"


def packaged_weights(target: str) -> Path | None:
    """The file that comes with this package for the model with this digest; None: there is none."""
    path = packaged_place(target)
    return path if path.is_file() else None


def fresh_weights(shape: DsparkShape, drafted_ids: Sequence[int], seed: int, target: str = "") -> DsparkWeights:
    """What training begins with: layers that add nothing yet, norms of one, the rest random and of unit gain."""
    tensors: dict[str, Tensor] = {}
    for name, size in shape.parameter_shapes().items():
        generator = torch.Generator().manual_seed(seed * 1_000_003 + len(tensors))
        if name == "drafted_ids":
            tensors[name] = torch.tensor(drafted_ids, dtype=torch.int32)
        elif name.endswith("norm") or name == "confidence.scale":
            tensors[name] = torch.ones(size)
        elif name.startswith("confidence.") or name.endswith((".out", ".down", "markov.up")):
            tensors[name] = torch.zeros(size)
        else:
            tensors[name] = torch.randn(size, generator=generator) / math.sqrt(size[-1])
    return DsparkWeights(shape, tensors, target, f"seed {seed}")


def _is_exact(name: str) -> bool:
    return name.startswith("confidence.")


def _stored_type(name: str) -> torch.dtype:
    if name == "drafted_ids":
        return torch.int32
    return torch.float32 if _is_exact(name) else torch.bfloat16
