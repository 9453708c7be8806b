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
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, StrEnum

from zllm_ref.fence.phase_machine import Phase
from zllm_ref.fence.piece_kinds import PieceKind

# As plain ints: the operators of an IntFlag would cost more than all the rest of an advance.
_LINE, _CODE, _CUT, _WORDS = (int(kind) for kind in (PieceKind.LINE, PieceKind.CODE, PieceKind.CUT, PieceKind.WORDS))
_MARKS = _LINE | _CODE
_SPOKEN = int(PieceKind.BLANK | PieceKind.FOREIGN)

_MOST_PERIOD = 128
_GRAM = 4
_GRAM_MASK = (1 << (20 * _GRAM)) - 1
_MOST_GRAMS = 2048
"""So many places where four tokens stood are remembered; only the last `_MOST_PERIOD` are ever asked for."""
_LOOK_BACK = 4096
"""A run is followed at most this far back."""


class Verdict(StrEnum):
    """What the guard wants. In order: nothing; another token than `excluded`; the reasoning closed; the value closed; the
    call brought to its end; the answer ended."""

    GO_ON = "go on"
    EXCLUDE = "exclude"
    CLOSE_REASONING = "close reasoning"
    CLOSE_VALUE = "close value"
    END_CALL = "end call"
    STOP = "stop"


