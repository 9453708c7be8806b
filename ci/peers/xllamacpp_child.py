"""Runs inside the peer's environment: llama.cpp's HTTP server from the `xllamacpp` package, until it is stopped."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(path: str, alias: str, port: int, threads: int, context: int, slots: int) -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.model_alias = {alias}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.n_ctx = context
    parameters.n_parallel = slots
    parameters.use_jinja = True
    server = xllamacpp.Server(parameters)
    print(f"listening on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]))
