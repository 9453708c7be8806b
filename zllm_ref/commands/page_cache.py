"""Files as a machine finds them that has just been started: their pages are not in memory."""

from __future__ import annotations

import os
from pathlib import Path


def drop_pages(root: Path) -> None:
    """Tells the system to forget the pages of all files below `root` (POSIX_FADV_DONTNEED), after writing them out."""
    os.sync()
    for file in root.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
