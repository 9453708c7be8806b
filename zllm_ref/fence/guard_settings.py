"""What the guard watches, from when on it counts, and what it may want."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, StrEnum


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

    @property
    def least_length(self) -> int:
        """No repetition shorter than this counts."""
        return min(self.repeated_words, self.repeated_token, self.repeated_quiet)
