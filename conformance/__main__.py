"""`python -m conformance check | run | mutants | recordings | record | rules`."""

from __future__ import annotations

import os
import sys

from conformance.commands import main

if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
