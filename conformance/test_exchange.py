"""The exchange goldens, asked again: the reference server still says what was recorded from it.

Only without `--base-url`: another model says other words. What is rule in them is judged by the suite on every target.
"""

from __future__ import annotations

import pytest

from conformance.checker.run import Run
from conformance.golden.build import PROTOCOLS
from conformance.golden.case import golden_root
from conformance.golden.exchange import load_exchange, replay


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_reference_server_repeats_its_recorded_exchanges(protocol: str, suite: Run, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--base-url"):
        pytest.skip("unproven: exchanges are recorded from the reference server and judge that one")
    paths = sorted((golden_root() / protocol / "exchange").rglob("*.jsonl"))
    differences = [told for path in paths for told in replay(load_exchange(path), suite.client)]

    assert len(paths) >= 40
    assert not differences, "\n".join(differences[:10])
