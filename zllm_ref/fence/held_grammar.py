"""A dialect's grammar brought into the form that the fence holds exactly, and the list of what had to be given up for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.fence.compile import FenceCompiler, UnfenceableGrammar
from zllm_ref.fence.grammar import (
    MAX_PARAMETERS,
    Choice,
    CustomText,
    JsonBySchema,
    JsonString,
    Literal,
    Marker,
    Node,
    Parameter,
    RawText,
    Repeat,
    Sequence,
    UnorderedParameters,
)
from zllm_ref.fence.json_schema_fence import SchemaProblem, hold_schema, loosened, type_only
from zllm_ref.fence.raw_text import holdable, unfenceable_keywords


@dataclass(slots=True)
class Holder:
    """Rewrites grammars for one compiler. `problems` grows; an unsolvable one is raised as UnfenceableGrammar."""

    compiler: FenceCompiler
    stop_ids: tuple[int, ...]
    problems: list[SchemaProblem] = field(default_factory=list)
    clean: dict[JsonObject, JsonObject] = field(default_factory=dict)
    """Schemas of which nothing was given up, as they are held: tools ask for the same few again and again."""

    def hold(self, node: Node) -> Node:
        match node:
            case Literal() | Marker():
                return node
            case Sequence():
                return Sequence(tuple(self.hold(item) for item in node.items))
            case Choice():
                return Choice(tuple(self.hold(option) for option in node.options))
            case Repeat():
                return replace(node, item=self.hold(node.item))
            case JsonBySchema():
                known = self.clean.get(node.schema)
                if known is not None:
                    return JsonBySchema(known, node.path)
                held = hold_schema(node.schema, node.path)
                self.problems += held.problems
                if not held.problems:
                    self.clean[node.schema] = held.schema
                return JsonBySchema(held.schema, node.path)
            case RawText():
                if node.schema is None:
                    return node
                self.problems += [
                    SchemaProblem(f"{node.path}.{keyword}", reason) for keyword, reason in unfenceable_keywords(node.schema)
                ]
                return replace(node, schema=holdable(node.schema))
            case UnorderedParameters():
                return self._parameters(node)
            case JsonString() if node.unheld:
                self.problems.append(SchemaProblem(node.path, node.unheld))
                return JsonString()
            case _:
                return node

    def loosen(self, node: Node) -> Node:
        """As `hold`, for a grammar that llguidance refused: finds the values at fault and gives up what it must of them."""
        match node:
            case Sequence():
                return Sequence(tuple(self.loosen(item) for item in node.items))
            case Choice():
                return Choice(tuple(self.loosen(option) for option in node.options))
            case Repeat():
                return replace(node, item=self.loosen(node.item))
            case UnorderedParameters():
                return replace(node, parameters=tuple(replace(one, node=self.loosen(one.node)) for one in node.parameters))
            case JsonBySchema():
                return self._loosest(node, [replace(node, schema=change(node.schema)) for change in (loosened, type_only)])
            case RawText():
                return self._loosest(node, [replace(node, schema=None)])
            case CustomText():
                return self._loosest(node, [RawText(node.closer, path=node.path)])
            case _:
                return node

    def _parameters(self, node: UnorderedParameters) -> Node:
        parameters = node.parameters
        if len(parameters) > MAX_PARAMETERS:
            kept = _most_needed(parameters)
            lost = [parameter.name for parameter in parameters if parameter not in kept]
            if any(parameter.required for parameter in parameters if parameter not in kept):
                raise UnfenceableGrammar(f"{node.path}: got {len(parameters)} required parameters, allowed {MAX_PARAMETERS}")
            self.problems.append(
                SchemaProblem(
                    node.path, f"got {len(parameters)} parameters, allowed {MAX_PARAMETERS}; left out: {', '.join(lost)}"
                )
            )
            parameters = kept
        held_parameters = tuple(Parameter(one.name, self.hold(one.node), one.required) for one in parameters)
        return UnorderedParameters(held_parameters, node.separator, node.path)

    def _loosest(self, node: JsonBySchema | RawText | CustomText, weaker: list[JsonBySchema] | list[RawText]) -> Node:
        reason = self._refusal(node)
        if reason is None:
            return node
        self.problems.append(SchemaProblem(node.path, reason))
        for candidate in weaker:
            if self._refusal(candidate) is None:
                return candidate
        raise UnfenceableGrammar(f"{node.path}: {reason}")

    def _refusal(self, node: Node) -> str | None:
        try:
            self.compiler.region(node, self.stop_ids)
        except UnfenceableGrammar as error:
            return first_line(str(error))
        return None


def collect_literals(node: Node, compiler: FenceCompiler, found: set[str]) -> None:
    """Every text that the grammar writes literally; markers without an id count as such."""
    match node:
        case Literal():
            found.add(node.text)
        case Marker():
            if compiler.vocabulary.marker_id(node.name) is None:
                found.add(node.name)
        case Sequence():
            for item in node.items:
                collect_literals(item, compiler, found)
        case Choice():
            for option in node.options:
                collect_literals(option, compiler, found)
        case Repeat():
            collect_literals(node.item, compiler, found)
            if node.separator is not None:
                collect_literals(node.separator, compiler, found)
        case RawText() | CustomText():
            for part in node.closer:
                collect_literals(part, compiler, found)
        case UnorderedParameters():
            collect_literals(node.separator, compiler, found)
            for parameter in node.parameters:
                collect_literals(parameter.node, compiler, found)


def broken_literals(root: Node, compiler: FenceCompiler) -> list[str]:
    """Literals that do not come back from the tokenizer's own encoding: forced runs of them would be another text."""
    vocabulary = compiler.vocabulary
    found: set[str] = set()
    collect_literals(root, compiler, found)
    texts = sorted(text for text in found if text and not (vocabulary.keeps_ascii and text.isascii()))
    encoded = vocabulary.encode_texts(texts) if texts else []
    return [
        text
        for text, ids in zip(texts, encoded, strict=True)
        if b"".join(vocabulary.token_bytes(token_id) for token_id in ids) != text.encode("utf-8")
    ]


def first_line(message: str) -> str:
    """llguidance's own words without its position and its copy of the grammar."""
    line = message.strip().splitlines()[0]
    return line.split("failed to compile JSON schema: ")[-1].strip()


def _most_needed(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """The required ones and the first optional ones, in their own order."""
    optional_places = MAX_PARAMETERS - sum(parameter.required for parameter in parameters)
    kept: list[Parameter] = []
    for parameter in parameters:
        if parameter.required:
            kept.append(parameter)
        elif optional_places > 0:
            kept.append(parameter)
            optional_places -= 1
    return tuple(kept[:MAX_PARAMETERS])
