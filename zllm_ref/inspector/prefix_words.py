"""What is said of a cause: sentences by name, each with its values. The page says them in its reader's language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SENTENCES = {
    "changed": "It said {was} and says {now}.",
    "dialects": "The earlier prompt was written in {was}, this one in {now}.",
    "dialect_of_state": "A saved state begins with these tokens, written in {was}; this server writes {now}.",
    "tools_reordered": "The same {count} tools; place {place} had {was} and has {now}.",
    "tools_added": "Tools added: {names}.",
    "tools_removed": "Tools removed: {names}.",
    "tools_changed": "Tools changed: {names}.",
    "tools_counted": "Another number of tools.",
    "reasoning_by_client": "The answer's {count} characters of reasoning were left out by the client.",
    "reasoning_by_template": "The answer's {count} characters of reasoning were left out by the template.",
    "call_rewritten": "The call of {name} has the same arguments; it was written {was} and is {now}.",
    "begin_alike": "Both begin with the same {count} tokens and then ask different things.",
    "message_edited": "Message {message} ({role}) said {was} and says {now}.",
    "texts_differ": "After {count} equal tokens the texts differ.",
    "none_begins_alike": "No earlier state begins with the same token.",
    "none_shares": "No earlier request and no saved state shares a token.",
    "older_than_record": "The saved state is older than the record: only its tokens are known.",
    "salt_of_request": "An earlier request begins with these tokens, in another namespace (another salt); none is shared.",
    "salt_of_both": "The two requests ask for other namespaces (another salt): none of the state is shared.",
    "not_ended": "The earlier request had not ended when this one was let in: its state was not saved yet.",
    "not_cuttable": "The earlier state has {count} tokens; up to the fork at {fork} it cannot be cut.",
    "given_up": "An earlier request had computed these tokens; its state was given up meanwhile, or never kept.",
}

Value = str | int | tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """`values`: texts in question (strings), numbers, lists of names (tuples); `role` is a role's name."""

    name: str
    values: tuple[tuple[str, Value], ...] = ()

    @property
    def text(self) -> str:
        """In English."""
        return SENTENCES[self.name].format(**{name: _spelled(name, value) for name, value in self.values})

    def shown(self) -> dict[str, Any]:
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in self.values}
        return {"name": self.name, "values": values}


@dataclass(frozen=True)
class Named:
    """A cause, and what is to be said of it."""

    name: str
    said: tuple[Sentence, ...]

    @property
    def detail(self) -> str:
        return " ".join(sentence.text for sentence in self.said)


def cause(name: str, sentence: str, /, **values: Value) -> Named:
    """A cause of which one sentence is said."""
    return Named(name, (Sentence(sentence, tuple(values.items())),))


def _spelled(name: str, value: Value) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(repr, value))
    return repr(value) if isinstance(value, str) and name != "role" else str(value)
