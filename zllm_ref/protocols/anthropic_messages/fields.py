"""Every field of a Messages request, and what becomes of it."""

from __future__ import annotations

from zllm_ref.protocols.field_table import FieldTable, no_effect, refused, used

FIELDS = FieldTable(
    (
        *used("model", "messages", "system", "max_tokens", "stream", "stop_sequences"),
        *used("temperature", "top_p", "top_k", "tools", "tool_choice", "thinking"),
        *used("cache_control", "output_config", "context_management"),
        # Extensions, under the names that other open servers gave them.
        *used("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "ignore_eos"),
        *used("cache_id", "cache_salt"),
        no_effect("metadata", "object", "nobody is billed or blocked"),
        no_effect("service_tier", "string", "there is one tier; the answer says `standard`"),
        no_effect("inference_geo", "string", "there is one place"),
        no_effect("diagnostics", "object", "the counts in `usage` say what the cache did"),
        no_effect("betas", "array", "betas are named in a header, and change nothing here"),
        no_effect("user_profile_id", "string", "nobody is billed or blocked"),
        no_effect("workspace_id", "string", "there is one workspace"),
        no_effect("billing_policy", ("string", "object"), "nobody is billed"),
        no_effect("fallback_credit_token", "string", "nobody is billed"),
        refused("speed", "there is one speed", "standard"),
        refused("container", "there is no code execution"),
        refused("mcp_servers", "no tool runs on the server", ()),
        refused("fallbacks", "one model answers, or none", ()),
        refused("compaction", "the client decides what to leave out"),
        refused("thread", "there are no threads: send the messages"),
    )
)

# Block types that exist and cannot be read here.
MEDIA_BLOCKS = ("image", "document", "search_result", "container_upload")
