"""The three wire protocols: JSON in, canonical request; canonical events in, frames out.

Knows: the field names, event names, error shapes and usage conventions of Chat Completions, Responses and Anthropic Messages.
Must never know: a socket, a clock, a tensor, a token id's meaning, a dialect's markers. Ids, times and keys are handed in by
the `RequestContext`; nothing here waits, reads or writes.

Each protocol has the same skeleton: `fields` (every documented field and what becomes of it), `request` (`parse_request`),
`stream` (`Stream.on(event) -> frames`), `response` (the unary object, folded from those very frames), `error` (its shape).
"""
