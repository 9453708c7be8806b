"""Own answers by digest, in one SQLite file: after a restart they still enter the next prompt as the ids that were generated."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path

_log = logging.getLogger(__name__)


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
        """A disk that refuses costs the next turn some tokens, and this answer nothing."""
        try:
            with self._lock:
                self._connection.execute("INSERT OR REPLACE INTO answers (digest, value) VALUES (?, ?)", (key, value))
                self._connection.execute(
                    "DELETE FROM answers WHERE number <= (SELECT MAX(number) FROM answers) - ?", (self._capacity,)
                )
        except sqlite3.Error as error:
            _log.warning("an answer could not be remembered: %s", error)

    def get(self, key: str) -> str | None:
        try:
            with self._lock:
                row = self._connection.execute("SELECT value FROM answers WHERE digest = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            _log.warning("an answer could not be looked up, it is rendered instead: %s", error)
            return None
        return str(row[0]) if row is not None else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()
