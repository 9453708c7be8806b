"""Profiles of the property tests: `ci` by default, `nightly` with ZLLM_PROFILE=nightly."""

from __future__ import annotations

import os

import torch
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("nightly", deadline=None, suppress_health_check=list(HealthCheck), max_examples=20_000)
settings.load_profile(os.environ.get("ZLLM_PROFILE", "ci"))
torch.set_num_threads(1)
