"""Stored responses: protocol items and cache hints in one SQLite file, never K/V.

    response ── previous_id ──▶ response ── previous_id ──▶ … ── null          a chain is rebuilt from its rows alone

Survives `kill -9` (WAL, one transaction a write). A row belongs to an owner and is invisible to every other; it expires, and the
least recently used rows go first when the file outgrows its limit. Every method blocks: call them in a thread.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "responses.sqlite3"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous_id TEXT, status TEXT NOT NULL, is_background INTEGER NOT NULL,
    body TEXT NOT NULL, input TEXT NOT NULL, cache_id TEXT, size INTEGER NOT NULL, used REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS responses_by_use ON responses (used);
CREATE TABLE IF NOT EXISTS frames (
    response_id TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE, number INTEGER NOT NULL, name TEXT, data TEXT NOT NULL,
    PRIMARY KEY (response_id, number)
);
"""
_MAX_CHAIN = 10_000


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """`body` is the response object, `input` the array of the request's own input items; both JSON text."""

    id: str
    owner: str
    previous_id: str | None
    status: str
    is_background: bool
    body: str
    input: str
    cache_id: str | None = None

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input)


@dataclass(frozen=True, slots=True)
class StoredFrame:
    number: int
    name: str | None
    data: str


class ResponseStore:
    """`directory` None: in memory. `clock` in seconds, injected."""

    def __init__(self, directory: Path | None, *, ttl_seconds: float, max_bytes: int, clock: Callable[[], float]) -> None:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        self._ttl_seconds = ttl_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        path = ":memory:" if directory is None else directory / FILE_NAME
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA foreign_keys = ON")
        self._database.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing; only a power cut could
        self._database.executescript(_SCHEMA)

    def secret(self, make: Callable[[], bytes]) -> bytes:
        """The sealing key: made once, kept beside the responses, so that what was sealed still opens after a restart."""
        with self._transaction() as database:
            database.execute("INSERT OR IGNORE INTO meta VALUES ('sealing key', ?)", (make(),))
            (value,) = database.execute("SELECT value FROM meta WHERE name = 'sealing key'").fetchone()
            return bytes(value)

    def put(self, response: StoredResponse) -> None:
        """Writes or replaces a row, then drops what has expired or no longer fits."""
        now = self._clock()
        row = (
            response.id,
            response.owner,
            response.previous_id,
            response.status,
            response.is_background,
            response.body,
            response.input,
            response.cache_id,
            response.size,
            now,
        )
        with self._transaction() as database:
            database.execute(
                "INSERT INTO responses VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET "
                "status = excluded.status, body = excluded.body, cache_id = excluded.cache_id, used = excluded.used, size = "
                "excluded.size + (SELECT COALESCE(SUM(LENGTH(data)), 0) FROM frames WHERE response_id = excluded.id)",
                row,
            )
            database.execute("DELETE FROM responses WHERE used < ?", (now - self._ttl_seconds,))
            self._shrink(database)

    def get(self, identity: str, owner: str) -> StoredResponse | None:
        with self._lock:
            return _read(self._database, identity, owner, self._clock() - self._ttl_seconds)

    def chain(self, identity: str, owner: str) -> list[StoredResponse] | None:
        """This response and all before it, oldest first; None where one of them is unknown, expired, deleted or another's."""
        found: list[StoredResponse] = []
        now = self._clock()
        with self._transaction() as database:
            next_id: str | None = identity
            while next_id is not None and len(found) < _MAX_CHAIN:
                row = _read(database, next_id, owner, now - self._ttl_seconds)
                if row is None:
                    return None
                found.append(row)
                next_id = row.previous_id
            # A conversation that goes on keeps its beginning.
            database.executemany("UPDATE responses SET used = ? WHERE id = ?", [(now, row.id) for row in found])
        return found[::-1]

    def delete(self, identity: str, owner: str) -> bool:
        with self._transaction() as database:
            return database.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (identity, owner)).rowcount > 0

    def add_frames(self, identity: str, frames: Sequence[StoredFrame]) -> None:
        """Events of a background response, so that a client that lost its stream can take it up again (RS3)."""
        rows = [(identity, frame.number, frame.name, frame.data) for frame in frames]
        with self._transaction() as database:
            known = database.execute("SELECT 1 FROM responses WHERE id = ?", (identity,)).fetchone()
            if known:
                database.executemany("INSERT OR REPLACE INTO frames VALUES (?,?,?,?)", rows)
                added = sum(len(frame.data) for frame in frames)
                database.execute("UPDATE responses SET size = size + ? WHERE id = ?", (added, identity))

    def frames(self, identity: str) -> list[StoredFrame]:
        with self._lock:
            rows = self._database.execute(
                "SELECT number, name, data FROM frames WHERE response_id = ? ORDER BY number", (identity,)
            )
            return [StoredFrame(*row) for row in rows]

    def unfinished(self) -> list[StoredResponse]:
        """Background responses that a process left behind when it ended."""
        with self._lock:
            rows = self._database.execute(f"SELECT {_COLUMNS} FROM responses WHERE status IN ('queued', 'in_progress')")
            return [_response(row) for row in rows]

    def total_bytes(self) -> int:
        with self._lock:
            (total,) = self._database.execute("SELECT COALESCE(SUM(size), 0) FROM responses").fetchone()
            return int(total)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _shrink(self, database: sqlite3.Connection) -> None:
        (total,) = database.execute("SELECT COALESCE(SUM(size), 0) FROM responses").fetchone()
        if total <= self._max_bytes:
            return
        for identity, size in database.execute("SELECT id, size FROM responses ORDER BY used, rowid").fetchall():
            if total <= self._max_bytes:
                return
            database.execute("DELETE FROM responses WHERE id = ?", (identity,))
            total -= size


_COLUMNS = "id, owner, previous_id, status, is_background, body, input, cache_id"


def _read(database: sqlite3.Connection, identity: str, owner: str, oldest: float) -> StoredResponse | None:
    query = f"SELECT {_COLUMNS} FROM responses WHERE id = ? AND owner = ? AND used >= ?"
    row = database.execute(query, (identity, owner, oldest)).fetchone()
    return None if row is None else _response(row)


def _response(row: Sequence[object]) -> StoredResponse:
    identity, owner, previous, status, is_background, body, items, cache_id = row
    return StoredResponse(
        id=str(identity),
        owner=str(owner),
        previous_id=None if previous is None else str(previous),
        status=str(status),
        is_background=bool(is_background),
        body=str(body),
        input=str(items),
        cache_id=None if cache_id is None else str(cache_id),
    )
