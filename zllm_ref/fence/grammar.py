"""The grammar of tool calls, as data: a dialect writes it, the fence compiles it, the oracle interprets it.

One definition, two readers that know nothing of each other: `compile` turns it into a grammar for llguidance (fast masks),
`oracle` walks it byte by byte in plain Python (slow, and the judge of the first). Nodes are frozen and hashable, so that a
compiled fence is found again by the digest of its grammar.

How an answer is laid out
-------------------------

    reasoning  close  after_close │ free text   lead  trigger │ head  call (between call)*  closing │ stop id
    └──── ReasoningGrammar ─────┘ └ auto only ┘ └─────────────────── ToolGrammar ───────────────────────────┘

`auto`      free text runs unfenced; a scan waits for the trigger; from the trigger on the region's grammar decides.
`required`  no free text: the first token after the reasoning belongs to `lead`.
`named`     as required, with one candidate and one call.
`none`      free text in which the trigger cannot occur.

The three revisions that differ most, written out (bare = Marker, quotes = Literal, ⏎ = newline):

    DSML V4   lead "⏎⏎<"   trigger ｜DSML｜   head "tool_calls>⏎"
              call "<" ｜DSML｜ 'invoke name="f">⏎' UnorderedParameters(separator "⏎") "⏎</" ｜DSML｜ "invoke>"
              between "⏎"   closing "⏎</" ｜DSML｜ "tool_calls>"
    GLM 4.7   lead ""   trigger <tool_call>   head ""
              call "f" UnorderedParameters(separator "") </tool_call>
              between <tool_call>   closing ""
    ChatML    lead ""   trigger <tool_call>   head ""
              call '⏎{"name": "f", "arguments": {' UnorderedParameters(separator ", ") "}}⏎" </tool_call>
              between "⏎" <tool_call>   closing ""

So a `call` starts after the trigger and the head for the first one, after `between` for each further one: where each call
has its own opener (GLM, ChatML), the opener is the trigger and `between` ends with it again.

Rules for whoever writes a grammar
----------------------------------
* `Marker` names an added token by its spelling. Where the vocabulary has no such id the fence spells it as text ("text
  mode"); never put a marker's spelling into a `Literal`.
* `Literal` is exact; the tokenizer's own encoding of it is checked when the fence is built.
* Neighbouring alternatives may share any prefix ("\\n" + "<" … against "\\n</" …): the compiler factors them.
* A value goes into `RawText` (schema says string, the dialect does not escape) or `JsonBySchema` (everything else).
* JSON is written with `", "` and `": "` and no other whitespace, as `canonical.json_value.dump_json` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from zllm_ref.canonical.json_value import JsonObject


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this text, as text tokens: never an added token, whatever it spells. May be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Marker:
    """The added token with this spelling (`Marker("<tool_call>")`), as its id; as spelled text in text mode."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; empty: nothing."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of these. At least one option."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item`, `minimum` to `maximum` times (None: no upper bound), with `separator` between two of them."""

    item: Node
    minimum: int = 0
    maximum: int | None = None
    separator: Node | None = None


@dataclass(frozen=True, slots=True)
class JsonBySchema:
    """A JSON value that the schema accepts. `schema` must stand alone: `$ref` resolves within it (copy `$defs` into it).

    `path` names the place in the client's request for error messages, e.g. `tools[0].parameters.properties.city`.
    """

    schema: JsonObject
    path: str = ""


@dataclass(frozen=True, slots=True)
class JsonString:
    """A JSON string in its quotes, any content. `unheld`: what was asked of it, and cannot be held, of the place `path`."""

    unheld: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class RawText:
    """Unescaped text up to and including `closer`; no token in it that would open markup.

    A closer that holds a Marker with an id ends the value by that id, and the spelled closer is ordinary text in the value.
    A closer of plain text (and every closer in text mode) ends the value where it occurs first; so the value cannot contain it.
    `excludes`: further strings that the value must not contain (what a text parser would take for markup).
    `schema`: string rules for the value: enum, const, minLength, maxLength, pattern. Other keywords: see the fence's policy.
    """

    closer: tuple[Literal | Marker, ...]
    schema: JsonObject | None = None
    excludes: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True)
class CustomText:
    """The input of a custom tool: text of a grammar (`syntax` is `lark` or `regex`), up to and including `closer`.

    The closer must hold a Marker (in text mode: the grammar's own end is the value's end, then the closer follows).
    """

    syntax: str
    definition: str
    closer: tuple[Literal | Marker, ...]
    path: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a call: `node` is all of it, from its own opener to its own closer, without separators."""

    name: str
    node: Node
    required: bool


@dataclass(frozen=True, slots=True)
class UnorderedParameters:
    """Each parameter at most once, in any order, all required ones before the node can end; `separator` between two.

    The node may be the empty text when nothing is required. Up to MAX_PARAMETERS; a call with more is the policy's case.
    Whatever follows the node in its Sequence may share a prefix with `separator` or with a parameter.
    """

    parameters: tuple[Parameter, ...]
    separator: Node = field(default_factory=lambda: Literal(""))
    path: str = ""


Node: TypeAlias = (
    Literal | Marker | Sequence | Choice | Repeat | JsonBySchema | JsonString | RawText | CustomText | UnorderedParameters
)

MAX_PARAMETERS = 64
"""The compiled fence counts parameters in one 64-bit word."""

NOTHING = Sequence(())


@dataclass(frozen=True, slots=True)
class ReasoningGrammar:
    """How thinking begins and ends.

    `close` ends it; `after_close` is the text that the dialect puts between that and the content ("\\n\\n" in ChatML Qwen3,
    "" in GLM 4.7), in `required` mode it stands before `lead`. `opens_with`: what the model itself writes to open its
    reasoning where the prompt has not (GLM 4.5: Literal("\\n"), Marker("<think>")); text behind the
    marker counts as reasoning; empty: only the prompt opens it.
    """

    close: Marker
    after_close: str = ""
    opens_with: tuple[Literal | Marker, ...] = ()


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """One candidate: the tool's name as the client knows it, and its whole call (see the module's picture)."""

    name: str
    node: Node


@dataclass(frozen=True, slots=True)
class ToolGrammar:
    """Everything that the fence needs to know of a dialect for one request's tools.

    `digest`    of what the grammar was made from: the same digest is the same grammar. Empty: nobody said.

    `lead`      text that canonically stands before the trigger. In `auto` only its last `trigger_needs` must be there.
    `trigger`   arms the region in `auto`: a Marker, or a Literal for dialects whose opener is plain text.
    `trigger_needs`  text that must stand directly before the trigger (DSML: "<"); the trigger is masked elsewhere.
    `calls`     one entry per tool, in the client's order; the fence picks the candidates that tool_choice allows.
    `stop_markers`   every token that ends the turn, by spelling (GLM has three); they are added to the vocabulary's own.
    """

    revision: str
    trigger: Marker | Literal
    calls: tuple[CallGrammar, ...]
    lead: str = ""
    trigger_needs: str = ""
    head: Node = NOTHING
    between: Node = NOTHING
    closing: Node = NOTHING
    stop_markers: tuple[str, ...] = ()
    reasoning: ReasoningGrammar | None = None
    digest: str = ""
