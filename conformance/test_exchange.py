"""The exchange goldens, asked again: the reference server still says what was recorded from it.

Only without `--base-url`: another model says other words. What is rule in them is judged by the suite on every target.
"""

from __future__ import annotations

import pytest

from conformance.checker.run import Run
from conformance.golden.build import PROTOCOLS
from conformance.golden.case import golden_root
from conformance.golden.exchange import load_exchange, replay
from conformance.golden.session_case import load_sessions
from conformance.golden.session_recorder import replay_session


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_reference_server_repeats_its_recorded_exchanges(protocol: str, suite: Run, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--base-url"):
        pytest.skip("unproven: exchanges are recorded from the reference server and judge that one")
    paths = sorted((golden_root() / protocol / "exchange").rglob("*.jsonl"))
    differences = [told for path in paths for told in replay(load_exchange(path), suite.client)]

    assert len(paths) >= 40
    assert not differences, "\n".join(differences[:10])


def test_the_reference_server_repeats_its_recorded_connections(suite: Run, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--base-url"):
        pytest.skip("unproven: exchanges are recorded from the reference server and judge that one")
    cases = list(load_sessions("exchange"))
    differences = [told for case in cases for told in replay_session(case, suite.client)]

    assert len(cases) >= 40
    assert not differences, "\n".join(differences[:10])
