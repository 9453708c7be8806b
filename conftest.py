"""Options of the conformance suite, known to every pytest run from this folder, and the profiles of the property tests.

The profile is `ci` by default, `nightly` with ZLLM_PROFILE=nightly.

`ci` draws the same examples every time: a run that turns red says something about the change, not about its luck. New
examples are looked for at night, and what they find becomes a test of its own.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["conformance.pytest_plugin"]

settings.register_profile(
    "ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=True, database=None
)
settings.register_profile(
    "nightly", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, max_examples=20_000, derandomize=False
)
settings.load_profile(os.environ.get("ZLLM_PROFILE", "ci"))
