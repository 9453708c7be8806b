"""What the small right server remembers between requests, and how a request becomes a story by it."""

from __future__ import annotations

import threading
from typing import Any, Final

from conformance.checker.answer import answer_of_response
from conformance.checker.client import Exchange
from conformance.golden.story import Frame, Story
from conformance.mutants.brain import BadRequestError, Cache, Request, story_of
from conformance.mutants.requests import read_request
from conformance.mutants.server_wrongs import BENDS, REFUSALS, without_unknown_tools

MODEL: Final = "right-1"


class State:
    """What the server remembers between requests."""

    def __init__(self, wrongs: frozenset[str]) -> None:
        self.wrongs = wrongs
        self.cache = Cache()
        self.stored: dict[str, dict[str, Any]] = {}
        self.chains: dict[str, list[tuple[str, str]]] = {}
        self.streams: dict[str, list[Frame]] = {}
        self.lock = threading.Lock()
        self.call_ids: set[str] = set()
        self.num_requests = 0
        self.num_touched = 0
        self.absent = {name.removeprefix("lacks-") for name in wrongs if name.startswith("lacks-")}
        """The protocols that it does not serve; where one is missing, the WebSocket is too."""

    def wrong(self, name: str) -> bool:
        return name in self.wrongs

    def answer(self, protocol: str, body: Any, known: dict[str, list[tuple[str, str]]] | None = None) -> tuple[Request, Story]:
        """Reads a request, continues its chain, thinks, counts."""
        with self.lock:
            self.num_requests += 1
            number = self.num_requests
            if isinstance(body, dict):
                body = self._bent_body(protocol, body)
            request = read_request(protocol, body, MODEL)
            self._continue(request, body, known)
            story = story_of(request, Cache() if self.wrong("never-cached") else self.cache, f"{number:05d}", MODEL)
        return request, bend(story, request, self.wrongs, number)

    def _bent_body(self, protocol: str, body: dict[str, Any]) -> dict[str, Any]:
        """The request as this server takes it. Raises BadRequestError for what it refuses though it should not."""
        for name in self.wrongs & set(REFUSALS):
            if REFUSALS[name](body):
                raise BadRequestError(400, "this server does not take that", "input")
        if self.wrong("max-tokens-optional") and protocol == "messages":
            body = {"max_tokens": 16, **body}
        if self.wrong("unknown-tools-dropped"):
            body = without_unknown_tools(body)
        if self.wrong("huge-limit-crashes") and (body.get("max_tokens") or 0) > 1_000_000:
            raise BadRequestError(500, "no memory for so many tokens")
        return body

    def _continue(self, request: Request, body: dict[str, Any], known: dict[str, list[tuple[str, str]]] | None) -> None:
        previous = body.get("previous_response_id")
        if request.protocol != "responses" or previous is None or self.wrong("previous-response-ignored"):
            return
        turns = (known or {}).get(previous) or self.chains.get(previous)
        if turns is None:
            raise BadRequestError(400, f"no response {previous!r}", "previous_response_id", "previous_response_not_found")
        self._check_outputs(body.get("input"))
        own = [turn for turn in request.turns if turn[0] != "system"]
        system = [turn for turn in request.turns if turn[0] == "system"]
        kept = turns if self.wrong("instructions-carried") else [turn for turn in turns if turn[0] != "system"]
        doubled = kept * 2 if self.wrong("context-doubles") else kept
        request.turns = [*system, *doubled, *own]

    def _check_outputs(self, items: Any) -> None:
        """The output of a call that nobody made is a fault of the client."""
        for item in items if isinstance(items, list) else ():
            if item.get("type") == "function_call_output" and item.get("call_id") not in self.call_ids:
                raise BadRequestError(400, f"no call {item.get('call_id')!r} in this conversation", "input")

    def remember(self, request: Request, response: dict[str, Any], frames: list[Frame], is_stored: bool) -> list[tuple[str, str]]:
        """The chain after this answer; kept where the request said so."""
        answer = answer_of_response(Exchange("responses", "", "", None, {}), response)
        self.call_ids |= {call.id for call in answer.calls}
        told = answer.text + "".join(f" call {call.name} {call.arguments}" for call in answer.calls)
        chain = [*request.turns, ("assistant", told)]
        if is_stored or self.wrong("stores-everything"):
            self.chains[response["id"]] = chain
            if not self.wrong("forgets-stored"):
                self.stored[response["id"]] = response
            self.streams[response["id"]] = frames
        return chain


def bend(story: Story, request: Request, wrongs: frozenset[str], number: int) -> Story:
    """Applies what the server does wrong to the generation itself."""
    for name in wrongs & set(BENDS):
        story = BENDS[name](story, request, number)
    return story
