"""Options and fixtures of the equivalence tests."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.conftest import one_thread as one_thread
from tests.conftest import patience as patience
from zllm_ref.runtime.model import Model

from .subjects import SMOLLM2, subject

# Every example is several passes of a model: few in CI, many at night.
NUM_EXAMPLES = 2_000 if os.environ.get("ZLLM_PROFILE") == "nightly" else 15
EXAMPLES = settings(max_examples=NUM_EXAMPLES, suppress_health_check=list(HealthCheck))

SUBJECTS = [
    pytest.param(("tiny-llama", "float32"), id="tiny-llama-float32"),
    pytest.param(("tiny-llama", "bfloat16"), id="tiny-llama-bfloat16"),
    pytest.param(("tiny-llama-wide", "bfloat16"), id="tiny-llama-wide-bfloat16"),
    pytest.param((SMOLLM2, "float32"), id="smollm2-float32"),
    pytest.param((SMOLLM2, "bfloat16"), id="smollm2-bfloat16"),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where the equivalence tests run: cpu or cuda")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was proved holds where it was proved."""
    device = str(config.getoption("--device", default="cpu"))
    if device == "cpu":
        why = "none here" if not torch.cuda.is_available() else "not asked for"
        terminalreporter.write_line(f"proved on the CPU; the same on a GPU ({why}) is unproven: --device cuda proves it")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    chosen = str(request.config.getoption("--device", default="cpu"))
    if chosen.startswith("cuda") and not torch.cuda.is_available():
        pytest.fail(f"--device {chosen}: no such device here; what was to be proved on it stays unproven")
    return chosen


@pytest.fixture(params=SUBJECTS)
def named(request: pytest.FixtureRequest) -> tuple[str, str]:
    """(name, dtype) of each subject in turn."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def model(named: tuple[str, str], device: str) -> Model:
    return subject(*named, invariant=True, device=device)


@pytest.fixture(params=SUBJECTS)
def loose_model(request: pytest.FixtureRequest, device: str) -> Model:
    """The same weights with invariance switched off: the negative control.

    What the kernels of this machine do then is luck; `row_bound` makes sure that there is something to see.
    """
    return subject(*request.param, invariant=False, device=device)
