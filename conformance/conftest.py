"""One run of the suite a pytest session: the target is started (or named), scenarios are tests, reports come at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from conformance.checker.client import TargetError
from conformance.checker.reference import KEY, reference_server
from conformance.checker.report import write_reports
from conformance.checker.run import Run, RunOptions, exit_code, find_model, read_known_failing, select
from conformance.checker.scenarios import all_scenarios

_RUN = pytest.StashKey[Run]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The suite's proof of itself, and the properties of the reference implementation, say nothing about a named target."""
    is_own = {"proof", "fuzz"} & set(collection_path.parts)
    return True if config.getoption("--base-url") and is_own else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each scenario that the options ask for."""
    if "scenario" in metafunc.fixturenames:
        options = _options(metafunc.config, "", "")
        chosen = select(options) if options.protocols or options.features else list(all_scenarios())
        metafunc.parametrize("scenario", chosen, ids=[row.id for row in chosen])


@pytest.fixture(scope="session")
def suite(request: pytest.FixtureRequest) -> Iterator[Run]:
    """The run against the target. Without `--base-url` the reference server is started."""
    config = request.config
    given = config.getoption("--base-url")
    try:
        with nullcontext(given) if given else reference_server() as base_url:
            model = config.getoption("--model") or find_model(base_url, _key(config))
            run = Run(_options(config, base_url, model))
            config.stash[_RUN] = run
            yield run
            run.close()
            if run.options.report_dir is not None:
                write_reports(run.options.report_dir)
    except TargetError as error:
        pytest.exit(f"conformance could not run: {error}", returncode=2)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run in which nothing was judged is not green: 2, as `python -m conformance run` says it."""
    run = session.config.stash.get(_RUN, None)
    if run is not None and exitstatus == pytest.ExitCode.OK and run.outcomes:
        session.exitstatus = exit_code(run.outcomes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The count of verdicts: what is not green is said aloud."""
    run = config.stash.get(_RUN, None)
    if run is None:
        return
    counts = Counter(outcome.verdict.value for outcome in run.outcomes)
    terminalreporter.section(f"conformance of {run.options.target_name or run.options.base_url} ({run.options.model})")
    terminalreporter.line(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    for outcome in run.outcomes:
        if outcome.verdict.value in ("unsupported", "inconclusive", "unproven"):
            terminalreporter.line(f"{outcome.verdict.value:12} {outcome.id}: {outcome.reason[:160]}")


def _key(config: pytest.Config) -> str | None:
    """What `--api-key` says; the reference server has one of its own."""
    given: str | None = config.getoption("--api-key")
    return given or (None if config.getoption("--base-url") else KEY)


def _options(config: pytest.Config, base_url: str, model: str) -> RunOptions:
    known = config.getoption("--known-failing")
    return RunOptions(
        base_url,
        model,
        _key(config),
        tuple(filter(None, config.getoption("--protocols").split(","))),
        tuple(filter(None, config.getoption("--features").split(","))),
        config.getoption("--profile"),
        read_known_failing(known) if known else {},
        config.getoption("--report-dir"),
        target_name="" if config.getoption("--base-url") else "zllm_ref",
    )
