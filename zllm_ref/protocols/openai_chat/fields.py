"""Every field of a Chat Completions request, and what becomes of it."""

from __future__ import annotations

from zllm_ref.protocols.field_table import FieldTable, no_effect, refused, used

_TEXT_ONLY = "the models here read and write text"

FIELDS = FieldTable(
    (
        *used("model", "messages", "stream", "stream_options"),
        *used("max_tokens", "max_completion_tokens", "n", "stop", "seed"),
        *used("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
        *used("tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "prompt_cache_key"),
        # Extensions, under the names that other open servers gave them.
        *used("top_k", "min_p", "repetition_penalty", "ignore_eos", "cache_id", "cache_salt", "thinking", "reasoning"),
        no_effect("user", "string", "nobody is billed or blocked"),
        no_effect("safety_identifier", "string", "nobody is billed or blocked"),
        no_effect("metadata", "object", "chat answers are not kept, so there is nothing to label"),
        no_effect("store", "boolean", "chat answers are not kept: there is no endpoint here that would list them"),
        no_effect("service_tier", "string", "there is one tier; the answer says `default`"),
        no_effect("prompt_cache_retention", "string", "the cache keeps what fits its budget"),
        no_effect("prompt_cache_options", "object", "the cache finds the longest prefix by itself"),
        no_effect("verbosity", "string", "a hint for models that were trained to follow it"),
        refused("modalities", _TEXT_ONLY, ("text",), ()),
        refused("audio", _TEXT_ONLY),
        refused("prediction", "drafts come from the server's own sources"),
        refused("web_search_options", "there is no web search", False),
        refused("moderation", "there is no moderation model", False),
        refused("functions", "deprecated: use `tools`", ()),
        refused("function_call", "deprecated: use `tool_choice`", "none", "auto"),
    )
)

STREAM_OPTIONS = FieldTable(
    (
        *used("include_usage"),
        no_effect("include_obfuscation", "boolean", "chunks carry no padding"),
    )
)

REASONING = FieldTable(
    (
        *used("effort", "enabled", "max_tokens"),
        no_effect("summary", "string", "the reasoning itself is shown, as `reasoning_content`"),
        refused("exclude", "reasoning is shown, or not made (enabled: false)", False),
    )
)

# Content part types that exist and cannot be read here.
MEDIA_PARTS = ("image_url", "input_audio", "file", "video_url")
