"""One thread, like every test that computes; one terminal; and nothing is given up because a machine stood still for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from zllm_ref.runtime import ssd_restores

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """An engine sets the threads of its process: those of a test before must not be those of this one."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """The loop gives disks up by the clock, which a busy machine's disks and threads must not feel. Who means it says so."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RESTORE_TIMEOUT_SECONDS", "GATE_TIMEOUT_SECONDS", "SHUTDOWN_WRITE_SECONDS"):
            patch.setattr(ssd_restores, name, 120.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def terminal() -> Iterator[None]:
    """What is printed is wrapped and coloured for a terminal of 80 columns without colours, whatever this one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
            patch.delenv(name, raising=False)
        yield
