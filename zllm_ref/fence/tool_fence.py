"""From one request to the phases of its answer: which tools may be called, how often, from where on, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, dump_json
from zllm_ref.canonical.request import (
    CustomTool,
    FunctionTool,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
    TextFormat,
    Tool,
    ToolChoice,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.fence.compile import CompiledRegion, FenceCompiler, UnfenceableGrammar, digest_of
from zllm_ref.fence.free_text import FreeText
from zllm_ref.fence.grammar import CallGrammar, Choice, Literal, Marker, Node, ReasoningGrammar, Repeat, Sequence, ToolGrammar
from zllm_ref.fence.held_grammar import Holder, broken_literals, first_line
from zllm_ref.fence.json_schema_fence import SchemaProblem, response_node
from zllm_ref.fence.phase_machine import Opening, PhasePlan


class FencePolicy(StrEnum):
    """What happens to a rule of a schema that no mask can hold."""

    LENIENT = "lenient"
    """It is left out and reported in `problems`; whoever reads the call validates it. Strict tools are refused all the same."""
    STRICT = "strict"
    """The request is an error that names the path in the schema, for every tool."""


@dataclass(frozen=True, slots=True)
class FenceRequest:
    """What a request says about the form of its answer.

    `grammar`      the dialect's, for the tools of the request; None: the request has no tools
    `tools`        the canonical tools; their `strict` decides what must be held (names as in `grammar.calls`)
    `reasoning`    where there is no `grammar`, or to overrule its own
    `starts_in_reasoning`  the prompt ends inside an open reasoning
    `may_open_reasoning`   the model may open one itself, as the first thing it says (where the dialect knows how); False where
                   thinking is off, or the prompt has opened and closed it already
    """

    grammar: ToolGrammar | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoiceAuto)
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = field(default_factory=TextFormat)
    reasoning: ReasoningGrammar | None = None
    starts_in_reasoning: bool = False
    may_open_reasoning: bool = True
    max_calls: int = 64
    policy: FencePolicy = FencePolicy.LENIENT


@dataclass(frozen=True, slots=True)
class PlannedFence:
    """`problems`: what the fence does not hold although the request asks for it. Empty: a finished call is a legal call."""

    plan: PhasePlan
    problems: tuple[SchemaProblem, ...] = ()


def constrains(request: FenceRequest) -> bool:
    """Something is to be held: without tools and a format of the answer, free text is free."""
    return request.grammar is not None or not isinstance(request.response_format, TextFormat)


def candidates(grammar: ToolGrammar, choice: ToolChoice) -> tuple[CallGrammar, ...]:
    """The calls that the choice allows. Raises ApiError for a choice of tools that are not there."""
    if isinstance(choice, ToolChoiceNone):
        return ()
    names = (choice.name,) if isinstance(choice, ToolChoiceNamed) else choice.allowed
    if names is None:
        chosen = grammar.calls
    else:
        known = [call.name for call in grammar.calls]
        for name in names:
            if name not in known:
                raise ApiError(
                    ErrorKind.INVALID_VALUE,
                    f"tool_choice: got {name!r}, allowed {', '.join(known) or 'no tool'}",
                    param="tool_choice",
                )
        chosen = tuple(call for call in grammar.calls if call.name in names)
    if not chosen and isinstance(choice, ToolChoiceRequired | ToolChoiceNamed):
        raise ApiError(ErrorKind.INVALID_VALUE, "tool_choice: got a call required, allowed only with tools", param="tool_choice")
    return chosen


def plan_fence(request: FenceRequest, compiler: FenceCompiler) -> PlannedFence:
    """The phases of the answer; the same ones for the same request. Raises ApiError for what must be held and cannot be."""
    grammar = request.grammar
    if grammar is not None and not grammar.digest:
        return _Planner(request, compiler).plan()
    answer = request.response_format
    digest = digest_of(
        grammar.digest if grammar is not None else "no tools",
        request.tool_choice,
        request.parallel_tool_calls,
        (answer.strict, dump_json(answer.schema)) if isinstance(answer, JsonSchemaFormat) else answer,
        request.reasoning,
        request.starts_in_reasoning,
        request.may_open_reasoning,
        request.max_calls,
        request.policy,
        [tool.name for tool in request.tools if getattr(tool, "strict", False)],
    )
    planned: PlannedFence = compiler.plans.get(digest, lambda: _Planner(request, compiler).plan())
    return planned


def plan_free(request: FenceRequest, compiler: FenceCompiler) -> PhasePlan:
    """Reasoning and text told apart, nothing forbidden: what the guard needs to know where nothing else is fenced."""
    reasoning = request.reasoning
    stops = compiler.vocabulary.stop_ids
    text = FreeText(compiler.index, trigger=None, ends=stops, masks=False)
    return PhasePlan(
        compiler.vocabulary,
        stops,
        request.starts_in_reasoning,
        reasoning=None
        if reasoning is None
        else FreeText(compiler.index, trigger=_trigger(reasoning.close, "", compiler), ends=stops, masks=False),
        opening=_opening(request, reasoning, compiler),
        text=text,
    )


class _Planner:
    def __init__(self, request: FenceRequest, compiler: FenceCompiler) -> None:
        self.request = request
        self.compiler = compiler
        grammar = request.grammar
        markers = grammar.stop_markers if grammar is not None else ()
        own = (compiler.vocabulary.marker_id(name) for name in markers)
        self.stops = tuple(sorted({*compiler.vocabulary.stop_ids, *(token_id for token_id in own if token_id is not None)}))
        self.reasoning = request.reasoning or (grammar.reasoning if grammar is not None else None)
        self.problems: list[SchemaProblem] = []
        self._clean: dict[JsonObject, JsonObject] = {}

    def plan(self) -> PlannedFence:
        request, grammar = self.request, self.request.grammar
        if not self.stops:
            raise ApiError(ErrorKind.UNSUPPORTED, "vocabulary: got no token that ends a turn, allowed at least one for a fence")
        self._read_custom_grammars()
        chosen = candidates(grammar, request.tool_choice) if grammar is not None else ()
        tools = self._held_region(grammar, chosen) if grammar is not None and chosen else None
        answer = self._held_answer()
        must_call = isinstance(request.tool_choice, ToolChoiceRequired | ToolChoiceNamed)

        text: FreeText | None = None
        region: CompiledRegion | None = None
        first: CompiledRegion | None = None
        if answer is None and not (must_call and tools is not None):
            region = self._compiled(tools) if tools is not None else None
            text = self._text(grammar, region)
        else:
            roots = [answer] if answer is not None and not must_call else []
            roots += (
                [Sequence((Literal(grammar.lead), grammar.trigger, tools))] if grammar is not None and tools is not None else []
            )
            root = roots[0] if len(roots) == 1 else Choice(tuple(roots))
            region, first = self._at_once(root)
        plan = PhasePlan(
            self.compiler.vocabulary,
            self.stops,
            request.starts_in_reasoning,
            reasoning=self._reasoning(text, region),
            opening=_opening(request, self.reasoning, self.compiler),
            text=text,
            region=region,
            first_region=first,
        )
        return PlannedFence(plan, tuple(self.problems))

    def _read_custom_grammars(self) -> None:
        """Whatever the policy and wherever it is held: a grammar that nobody can read is the client's mistake."""
        for index, tool in enumerate(self.request.tools):
            if not isinstance(tool, CustomTool) or tool.grammar is None:
                continue
            try:
                self.compiler.custom_matcher(*tool.grammar)
            except UnfenceableGrammar as error:
                path = tool.path or f"tools[{index}].format.definition"
                got = f"got {tool.grammar[1][:80]!r} ({first_line(str(error))})"
                allowed = (
                    "an expression of Rust's syntax"
                    if tool.grammar[0] == "regex"
                    else "a Lark grammar whose start rule is there and whose rules all come to an end"
                )
                raise ApiError(ErrorKind.INVALID_VALUE, f"{path}: {got}, allowed {allowed}", param=path) from None

    # ---- the region ------------------------------------------------------------------------------------------------

    def _held_region(self, grammar: ToolGrammar, chosen: tuple[CallGrammar, ...]) -> Node:
        """Everything from the trigger on."""
        calls = tuple(self._held(call.node, self._is_strict(call), call.name) for call in chosen)
        one_only = not self.request.parallel_tool_calls or isinstance(self.request.tool_choice, ToolChoiceNamed)
        most = 1 if one_only else self.request.max_calls
        call = calls[0] if len(calls) == 1 else Choice(calls)
        return Sequence((grammar.head, Repeat(call, 1, most, grammar.between), grammar.closing))

    def _held_answer(self) -> Node | None:
        response_format = self.request.response_format
        if isinstance(response_format, TextFormat):
            return None
        assert isinstance(response_format, JsonObjectFormat | JsonSchemaFormat)
        strict = isinstance(response_format, JsonSchemaFormat) and response_format.strict
        return self._held(response_node(response_format), strict, "response_format")

    def _held(self, node: Node, strict: bool, name: str) -> Node:
        holder = Holder(self.compiler, self.stops, clean=self._clean)
        try:
            held = holder.hold(node)
        except UnfenceableGrammar as error:
            raise _refused(str(error), name) from None
        self._report(holder, strict)
        return held

    def _report(self, holder: Holder, strict: bool) -> None:
        if holder.problems and (strict or self.request.policy is FencePolicy.STRICT):
            problem = holder.problems[0]
            raise ApiError(ErrorKind.INVALID_VALUE, str(problem), param=problem.path)
        self.problems += holder.problems

    def _is_strict(self, call: CallGrammar) -> bool:
        return any(
            isinstance(tool, FunctionTool) and tool.strict and call.name in (tool.name, f"{tool.namespace}.{tool.name}")
            for tool in self.request.tools
        )

    def _compiled(self, root: Node) -> CompiledRegion:
        """Compiled; where llguidance refuses it, once more with the values at fault loosened."""
        is_forcing = self._is_spelled_right(root)
        try:
            return self.compiler.region(root, self.stops, is_forcing=is_forcing)
        except UnfenceableGrammar:
            holder = Holder(self.compiler, self.stops)
            try:
                loosened = holder.loosen(root)
                strict_paths = tuple(
                    tool.path or f"tools[{i}]." for i, tool in enumerate(self.request.tools) if getattr(tool, "strict", False)
                )
                is_strict = any(problem.path.startswith(strict_paths) for problem in holder.problems) if strict_paths else False
                answer = self.request.response_format
                is_strict |= isinstance(answer, JsonSchemaFormat) and answer.strict
                self._report(holder, is_strict)
                return self.compiler.region(loosened, self.stops, is_forcing=is_forcing)
            except UnfenceableGrammar as error:
                raise _refused(first_line(str(error)), "tools") from None

    def _is_spelled_right(self, root: Node) -> bool:
        """The tokenizer gives every literal back as it was; else nothing may be forced in its spelling."""
        broken = broken_literals(root, self.compiler)
        if not broken:
            return True
        problem = SchemaProblem("tools", f"the tokenizer does not give {broken[0]!r} back")
        if self.request.policy is FencePolicy.STRICT:
            raise ApiError(ErrorKind.UNSUPPORTED, str(problem), param="tools")
        if problem not in self.problems:
            self.problems.append(problem)
        return False

    def _at_once(self, root: Node) -> tuple[CompiledRegion, CompiledRegion | None]:
        """(the region behind a reasoning, the region at the very beginning of an answer)."""
        reasoning = self.reasoning
        if reasoning is None:
            return self._compiled(root), None
        if self.request.starts_in_reasoning:
            return self._compiled(Sequence((Literal(reasoning.after_close), root))), None
        opening = _opening(self.request, reasoning, self.compiler)
        if opening is None:
            return self._compiled(root), None
        first = self._compiled(Choice((Sequence((Literal(opening.text.decode()), opening.marker)), root)))
        return self._compiled(Sequence((Literal(reasoning.after_close), root))), first

    # ---- free text -------------------------------------------------------------------------------------------------

    def _text(self, grammar: ToolGrammar | None, region: CompiledRegion | None) -> FreeText:
        trigger = None if grammar is None else _trigger(grammar.trigger, grammar.trigger_needs, self.compiler)
        if region is None and isinstance(trigger, int):
            trigger = None  # masked like every other marker
        return FreeText(
            self.compiler.index,
            trigger=trigger,
            needs=b"" if grammar is None or region is None else grammar.trigger_needs.encode(),
            ends=self.stops,
            legal=_never if region is None else region.may_begin,
        )

    def _reasoning(self, text: FreeText | None, region: CompiledRegion | None) -> FreeText | None:
        if self.reasoning is None:
            return None
        return FreeText(
            self.compiler.index,
            trigger=_trigger(self.reasoning.close, "", self.compiler),
            legal=_legal_content(text, region),
        )


