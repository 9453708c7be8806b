"""Who only looks on ends no answer, whatever he raises and wherever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.conversation import ask, new_engine, request
from zllm_ref.config import DraftSettings
from zllm_ref.engine.script import SCRIPTED_TEXT

GUESSES = DraftSettings("prompt_lookup", 5)
PLACES = ("open", "on_started", "on_tokens", "on_round", "on_ended", "on_closed")


class Watcher:
    """Both kinds of observer in one: writes down what it hears, and raises at the named call."""

    num_alternatives = 0

    def __init__(self, raises_at: str) -> None:
        self.heard: list[str] = []
        self._raises_at = raises_at

    def open(self, *_: object) -> Watcher:
        self._hear("open")
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in PLACES:
            raise AttributeError(name)
        return lambda *_: self._hear(name)

    def _hear(self, place: str) -> None:
        self.heard.append(place)
        if place == self._raises_at:
            raise RuntimeError(f"planted fault of an onlooker in {place}")


@pytest.mark.parametrize("place", PLACES)
def test_an_observer_that_raises_hears_nothing_more_and_the_answer_is_whole(place: str, caplog: pytest.LogCaptureFixture) -> None:
    engine, watcher = new_engine(draft=GUESSES), Watcher(place)
    observer: Any = watcher
    engine.observer = observer
    try:
        with caplog.at_level(logging.ERROR):
            answer = ask(engine, request("hi"))
    finally:
        engine.close()

    assert answer.text() == SCRIPTED_TEXT
    assert watcher.heard[-1] == place
    assert watcher.heard.count(place) == 1
    assert f"planted fault of an onlooker in {place}" in caplog.text


@pytest.mark.parametrize("draft", [GUESSES, DraftSettings()], ids=["guesses", "plain"])
def test_an_honest_observer_hears_everything_in_order_and_of_rounds_where_somebody_guesses(draft: DraftSettings) -> None:
    engine, watcher = new_engine(draft=draft), Watcher("nowhere")
    observer: Any = watcher
    engine.observer = observer
    try:
        ask(engine, request("hi"))
    finally:
        engine.close()

    assert list(dict.fromkeys(watcher.heard)) == [place for place in PLACES if place != "on_round" or draft is GUESSES]
