"""llama.cpp's server from the prebuilt `xllamacpp` package, as a child process that ends with its standard input."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any


def main(order: Mapping[str, Any]) -> None:
    """Serves on loopback until the parent closes our input or stops us."""
    package = importlib.import_module("xllamacpp")
    parameters = package.CommonParams()
    parameters.model.path = order["path"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = order["port"]
    parameters.cpuparams.n_threads = order["threads"]
    parameters.cpuparams_batch.n_threads = order["threads"]
    parameters.n_ctx = order["context"]
    parameters.n_parallel = order["streams"]
    parameters.slot_save_path = order["slots"]
    server = package.Server(parameters)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
