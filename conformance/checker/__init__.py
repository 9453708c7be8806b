"""Bytes in, violations out; and asking a server, judging what it says, reporting it.

    sse ─► stream_check ─► grammar machine   order, fields
                       └─► laws              values that span events
                       └─► unary_check       the same answer, unary
    client ─► scenarios ─► verdict ─► report

Knows: the three wire formats. Must never know: an implementation. Memory does not grow with the length of a stream:
joined texts are kept as running digests, tool arguments as the state of a JSON scanner.
"""

from conformance.checker.sse import Frame, SseDecoder
from conformance.checker.stream_check import StreamCheck, check_file
from conformance.checker.unary_check import check_error_body, check_unary

__all__ = ["Frame", "SseDecoder", "StreamCheck", "check_error_body", "check_file", "check_unary"]
