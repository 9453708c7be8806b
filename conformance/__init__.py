"""A conformance suite for Chat Completions, Responses (SSE and WebSocket) and Anthropic Messages, for any server.

Knows: the three wire formats, their rules, what a broken rule does to which client, and how to ask a server over HTTP.
Must never know: an implementation. Nothing here imports `zllm_ref` or torch; the base install is enough.

    grammar/       order of events as data, one JSON a protocol, and the small interpreter that walks it
    requirements/  every rule: id, level, sentence, source, how it is checked, whom it hurts
    checker/       bytes in, violations out: SSE decoder, laws across events, comparison with the unary answer, reports
    golden/        streams that must pass, streams that must fail, whole exchanges
    mutants/       planted faults, in streams and in a server
    proof/         tests: every planted fault is seen, nothing right is
    commands/      check · run · report · mutants · recordings · record · rules
"""
