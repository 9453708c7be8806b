"""A checkpoint's tensors on their way into a model: taken by name, once each, in the dtype and on the device of the model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from zllm_ref.runtime.numerics import Numerics


class Parameters:
    """The tensors below one prefix of names."""

    def __init__(self, tensors: Mapping[str, Tensor], numerics: Numerics, device: torch.device, prefix: str = "") -> None:
        self._tensors = tensors
        self._numerics = numerics
        self._device = device
        self._prefix = prefix

    def below(self, prefix: str) -> Parameters:
        """The tensors whose names go on after `prefix`."""
        return Parameters(self._tensors, self._numerics, self._device, self._prefix + prefix)

    def has(self, name: str) -> bool:
        return self._prefix + name in self._tensors

    def take(self, name: str) -> Tensor:
        """In the model's dtype."""
        return self._tensors[self._prefix + name].to(device=self._device, dtype=self._numerics.dtype).contiguous()

    def exact(self, name: str) -> Tensor:
        """In float32, or whole numbers as they are."""
        tensor = self._tensors[self._prefix + name].to(self._device)
        return (tensor.float() if tensor.is_floating_point() else tensor).contiguous()

    def join(self, *names: str) -> Tensor:
        """Several matrices with the same input as one: one product instead of many."""
        return torch.cat([self.take(name) for name in names]).contiguous()
