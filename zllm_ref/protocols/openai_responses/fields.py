"""Every field of a Responses request, and what becomes of it."""

from __future__ import annotations

from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.protocols.field_table import FieldTable, no_effect, refused, used

FIELDS = FieldTable(
    (
        *used("model", "input", "instructions", "previous_response_id", "stream", "stream_options", "store", "background"),
        *used("max_output_tokens", "temperature", "top_p", "top_logprobs", "include", "metadata", "truncation"),
        *used("tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "prompt_cache_key"),
        # Extensions, under the names that other open servers gave them.
        *used("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "ignore_eos"),
        *used("cache_id", "cache_salt"),
        no_effect("max_tool_calls", "number", "it counts calls of the vendor's built-in tools, of which none runs here"),
        no_effect("user", "string", "nobody is billed or blocked"),
        no_effect("safety_identifier", "string", "nobody is billed or blocked"),
        no_effect("service_tier", "string", "there is one tier; the answer says `default`"),
        no_effect("prompt_cache_retention", "string", "the cache keeps what fits its budget"),
        no_effect("prompt_cache_options", "object", "the cache finds the longest prefix by itself"),
        no_effect("client_metadata", "object", "telemetry of the client"),
        no_effect("access_programs", ("array", "object"), "there is one kind of access"),
        no_effect("background_options", "object", "a background answer runs until it ends or is cancelled"),
        refused("conversation", "there is no conversations endpoint: use `previous_response_id`"),
        refused("prompt", "there are no stored prompt templates"),
        refused("context_management", "compact with POST /v1/responses/compact", ()),
        refused("moderation", "there is no moderation model", False),
        refused("image", "the models here read and write text"),
        refused("personality", "the instructions say how the model is to speak"),
    )
)

STREAM_OPTIONS = FieldTable((no_effect("include_obfuscation", "boolean", "events carry no padding"),))

TEXT = FieldTable(
    (
        *used("format"),
        no_effect("verbosity", "string", "a hint for models that were trained to follow it"),
    )
)

REASONING = FieldTable(
    (
        *used("effort", "summary"),
        no_effect("generate_summary", "string", "the deprecated name of `summary`"),
        no_effect("context", "string", "all reasoning that comes back is rendered as the model's template has it"),
    )
)

# What an answer may be asked to contain. The kinds of item that the last ones extend never occur here.
INCLUDE = (
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
)

# Tools that run on the vendor's machines. None runs here: refused, or skipped and reported where the profile says so (RS23).
HOSTED_TOOLS = (
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "computer",
    "computer_use_preview",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
    "programmatic_tool_calling",
)

# Items that such tools leave in a conversation.
HOSTED_ITEMS = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "computer_call",
    "computer_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "tool_search_call",
    "tool_search_output",
)

MEDIA_PARTS = ("input_image", "input_file", "input_audio", "computer_screenshot", "output_image")

EMPTY_METADATA = JsonObject()
