"""The system calls of the SSD tier, one method each: the only place that touches the disk, so that tests can pull the plug.

No method follows a symbolic link at the last name of its path, and only regular files are ever read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from zllm_ref.cache.snapshot import Bytes

_MOST_BUFFERS = 1024
"""What one readv or writev takes (IOV_MAX on Linux)."""


class Files:
    """The real disk. Every method raises OSError when the system says no."""

    def make_directory(self, path: Path) -> None:
        """Makes the directory if it is not there; raises NotADirectoryError for a link or a file in its place."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise NotADirectoryError(f"{path}: got a link or a file, allowed a directory") from None

    def names(self, directory: Path) -> list[str]:
        """Names in the directory, sorted."""
        return sorted(os.listdir(directory))

    def create(self, path: Path) -> int:
        """A new file for writing; fails if the name is taken."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, buffers: Sequence[Bytes]) -> None:
        """Appends all bytes of all buffers."""
        for first in range(0, len(buffers), _MOST_BUFFERS):
            rest = [memoryview(buffer).cast("B") for buffer in buffers[first : first + _MOST_BUFFERS]]
            while rest:
                written = os.writev(descriptor, rest)
                while rest and written >= len(rest[0]):
                    written -= len(rest.pop(0))
                if rest:
                    rest[0] = rest[0][written:]

    def sync(self, descriptor: int) -> None:
        """Returns when the file's bytes are on the disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Puts the file under its final name, in place of what was there; at every moment the name leads to one whole file."""
        os.rename(source, target)

    def sync_directory(self, path: Path) -> None:
        """Returns when the names in the directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Takes the name away; a name that is not there is fine."""
        path.unlink(missing_ok=True)

    def open(self, path: Path) -> tuple[int, int]:
        """A file for reading, and its size; raises OSError for anything but a regular file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(f"{path}: got mode {status.st_mode:o}, allowed a regular file")
        return descriptor, status.st_size

    def will_need(self, descriptor: int) -> None:
        """Has the system read the whole file ahead, while the caller does something else."""
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)

    def read_into(self, descriptor: int, offset: int, buffers: Sequence[memoryview]) -> None:
        """Fills the buffers one after the other from `offset` on; raises OSError when the file ends before."""
        for first in range(0, len(buffers), _MOST_BUFFERS):
            group = buffers[first : first + _MOST_BUFFERS]
            wanted = sum(map(len, group))
            got = os.preadv(descriptor, group, offset)
            if got != wanted:
                raise OSError(f"read at {offset}: got {got} bytes, allowed {wanted}")
            offset += got
