"""The guard: sees when a model no longer gets anywhere, and says what may be done about it.

It watches ids, never probabilities, and forbids nothing by itself: it gives a `Verdict`, and `TokenFence` turns that into a
mask that still leaves a way to the end.

    what it sees                          reasoning           free text                    inside a value
    one token, again and again            close it            exclude it, at last stop     close the value
    a pattern of up to 128 tokens         close it            exclude it, at last stop     close the value
    a passage begun for the third time    close it            (off, see `restart_in_text`)  –
    a budget used up                      close it            –                            close the value / the call

Repetition is exact: the last tokens equal those one period before. What has no words (indentation, rulers, zeros, base64) may
repeat much longer than what has, because people ask for such things. Structure is never counted: only tokens that were chosen
where much was allowed.

Most tokens change nothing, and cost next to nothing (`take`): a repetition that is not followed yet is looked for at every
`stride`th token only, which is early enough to count it to the token; a repetition that is followed is compared token by token.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

from zllm_ref.fence.guard_settings import GuardSettings, Verdict, Watch
from zllm_ref.fence.phase_machine import Phase
from zllm_ref.fence.piece_kinds import PieceKind
from zllm_ref.fence.token_log import TokenLog

# As plain ints: the operators of an IntFlag would cost more than all the rest of an advance.
_LINE, _CODE, _CUT, _WORDS = (int(kind) for kind in (PieceKind.LINE, PieceKind.CODE, PieceKind.CUT, PieceKind.WORDS))
_MARKS = _LINE | _CODE
_DIGITS = int(PieceKind.DIGITS)
_SPOKEN = int(PieceKind.BLANK | PieceKind.FOREIGN)

_MOST_PERIOD = 128
_GRAM = 4
"""A repetition is found by so many tokens that stood there before."""
_MOST_STRIDE = 32
_LOOK_BACK = 4096
"""A run is followed at most this far back."""


@dataclass(frozen=True, slots=True)
class _Slow:
    """What changes rarely. Positions count the tokens of the answer."""

    phase: Phase
    phase_start: int = 0
    free_start: int = 0
    """Here the text, or the value, began in which repetition is looked for."""
    call_start: int = 0
    passage_start: int = 0
    strikes: int = 0
    in_code: bool = False
    verdict: Verdict = Verdict.GO_ON
    excluded: int = -1


class GenerationGuard:
    """One per lane. `kinds[id]` says what the piece of an id is made of (`piece_kinds`)."""

    def __init__(self, settings: GuardSettings, kinds: bytes, phase: Phase) -> None:
        self._settings = settings
        self._kinds = kinds
        self._watches_repetition = Watch.REPETITION in settings.watch
        self._least_length = settings.least_length
        self._stride = _stride(settings)
        self._log = TokenLog()
        self._tail = self._log.tail
        self._openings: dict[tuple[int, ...], tuple[int, int]] = {}
        self._changes: _Change | None = None
        self._period = self._run_start = 0
        """The last tokens, from `run_start` on, equal those one period before; period 0: they equal nothing."""
        self._slow = _Slow(phase)
        self._calm_left = self._count_calm()

    @property
    def verdict(self) -> Verdict:
        return self._slow.verdict

    @property
    def excluded(self) -> int:
        """The token that would go on with the loop; meaningful with the verdict EXCLUDE."""
        return self._slow.excluded

    def take(self, token_id: int) -> bool:
        """As `advance` for a token of free text that stays in its phase; False: something may change, ask `advance`."""
        if self._calm_left <= 0 or self._kinds[token_id] & _MARKS:
            return False
        self._calm_left -= 1
        self._tail.append(token_id)
        return True

    def advance(self, token_id: int, phase: Phase, *, is_free: bool, may_end: bool) -> None:
        """`token_id` was generated and led to `phase`. `is_free`: much else would have been allowed in its place.
        `may_end`: a call is complete behind it."""
        log, slow = self._log, self._slow
        log.settle()
        position = len(log)
        log.tail.append(token_id)
        period, run_start = self._period, self._run_start
        if period:
            if log[position - period] != token_id:
                period, run_start = self._repetition(position, slow.free_start)
        elif not position % self._stride:
            period, run_start = self._repetition(position, slow.free_start)
        kind = self._kinds[token_id]
        is_free = is_free or bool(kind & _DIGITS)  # little else may go on with a number, and yet it need not end
        if phase is not slow.phase or not is_free or kind & _MARKS or slow.verdict is not Verdict.GO_ON:
            slow = self._moved(slow, position, kind, phase, is_free, may_end)
            if slow.free_start > position:
                period = run_start = 0  # structure is never counted
        self._changes = _Change(self._changes, position, self._period, self._run_start, self._slow)
        self._period, self._run_start = period, run_start
        verdict, excluded = self._judge(slow, position, token_id, is_free)
        if verdict is not slow.verdict or excluded != slow.excluded:
            strikes = slow.strikes + (verdict is Verdict.EXCLUDE)
            slow = replace(slow, strikes=strikes, verdict=verdict, excluded=excluded)
        self._slow = slow
        self._calm_left = self._count_calm()

    def clone(self) -> GenerationGuard:
        """Costs the tail of the tokens, not all of them."""
        copy = object.__new__(GenerationGuard)
        copy.__dict__.update(self.__dict__)
        copy._log, copy._openings = self._log.clone(), self._openings.copy()
        copy._tail = copy._log.tail
        return copy

    def rollback(self, num_tokens: int) -> None:
        """Raises ValueError for more tokens than were advanced."""
        self._log.drop(num_tokens)
        length = len(self._log)
        while self._changes is not None and self._changes.position >= length:
            change = self._changes
            if change.opening is not None:
                if change.opened is None:
                    del self._openings[change.opening]
                else:
                    self._openings[change.opening] = change.opened
            self._period, self._run_start, self._slow = change.period, change.run_start, change.slow
            self._changes = change.previous
        self._calm_left = self._count_calm()

    def explain(self) -> str:
        slow = self._slow
        length = len(self._log) - self._run_start + self._period
        repeating = f", {length} tokens repeat every {self._period}" if self._period else ""
        return f"guard {slow.verdict.value}{repeating}, strikes {slow.strikes}"

    # ---- what was seen ----------------------------------------------------------------------------------------------

    def _count_calm(self) -> int:
        """So many tokens of free text, none of which ends a line, can change nothing."""
        slow, settings, position = self._slow, self._settings, len(self._log)
        if slow.verdict is not Verdict.GO_ON or self._period:
            return 0
        calm = -position % self._stride
        opening = slow.passage_start + self._settings.restart_opening - 1 - position
        if opening >= 0:
            calm = min(calm, opening)
        if slow.phase is Phase.REASONING and settings.reasoning_budget is not None:
            calm = min(calm, slow.phase_start + settings.reasoning_budget - 1 - position)
        return calm

    def _moved(self, slow: _Slow, position: int, kind: int, phase: Phase, is_free: bool, may_end: bool) -> _Slow:
        """The slow part after a token that changes it."""
        following = position + 1
        phase_start, free_start, call_start, passage = slow.phase_start, slow.free_start, slow.call_start, slow.passage_start
        in_code = slow.in_code ^ bool(kind & _CODE)
        if phase is not slow.phase:
            phase_start = free_start = call_start = passage = following
            in_code = False
        elif not is_free:
            free_start = following
        if may_end:
            call_start = following
        if kind & _LINE:
            passage = following
        sticky = slow.verdict if slow.verdict is Verdict.STOP else Verdict.GO_ON
        return _Slow(phase, phase_start, free_start, call_start, passage, slow.strikes, in_code, sticky)

    def _repetition(self, position: int, start: int) -> tuple[int, int]:
        """The shortest period at which the last tokens stood there before, and from where on they repeat; (0, 0): none."""
        self._log.settle()
        data = array("I", self._log.tail[-(_MOST_PERIOD + _GRAM) :]).tobytes()
        gram = data[-4 * _GRAM :]
        if len(gram) < 4 * _GRAM:
            return 0, 0
        found = data.rfind(gram, 0, len(data) - 4)
        while found % 4 and found >= 0:
            found = data.rfind(gram, 0, found + len(gram) - 1)
        if found < 0:
            return 0, 0
        period = (len(data) - len(gram) - found) // 4
        return (period, self._matching(position, period, start)) if position - period >= start else (0, 0)

    def _matching(self, position: int, period: int, start: int) -> int:
        """The first of the tokens up to this one that equal the one a period before."""
        log, index = self._log, position - 1
        stop = max(start + period, position - _LOOK_BACK)
        while index >= stop and log[index] == log[index - period]:
            index -= 1
        return index + 1

    # ---- what follows from it ---------------------------------------------------------------------------------------

    def _judge(self, slow: _Slow, position: int, token_id: int, is_free: bool) -> tuple[Verdict, int]:
        settings, phase = self._settings, slow.phase
        if slow.verdict is Verdict.STOP or phase is Phase.END:
            return slow.verdict, -1
        loops = self._watches_repetition and bool(self._period) and self._loops(position)
        if phase is Phase.REGION:
            return self._judge_region(slow, position, loops, is_free)
        again = -1
        if position + 1 - slow.passage_start == settings.restart_opening:
            again = self._restarted(slow, position)
        loops = loops or again >= 0
        if phase is Phase.REASONING:
            used = position + 1 - slow.phase_start
            spent = (
                Watch.BUDGETS in settings.watch and settings.reasoning_budget is not None and used >= settings.reasoning_budget
            )
            if not (loops or spent):
                return Verdict.GO_ON, -1
            is_cut = self._kinds[token_id] & _CUT and used < (settings.reasoning_budget or used) + _GRAM
            return (Verdict.GO_ON if is_cut else Verdict.CLOSE_REASONING), -1
        if not loops:
            return Verdict.GO_ON, -1
        if slow.strikes >= settings.strikes:
            return Verdict.STOP, -1
        return Verdict.EXCLUDE, again if again >= 0 else self._log[position + 1 - self._period]

    def _judge_region(self, slow: _Slow, position: int, loops: bool, is_free: bool) -> tuple[Verdict, int]:
        settings = self._settings
        if Watch.BUDGETS in settings.watch:
            if settings.call_budget is not None and position + 1 - slow.call_start >= settings.call_budget:
                return Verdict.END_CALL, -1
            value = position + 1 - slow.free_start
            if settings.value_budget is not None and is_free and value >= settings.value_budget:
                return Verdict.CLOSE_VALUE, -1
        return (Verdict.CLOSE_VALUE if loops else Verdict.GO_ON), -1

    def _loops(self, position: int) -> bool:
        settings, period = self._settings, self._period
        length = position + 1 - self._run_start + period
        if length < settings.copies * period or length < self._least_length:
            return False
        kind = 0
        for token_id in self._log.tail[-period:]:
            kind |= self._kinds[token_id]
        if not (kind & _WORDS and kind & _SPOKEN):
            return length >= settings.repeated_quiet
        return length >= (settings.repeated_token if period == 1 else settings.repeated_words)

    def _restarted(self, slow: _Slow, position: int) -> int:
        """The passage that has just got its opening has begun so twice before: the token that came next then; -1: it has not."""
        settings, start = self._settings, slow.passage_start
        if slow.in_code or Watch.RESTART not in settings.watch:
            return -1
        if slow.phase is not Phase.REASONING and not (settings.restart_in_text and slow.phase is Phase.TEXT):
            return -1
        opening = tuple(self._log.tail[start - len(self._log) :])
        if sum(bool(self._kinds[token_id] & _WORDS) for token_id in opening) < settings.restart_words:
            return -1
        earlier = self._openings.get(opening)
        times, last = earlier or (0, start)
        if earlier is not None and start - last < settings.restart_opening + settings.restart_between:
            times -= 1  # nothing to speak of lies between: still the same beginning
        self._openings[opening] = (times + 1, start)
        assert self._changes is not None
        self._changes.opening, self._changes.opened = opening, earlier
        return self._log[last + len(opening)] if times + 1 >= settings.restart_times else -1


@dataclass(slots=True)
class _Change:
    """What held before the token at `position`, for the rollback; shared by all clones."""

    previous: _Change | None
    position: int
    period: int
    run_start: int
    slow: _Slow
    opening: tuple[int, ...] | None = None
    opened: tuple[int, int] | None = None


def _stride(settings: GuardSettings) -> int:
    """A repetition shows after its period and a gram; it must be found before it can count, so before `least_length` tokens
    of it and before `copies` periods."""
    room = settings.least_length * (settings.copies - 1) // max(1, settings.copies) - _GRAM
    return max(1, min(_MOST_STRIDE, room))
