"""Whether everything within reach in a client's Lark grammar can come to its end.

A rule ends if one of its alternatives holds only terminals and rules that end. One that does not is a trap: the mask would lead
an answer into it, and no token ever out again. A terminal without a text is one, too.

    start: "a" start            endless: no alternative without itself
    start: "x" | "a" far        `far` is the trap
    far: "b" far
    start: "x" | "a" BOTH       behind "a" nothing at all is allowed
    BOTH: /[0-9]+/ & /[a-z]+/

The grammar has been read by llguidance already, so what stands here is known to be right. Whatever is not understood here counts
as ending: nothing is refused on suspicion. Terminals cannot refer to themselves: whether they have a text, llguidance says.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
      (?P<skip>   [ \t\r]+ | //[^\n]* | \#[^\n]* )
    | (?P<line>   \n )
    | (?P<text>   "(?:\\.|[^"\\\n])*"i? | /(?:\\.|[^/\\\n])+/[imslux]* | <[^>\n]*> | @[\w.-]+ | %(?:json|regex)\b )
    | (?P<alias>  -> )
    | (?P<times>  ~\s*\d+(?:\s*\.\.\s*\d+)? | \{[\d\s,]*\} )
    | (?P<define> :(?!:) )
    | (?P<name>   [!?]?_?[A-Za-z][\w-]* )
    | (?P<order>  %(?:import|ignore|llguidance)\b[^\n]* )
    | (?P<sign>   [|()\[\]?*+] )
    | (?P<other>  \.\. | [&~=,] | \d+(?:\.\d+)? )
    """,
    re.VERBOSE,
)
_LEAST = re.compile(r"\d*")


class _NotUnderstood(Exception):
    """Something of Lark that is not read here."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


@dataclass(slots=True)
class _Group:
    """A rule's body, or what stands in parentheses: `needs` is what the alternative that is being read must hold."""

    symbol: str
    closer: str
    needs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Rules:
    """Of each rule, and of each group in one: what each alternative needs to end, and all that it mentions, expressions in
    slashes too. Terminals have no entry. `terminals`: the lines that define them, and the orders (`%import`)."""

    terminals: list[str] = field(default_factory=list)
    alternatives: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    mentioned: dict[str, list[str]] = field(default_factory=dict)

    def open(self, symbol: str) -> None:
        self.alternatives.setdefault(symbol, [])
        self.mentioned.setdefault(symbol, [])


def endless_rule(definition: str) -> str | None:
    """The first rule within reach of `start` that has no end; None: there is none, or the grammar is not understood."""
    try:
        rules = _read_rules(definition)
    except _NotUnderstood:
        return None
    ending = _ending(rules.alternatives)
    # What is wrong with a group is so because of a rule in it.
    endless = (name for name in _reached(rules) if name in rules.alternatives and name not in ending and "(" not in name)
    return next(endless, None)


def terminal_grammars(definition: str) -> dict[str, str]:
    """For each terminal within reach, and each expression in slashes, a grammar of its texts alone."""
    try:
        rules = _read_rules(definition)
    except _NotUnderstood:
        return {}
    lines = "\n".join(rules.terminals)
    return {name: f"start: {name}\n{lines}\n" for name in _reached(rules) if name not in rules.alternatives}


def _reached(rules: _Rules) -> Iterator[str]:
    """`start`, and all that is mentioned by what is reached."""
    reached, waiting = {"start"}, deque(["start"])
    while waiting:
        symbol = waiting.popleft()
        yield symbol
        following = [name for name in dict.fromkeys(rules.mentioned.get(symbol, ())) if name not in reached]
        waiting += following
        reached.update(following)


def _tokens(definition: str) -> Iterator[_Token]:
    position = 0
    while position < len(definition):
        found = _TOKEN.match(definition, position)
        if found is None:
            raise _NotUnderstood
        end = found.end()
        if found.group() in ("%json", "%regex"):
            end = _after_object(definition, end)
        if found.lastgroup != "skip":
            yield _Token(str(found.lastgroup), definition[position:end])
        position = end


