"""Options of the conformance suite, known to every pytest run from this folder."""

from __future__ import annotations

pytest_plugins = ["conformance.pytest_plugin"]
