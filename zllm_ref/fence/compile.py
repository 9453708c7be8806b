"""Grammar trees made ready to run: compiled once per content, kept by it.

One `FenceCompiler` per loaded model, owned by whoever owns the vocabulary; it keeps llguidance's view of the vocabulary (a
trie over all pieces, the expensive part) and the last compiled grammars. A compiled grammar is never moved: every region
starts from a copy of it.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, regex_to_lark

from zllm_ref.fence.free_text import TokenIndex
from zllm_ref.fence.grammar import Node
from zllm_ref.fence.lark import write_lark
from zllm_ref.fence.lark_ends import endless_rule, terminal_grammars
from zllm_ref.fence.piece_kinds import piece_kinds
from zllm_ref.fence.raw_text import UnfenceableText, has_text
from zllm_ref.fence.region import Region
from zllm_ref.fence.shortest_text import shortest_text
from zllm_ref.tokenizer import Vocabulary

_T = TypeVar("_T")

_LIMITS = LLParserLimits(max_items_in_row=20_000, step_max_items=500_000, step_lexer_fuel=2_000_000, verbose_errors=False)
"""Wide enough for some hundred tools; what does not fit is refused when the fence is built."""


class UnfenceableGrammar(ValueError):
    """llguidance refuses the grammar; the message is its reason."""


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A grammar ready to run. `root` is the tree that it came from, for the oracle and for explanations."""

    root: Node
    stop_ids: tuple[int, ...]
    prototype: LLMatcher
    tokenizer: LLTokenizer
    is_forcing: bool = True
    """Where the text goes on in one way only, the tokenizer's own ids for it are the only ones allowed."""

    def open(self) -> Region:
        return Region(self.root, self.prototype, is_forcing=self.is_forcing)

    def spell(self, data: bytes) -> list[int]:
        """Some ids that spell `data` (bytes that a token carried over into the region)."""
        return list(self.tokenizer.tokenize_bytes(data)) if data else []

    def may_begin(self, data: bytes) -> bool:
        ids = self.spell(data)
        return bool(self.prototype.deep_copy().validate_tokens(ids) == len(ids))


class FenceCompiler:
    """Compiles for one vocabulary. `capacity` grammars are kept, the least recently used goes first."""

    def __init__(self, vocabulary: Vocabulary, *, capacity: int = 64) -> None:
        self.vocabulary = vocabulary
        self.index = TokenIndex(vocabulary)
        self.kinds = piece_kinds(self.index.pieces)
        self._tokenizers: dict[tuple[int, ...], LLTokenizer] = {}
        self._regions: DigestCache[CompiledRegion] = DigestCache(capacity)
        self._customs: DigestCache[LLMatcher] = DigestCache(capacity)
        self.plans: DigestCache[Any] = DigestCache(capacity)
        """Whole requests, under a digest of all that their phases follow from."""

    def region(self, root: Node, stop_ids: Sequence[int], *, is_forcing: bool = True) -> CompiledRegion:
        """The compiled grammar of `root`; every one of `stop_ids` is legal where it may end. Raises UnfenceableGrammar.

        `is_forcing` False: the tokenizer does not give texts back unchanged, so its spelling is never insisted on.
        """
        stops = tuple(sorted(set(stop_ids)))
        try:
            source = write_lark(root, self.vocabulary.marker_id, is_forcing=is_forcing).source()
        except UnfenceableText as error:
            raise UnfenceableGrammar(str(error)) from None
        return self._regions.get(digest_of(source, stops), lambda: self._compile(root, stops, is_forcing, source))

    def reads(self, syntax: str, definition: str, text: str) -> bool:
        """Whether a custom tool's grammar takes the whole text. Raises UnfenceableGrammar."""
        matcher = self.custom_matcher(syntax, definition)
        ids = self.tokenizer(self.vocabulary.stop_ids).tokenize_bytes(text.encode("utf-8", "surrogatepass"))
        return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())

    def custom_matcher(self, syntax: str, definition: str) -> LLMatcher:
        """A matcher of one text of a custom tool's grammar, at its beginning. Raises UnfenceableGrammar: it cannot be read."""
        return self._customs.get(digest_of(syntax, definition), lambda: self._compile_custom(syntax, definition)).deep_copy()

    def _compile_custom(self, syntax: str, definition: str) -> LLMatcher:
        source = f"start: /{regex_to_lark(definition)}/" if syntax == "regex" else definition
        stops = self.vocabulary.stop_ids
        grammars = json.dumps({"grammars": [{"lark_grammar": source}]})
        matcher = LLMatcher(self.tokenizer(stops), grammars, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise UnfenceableGrammar(str(matcher.get_error()))
        if not has_text(source):
            raise UnfenceableGrammar("no text satisfies it")
        if syntax == "lark":
            _check_ends(definition)
        return matcher

    def shortest_text(self, syntax: str, definition: str) -> str | None:
        """A short text of a custom tool's grammar; None: none was found. Raises UnfenceableGrammar."""
        return shortest_text(self.custom_matcher(syntax, definition), self.index.pieces)

    def tokenizer(self, stop_ids: Sequence[int]) -> LLTokenizer:
        """llguidance's view of the vocabulary with these ends. Raises UnfenceableGrammar where there is no end."""
        stops = tuple(sorted(set(stop_ids)))
        if not stops:
            raise UnfenceableGrammar("stop ids: got none, allowed at least one (a fenced answer could never end)")
        found = self._tokenizers.get(stops)
        if found is None:
            wrapper = TokenizerWrapper(_Pieces(self.vocabulary, self.index, stops))
            found = self._tokenizers[stops] = LLTokenizer(wrapper, eos_token=list(stops))
        return found

    def _compile(self, root: Node, stops: tuple[int, ...], is_forcing: bool, source: str) -> CompiledRegion:
        matcher = LLMatcher(self.tokenizer(stops), source, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise UnfenceableGrammar(str(matcher.get_error()))
        return CompiledRegion(root, stops, matcher, self.tokenizer(stops), is_forcing)


def _check_ends(definition: str) -> None:
    """Raises UnfenceableGrammar where an answer could get into something that has no end."""
    endless = endless_rule(definition)
    if endless is not None:
        raise UnfenceableGrammar(f"no text of rule {endless} comes to an end")
    for name, grammar in terminal_grammars(definition).items():
        if not has_text(grammar):
            raise UnfenceableGrammar(f"no text satisfies {name}")


def digest_of(*parts: object) -> str:
    """A digest of the parts' texts, in order."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


class DigestCache(Generic[_T]):
    """Keeps what was made under its digest; the least recently used goes first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._made: OrderedDict[str, _T] = OrderedDict()

    def get(self, digest: str, make: Callable[[], _T]) -> _T:
        found = self._made.get(digest)
        if found is None:
            found = self._made[digest] = make()
            while len(self._made) > self._capacity:
                self._made.popitem(last=False)
        self._made.move_to_end(digest)
        return found


class _Pieces:
    """The vocabulary in the shape that llguidance reads."""

    def __init__(self, vocabulary: Vocabulary, index: TokenIndex, stop_ids: tuple[int, ...]) -> None:
        self.tokens = index.pieces
        self.special_token_ids = sorted(index.marker_ids)
        self.eos_token_id = stop_ids[0]
        self.bos_token_id = None
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.encode_text(text)