def _after_object(definition: str, position: int) -> int:
    """Behind the JSON object that comes next; what braces its strings hold is of no account."""
    depth = 0
    for found in re.compile(r'"(?:\\.|[^"\\])*"|[{}]').finditer(definition, position):
        depth += {"{": 1, "}": -1}.get(found.group(), 0)
        if depth == 0:
            return found.end()
    raise _NotUnderstood


def _read_rules(definition: str) -> _Rules:
    rules = _Rules()
    for name, line in _statements(list(_tokens(definition))):
        if not name:
            rules.terminals.append(line[0].text)
        elif name.lstrip("_")[0].islower():
            _read_body(name, line, rules)
        else:
            rules.terminals.append(f"{name}: {' '.join(token.text for token in line)}")
    return rules


def _statements(tokens: list[_Token]) -> Iterator[tuple[str, list[_Token]]]:
    """Each definition's name and body; no name: an order. One ends with its line, unless the next begins with `|`."""
    lines: list[list[_Token]] = [[]]
    for token in tokens:
        if token.kind == "line":
            if lines[-1]:
                lines.append([])
        elif token.text == "|" and not lines[-1] and len(lines) > 1:
            lines.pop()
            lines[-1].append(token)
        else:
            lines[-1].append(token)
    for line in lines:
        if not line:
            continue
        if line[0].kind == "order":
            yield "", line
            continue
        define = next((index for index, token in enumerate(line) if token.kind == "define"), 0)
        if not define or line[0].kind != "name":
            raise _NotUnderstood
        yield line[0].text.lstrip("!?"), line[define + 1 :]


def _read_body(name: str, body: list[_Token], rules: _Rules) -> None:
    groups = [_Group(name, "")]
    rules.open(name)
    last: str | None = None
    """The rule or group that an operator would be about."""
    is_alias = False
    for index, token in enumerate(body):
        group, item, last = groups[-1], last, None
        if is_alias:
            is_alias = False
        elif token.kind == "alias":
            is_alias = True
        elif token.text in ("(", "["):
            symbol = f"{name}({index}"
            rules.open(symbol)
            rules.mentioned[group.symbol].append(symbol)
            groups.append(_Group(symbol, ")" if token.text == "(" else "]"))
        elif token.text == "|":
            rules.alternatives[group.symbol].append(tuple(group.needs))
            group.needs = []
        elif token.text in (")", "]"):
            if token.text != group.closer:
                raise _NotUnderstood
            rules.alternatives[group.symbol].append(tuple(group.needs))
            groups.pop()
            if token.text == ")":
                last = group.symbol
                groups[-1].needs.append(last)
        elif token.kind == "text" and token.text.startswith("/"):
            rules.mentioned[group.symbol].append(token.text)
        elif token.kind == "name":
            last = token.text
            group.needs.append(last)
            rules.mentioned[group.symbol].append(last)
        elif item is not None and _may_be_missing(token):
            group.needs.pop()
    if len(groups) != 1:
        raise _NotUnderstood
    rules.alternatives[name].append(tuple(groups[0].needs))


def _may_be_missing(operator: _Token) -> bool:
    if operator.kind != "times":
        return operator.text in ("?", "*")
    least = _LEAST.match(operator.text.lstrip("~{ \t"))
    return least is None or not least.group().strip("0")


def _ending(alternatives: dict[str, list[tuple[str, ...]]]) -> set[str]:
    """The rules that come to an end; each alternative is looked at once for every rule in it that does."""
    missing: dict[tuple[str, int], int] = {}
    users: dict[str, list[tuple[str, int]]] = defaultdict(list)
    ending: list[str] = []
    for symbol, bodies in alternatives.items():
        for index, needs in enumerate(bodies):
            rules = {name for name in needs if name in alternatives}
            missing[symbol, index] = len(rules)
            for name in rules:
                users[name].append((symbol, index))
            if not rules:
                ending.append(symbol)
    known: set[str] = set()
    while ending:
        symbol = ending.pop()
        if symbol in known:
            continue
        known.add(symbol)
        for user in users[symbol]:
            missing[user] -= 1
            if not missing[user]:
                ending.append(user[0])
    return known