def _trigger(trigger: Marker | Literal, needs: str, compiler: FenceCompiler) -> int | bytes:
    if isinstance(trigger, Marker):
        token_id = compiler.vocabulary.marker_id(trigger.name)
        return (needs + trigger.name).encode() if token_id is None else token_id
    return (needs + trigger.text).encode()


def _opening(request: FenceRequest, reasoning: ReasoningGrammar | None, compiler: FenceCompiler) -> Opening | None:
    """Only where the marker has an id: a spelled one does not open a reasoning."""
    if reasoning is None or not reasoning.opens_with or request.starts_in_reasoning or not request.may_open_reasoning:
        return None
    text = ""
    for part in reasoning.opens_with:  # what follows the marker is reasoning
        if isinstance(part, Marker):
            token_id = compiler.vocabulary.marker_id(part.name)
            return None if token_id is None else Opening(text.encode(), part, token_id)
        text += part.text
    return None


def _never(data: bytes) -> bool:
    return False


def _legal_content(text: FreeText | None, region: CompiledRegion | None) -> Callable[[bytes], bool]:
    """Whether the content behind a reasoning may begin with these bytes."""

    def legal(data: bytes) -> bool:
        if text is None:
            return region is not None and region.may_begin(data)
        following = text.after_bytes(FreeText.START, data)
        if following >= 0:
            return True
        return region is not None and region.may_begin(data[len(data) + 1 + following :])

    return legal


def _refused(message: str, name: str) -> ApiError:
    path = message.split(": ")[0] if message.startswith(("tools[", "input[", "response_format")) else name
    return ApiError(ErrorKind.INVALID_VALUE, message, param=path)
