"""Fixtures: each family in both dtypes, and with the invariance switched off."""

from __future__ import annotations

import pytest

from zllm_ref.runtime.model import Model

from .families import CONTROLS, SUBJECTS, family_model


@pytest.fixture(params=SUBJECTS)
def family(request: pytest.FixtureRequest, device: str) -> Model:
    return family_model(*request.param, device=device)


@pytest.fixture(params=CONTROLS)
def loose_family(request: pytest.FixtureRequest, device: str) -> Model:
    """The same weights without invariance: the lack is sure to show, on any machine (`row_bound`)."""
    name, dtype, wide = request.param
    return family_model(name, dtype, invariant=False, wide=wide, device=device)
