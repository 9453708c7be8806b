"""`python -m conformance check | run | mutants | recordings | record | rules`."""

from __future__ import annotations

import sys

from conformance.commands import main

if __name__ == "__main__":
    sys.exit(main())