class Watch(IntFlag):
    """What is watched."""

    REPETITION = 1
    RESTART = 2
    BUDGETS = 4
    ALL = 7


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Bounds in tokens. A repetition counts from `copies` on, and only when it is at least so long in all."""

    watch: Watch = Watch.ALL
    copies: int = 4
    repeated_words: int = 96
    """Length of a repeated pattern with words in it."""
    repeated_token: int = 48
    """Length of a run of one word."""
    repeated_quiet: int = 1024
    """Length of a repeated pattern without words: blanks, digits, punctuation, unbroken strings as in base64."""
    strikes: int = 3
    """So many loops in the text of one answer end it."""
    restart_opening: int = 12
    restart_words: int = 9
    """So many tokens of the opening must be words: restarts are told in words, tables and logs are not."""
    restart_times: int = 3
    restart_between: int = 24
    """So many other tokens must lie between two openings: the lines of a list are no restarts."""
    restart_in_text: bool = False
    """A refrain begins alike three times, too; in reasoning nobody sings."""
    reasoning_budget: int | None = None
    value_budget: int | None = None
    call_budget: int | None = None


@dataclass(slots=True)
class _Slow:
    """What changes rarely; never changed in place (not frozen, because a frozen one takes four times as long to make).

    Positions count the tokens of the answer.
    """

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
        self._least_length = min(settings.repeated_words, settings.repeated_token, settings.repeated_quiet)
        self._opening_length = settings.restart_opening
        self._tokens: list[int] = []
        self._last: dict[int, int] = {}
        self._openings: dict[tuple[int, ...], tuple[int, int]] = {}
        self._history: _History | None = None
        self._period = self._run = self._gram = 0
        self._slow = _Slow(phase)

    @property
    def verdict(self) -> Verdict:
        return self._slow.verdict

    @property
    def excluded(self) -> int:
        """The token that would go on with the loop; meaningful with the verdict EXCLUDE."""
        return self._slow.excluded

    def advance(self, token_id: int, phase: Phase, *, is_free: bool, may_end: bool) -> None:
        """`token_id` was generated and led to `phase`. `is_free`: much else would have been allowed in its place.
        `may_end`: a call is complete behind it."""
        slow, position = self._slow, len(self._tokens)
        gram = ((self._gram << 20) | token_id) & _GRAM_MASK
        seen = self._last.get(gram)
        history = _History(self._history, self._period, self._run, self._gram, slow, seen)
        period, run = self._period, self._run
        if period and self._tokens[position - period] == token_id:
            run += 1
        elif seen is not None and position - seen <= _MOST_PERIOD and seen >= slow.free_start:
            period = position - seen
            run = self._matching(position, token_id, period, slow.free_start)
        else:
            period = run = 0
        self._tokens.append(token_id)
        self._last[gram] = position
        if not position & 1023:
            self._forget(position)
        self._period, self._run, self._gram = period, run, gram

        kind = self._kinds[token_id]
        if phase is not slow.phase or not is_free or kind & _MARKS or slow.verdict is not Verdict.GO_ON:
            slow = self._moved(slow, position, kind, phase, is_free, may_end)
        self._history = history
        nothing_new = run + period < self._least_length and position + 1 - slow.passage_start != self._opening_length
        if nothing_new and slow.verdict is Verdict.GO_ON and phase is Phase.TEXT:
            self._slow = slow
            return
        verdict, excluded = self._judge(slow, position, token_id, is_free)
        if verdict is not slow.verdict or excluded != slow.excluded:
            strikes = slow.strikes + (verdict is Verdict.EXCLUDE)
            slow = _Slow(
                slow.phase,
                slow.phase_start,
                slow.free_start,
                slow.call_start,
                slow.passage_start,
                strikes,
                slow.in_code,
                verdict,
                excluded,
            )
        self._slow = slow

    def _forget(self, position: int) -> None:
        if len(self._last) > _MOST_GRAMS:
            self._last = {gram: index for gram, index in self._last.items() if index > position - _MOST_GRAMS // 2}

    def clone(self) -> GenerationGuard:
        copy = object.__new__(GenerationGuard)
        copy.__dict__.update(self.__dict__)
        copy._tokens, copy._last, copy._openings = self._tokens.copy(), self._last.copy(), self._openings.copy()
        return copy

    def rollback(self, num_tokens: int) -> None:
        for _ in range(num_tokens):
            history = self._history
            if history is None:
                raise ValueError(f"guard rollback: got {num_tokens} tokens, allowed no more than were advanced")
            if history.seen is None:
                self._last.pop(self._gram, None)
            else:
                self._last[self._gram] = history.seen
            if history.opening is not None:
                if history.opened is None:
                    del self._openings[history.opening]
                else:
                    self._openings[history.opening] = history.opened
            self._period, self._run, self._gram, self._slow = history.period, history.run, history.gram, history.slow
            self._tokens.pop()
            self._history = history.previous
        if num_tokens > _MOST_GRAMS // 4:
            self._last = self._recent_grams()

    def explain(self) -> str:
        slow = self._slow
        repeating = f", {self._run + self._period} tokens repeat every {self._period}" if self._period else ""
        return f"guard {slow.verdict.value}{repeating}, strikes {slow.strikes}"

    # ---- what was seen ----------------------------------------------------------------------------------------------

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

    def _matching(self, position: int, token_id: int, period: int, start: int) -> int:
        """How many tokens up to this one equal the one a period before."""
        tokens = self._tokens
        index, run = position - 1, 1
        stop = max(start + period, position - _LOOK_BACK)
        while index >= stop and tokens[index] == tokens[index - period]:
            index -= 1
            run += 1
        return run

    # ---- what follows from it ---------------------------------------------------------------------------------------

    def _judge(self, slow: _Slow, position: int, token_id: int, is_free: bool) -> tuple[Verdict, int]:
        settings, phase = self._settings, slow.phase
        if slow.verdict is Verdict.STOP or phase is Phase.END:
            return slow.verdict, -1
        loops = self._watches_repetition and self._run + self._period >= self._least_length and self._loops(position)
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
        return Verdict.EXCLUDE, again if again >= 0 else self._tokens[position + 1 - self._period]

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
        length = self._run + period
        if not period or length < settings.copies * period:
            return False
        kind = 0
        for token_id in self._tokens[position + 1 - period : position + 1]:
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
        opening = tuple(self._tokens[start:])
        if sum(bool(self._kinds[token_id] & _WORDS) for token_id in opening) < settings.restart_words:
            return -1
        earlier = self._openings.get(opening)
        times, last = earlier or (0, start)
        if earlier is not None and start - last < settings.restart_opening + settings.restart_between:
            times -= 1  # nothing to speak of lies between: still the same beginning
        self._openings[opening] = (times + 1, start)
        assert self._history is not None
        self._history.opening, self._history.opened = opening, earlier
        return self._tokens[last + len(opening)] if times + 1 >= settings.restart_times else -1

    def _recent_grams(self) -> dict[int, int]:
        start = max(0, len(self._tokens) - _MOST_GRAMS // 2)
        grams: dict[int, int] = {}
        gram = 0
        for index in range(max(0, start - _GRAM), len(self._tokens)):
            gram = ((gram << 20) | self._tokens[index]) & _GRAM_MASK
            if index >= start:
                grams[gram] = index
        return grams


class _History:
    """What one advance changed, for the rollback; shared by all clones."""

    __slots__ = ("gram", "opened", "opening", "period", "previous", "run", "seen", "slow")

    def __init__(self, previous: _History | None, period: int, run: int, gram: int, slow: _Slow, seen: int | None) -> None:
        self.previous = previous
        self.period = period
        self.run = run
        self.gram = gram
        self.slow = slow
        self.seen = seen
        self.opening: tuple[int, ...] | None = None
        self.opened: tuple[int, int] | None = None
