"""Own answers by digest, in one SQLite file: after a restart they still enter the next prompt as the ids that were generated."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path


class ReplayTable:
    """A `GeneratedStore` on disk: the latest `capacity` answers. Used from several threads, one at a time."""

    def __init__(self, path: Path, capacity: int = 100_000) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._capacity = capacity
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT UNIQUE, value TEXT)"
        )

    def put(self, key: str, value: str) -> None:
        with self._lock:
            self._connection.execute("INSERT OR REPLACE INTO answers (digest, value) VALUES (?, ?)", (key, value))
            self._connection.execute(
                "DELETE FROM answers WHERE number <= (SELECT MAX(number) FROM answers) - ?", (self._capacity,)
            )

    def get(self, key: str) -> str | None:
        with self._lock:
            row = self._connection.execute("SELECT value FROM answers WHERE digest = ?", (key,)).fetchone()
        return str(row[0]) if row is not None else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()
