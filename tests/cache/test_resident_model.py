"""The resident tier against a plain dictionary: whatever order of requests, the same reuse and the same bytes.

The model keeps saved token lists and counts bytes by brute force: a block is a tuple (namespace, all tokens up to its end,
start), so sharing falls out of a set. It knows nothing of trees, pins or orders.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from zllm_ref.cache import Admission, AdmissionImpossible, PrefixCache, StateLayout

BLOCK = 4
ROW_BYTES = 10
FIXED_BYTES = 30

NUM_EXAMPLES = 5_000 if settings.get_current_profile_name() == "nightly" else 60

# Few tokens and few namespaces, so that prompts share beginnings all the time.
token_lists = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=14).map(tuple)
namespaces = st.sampled_from(["", "a"])

Tokens = tuple[int, ...]


class Session:
    def __init__(self, ids: Tokens, has_fixed: bool, fails: bool = False) -> None:
        self.ids = ids
        self.has_fixed = has_fixed
        self.fails = fails

    def copy_rows(self, start: int, end: int) -> object:
        if self.fails and end == len(self.ids):
            raise OSError("copy failed")
        return [self.ids[: position + 1] for position in range(start, end)]

    def copy_fixed(self) -> object | None:
        return self.ids if self.has_fixed else None


@dataclass
class Running:
    admission: Admission
    namespace: str
    prompt: Tokens
    reserve_bytes: int
    blocks: set[tuple[str, Tokens, int]] = field(default_factory=set)


class ResidentMachine(RuleBasedStateMachine):
    running = Bundle("running")

    @initialize(
        cuttable=st.booleans(),
        capacity_tokens=st.integers(10, 90),
        prefix_rounds=st.integers(0, 3),
        whole_states_only=st.booleans(),
    )
    def start(self, cuttable: bool, capacity_tokens: int, prefix_rounds: int, whole_states_only: bool) -> None:
        numbers = itertools.count()
        self.fixed_bytes = 0 if cuttable else FIXED_BYTES
        self.is_cuttable = cuttable and not whole_states_only
        self.capacity_bytes = capacity_tokens * ROW_BYTES
        self.cache = PrefixCache(
            StateLayout(BLOCK, ROW_BYTES, self.fixed_bytes, cuttable),
            self.capacity_bytes,
            identity="model",
            prefix_rounds=prefix_rounds,
            whole_states_only=whole_states_only,
            new_cache_id=lambda: f"cache_{next(numbers)}",
        )
        self.held: dict[str, Running] = {}
        self.issued: list[str] = ["cache_unknown"]

    @rule(
        target=running, namespace=namespaces, prompt=token_lists, growth=st.integers(0, 6), pick=st.integers(0, 1000) | st.none()
    )
    def admit(self, namespace: str, prompt: Tokens, growth: int, pick: int | None) -> Running | None:
        cache_id = self.issued[pick % len(self.issued)] if pick is not None else None
        reserve_bytes = (len(prompt) + growth) * ROW_BYTES + self.fixed_bytes
        ids = np.array(prompt, dtype=np.int32)
        hit_before = self.cache.lookup(namespace, ids, cache_id=cache_id)
        try:
            admission = self.cache.admit(namespace, ids, reserve_bytes=reserve_bytes, cache_id=cache_id)
        except AdmissionImpossible:
            assert reserve_bytes > self.capacity_bytes
            return None
        assert reserve_bytes <= self.capacity_bytes
        if admission is None:
            assert self.held, "nobody runs, and yet it must wait: a deadlock"
            return None
        assert admission.cache_id not in self.issued
        assert (admission.hit.length if admission.hit else 0) <= (hit_before.length if hit_before else 0)
        entry = Running(admission, namespace, prompt, reserve_bytes)
        if admission.hit is not None:
            for use in admission.hit.blocks:
                entry.blocks.add((namespace, tuple(use.payload[-1]), use.start))
        self.held[admission.cache_id] = entry
        self.issued.append(admission.cache_id)
        return entry

    @rule(
        entry=consumes(running),
        answer=st.lists(st.sampled_from([1, 2]), max_size=6),
        how=st.sampled_from(["end", "unit", "fail", "cancel"]),
    )
    def finish(self, entry: Running | None, answer: list[int], how: str) -> None:
        if entry is None:
            return
        room = (entry.reserve_bytes - self.fixed_bytes) // ROW_BYTES - len(entry.prompt)
        ids = entry.prompt + tuple(answer[:room])
        if how in ("end", "unit"):
            if how == "unit":
                self._commit(entry, entry.prompt, is_unit=True)
            self._commit(entry, ids, is_unit=False)
        elif how == "fail":
            before = self.cache.snapshot()["terminals"]
            try:
                self.cache.commit(
                    entry.admission, np.array(ids, dtype=np.int32), Session(ids, bool(self.fixed_bytes), fails=True)
                )
            except OSError:
                assert self.cache.snapshot()["terminals"] == before
        self.cache.release(entry.admission)
        self.cache.release(entry.admission)
        self.held.pop(entry.admission.cache_id, None)

    def _commit(self, entry: Running, ids: Tokens, is_unit: bool) -> None:
        commit = self.cache.commit_unit if is_unit else self.cache.commit
        terminal = commit(entry.admission, np.array(ids, dtype=np.int32), Session(ids, bool(self.fixed_bytes)))
        if terminal is not None:
            self.issued.append(terminal.cache_id)
            hit = self.cache.lookup(entry.namespace, np.array((*ids, 1), dtype=np.int32), cache_id=terminal.cache_id)
            assert hit is not None
            assert hit.length == len(ids)
        else:
            # A promise is broken only when something other than its session took part: two commits of one session.
            assert not entry.admission.will_keep or self.fixed_bytes, "it was to be kept"

    @invariant()
    @precondition(lambda self: hasattr(self, "cache"))
    def books_are_right(self) -> None:
        self.cache.check()
        saved = self.saved()
        blocks = {block for namespace, ids in saved for block in blocks_of(namespace, ids)}
        pinned = {block for entry in self.held.values() for block in entry.blocks}
        assert self.cache.pinned_bytes >= bytes_of(pinned)
        assert self.cache.pinned_bytes + self.cache.resident_bytes == bytes_of(blocks | pinned) + self.fixed_bytes * len(saved)

    @rule(namespace=namespaces, prompt=token_lists)
    def look_up(self, namespace: str, prompt: Tokens) -> None:
        hit = self.cache.lookup(namespace, np.array(prompt, dtype=np.int32))
        pinned = [ids for entry in self.held.values() for space, ids, _ in entry.blocks if space == namespace]
        candidates = [ids for space, ids in self.saved() if space == namespace]
        if self.is_cuttable:
            lengths = [common(ids, prompt[:-1]) for ids in candidates + pinned]
        else:
            lengths = [len(ids) for ids in candidates if prompt[:-1][: len(ids)] == ids]

        assert (hit.length if hit else 0) == max(lengths, default=0)

        if hit is not None:
            rows = [row for use in hit.blocks for row in use.payload[: use.num_rows]]
            assert rows == [prompt[: position + 1] for position in range(hit.length)]
            if not self.is_cuttable and self.fixed_bytes:
                assert hit.fixed == prompt[: hit.length]

    def saved(self) -> set[tuple[str, Tokens]]:
        """The saved states, read from the payloads of the whole-state hits that their names give."""
        found = set()
        for terminal in self.cache.snapshot()["terminals"]:
            state = self.cache._graph.terminals[terminal["cache_id"]]
            ids = tuple(state.node.payload[-1])
            assert len(ids) == terminal["length"]
            found.add((terminal["namespace"], ids))
        return found

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            for entry in list(self.held.values()):
                self.cache.release(entry.admission)
            self.cache.check()
            assert self.cache.pinned_bytes == self.cache.reserved_bytes == 0, "idle, and something is still held"


def blocks_of(namespace: str, ids: Tokens) -> list[tuple[str, Tokens, int]]:
    return [(namespace, ids[: min(start + BLOCK, len(ids))], start) for start in range(0, len(ids), BLOCK)]


def bytes_of(blocks: set[tuple[str, Tokens, int]]) -> int:
    return sum((len(ids) - start) * ROW_BYTES for _, ids, start in blocks)


def common(first: Tokens, second: Tokens) -> int:
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))


TestResidentAgainstADictionary = ResidentMachine.TestCase
TestResidentAgainstADictionary.settings = settings(max_examples=NUM_EXAMPLES, stateful_step_count=30, deadline=None)
