"""What may be generated next: the machine between the model's logits and the sampler.

Knows: a grammar that a dialect wrote (`grammar`), a vocabulary's ids and bytes, JSON Schema, and what repetition looks like.
Must never know: an API's field names, a dialect's markers by heart, a tensor, where the logits came from.

How the engine uses it, once per model and once per lane:

    compiler = FenceCompiler(vocabulary)                        # keeps compiled grammars by content; one per loaded model
    request = FenceRequest(
        grammar=dialect's ToolGrammar for the request's tools,  # None: no tools
        tools=canonical tools, tool_choice=..., parallel_tool_calls=..., response_format=...,
        reasoning=dialect's ReasoningGrammar,                   # only needed where there is no `grammar`
        starts_in_reasoning=the prompt ends inside an open reasoning,
        may_open_reasoning=thinking is on,
        policy=FencePolicy.LENIENT)
    fence = build_fence(request, compiler, GuardSettings(...))  # None: nothing to hold, nothing to watch
    fence.problems                                              # rules that no mask holds: validate the finished call

`build_fence` raises `ApiError` with the path in the request for what must be held (strict tools, policy REFUSE) and cannot.
A `TokenFence` is the runtime's port (`allowed`, `forced`, `advance`, `clone`, `rollback`, `explain`), and besides tells the
engine its `phase` and the guard's `verdict` (STOP: the answer's end was the guard's doing). `legal_prefix(ids)` says how many
of some verified ids stay.

    reasoning ──▶ text ──trigger──▶ region ──▶ after ──stop id──▶ end          phase_machine, free_text, region
    masks inside a region: llguidance, from a Lark grammar                    lark, raw_text, compile
    what a schema asks and no mask holds                                      json_schema_fence, held_grammar, tool_fence
    loops, restarts, budgets                                                  generation_guard, piece_kinds
    the judge of it all, in plain Python                                      oracle, json_prefix
"""

from zllm_ref.fence.build import build_fence
from zllm_ref.fence.compile import FenceCompiler
from zllm_ref.fence.generation_guard import GenerationGuard
from zllm_ref.fence.guard_settings import GuardSettings, Verdict, Watch
from zllm_ref.fence.phase_machine import Phase
from zllm_ref.fence.token_fence import TokenFence
from zllm_ref.fence.tool_fence import FencePolicy, FenceRequest

__all__ = [
    "FenceCompiler",
    "FencePolicy",
    "FenceRequest",
    "GenerationGuard",
    "GuardSettings",
    "Phase",
    "TokenFence",
    "Verdict",
    "Watch",
    "build_fence",
]
