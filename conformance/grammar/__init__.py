"""The order of events as data, and the small interpreter that walks it.

A protocol is one JSON file: its event kinds with the fields each must carry, and its *scopes*. A scope is a little state
machine with one instance a key: the stream (one), an item or block (one an index), a part of an item. An event makes one
move in each scope that it concerns; a move that the table does not list is a violation, and the table names the rule.

    responses      stream ─ item[output_index] ─ part[output_index, content_index]
                                               └ summary[output_index, summary_index]
    messages       stream ─ block[index]
    chat           stream ─ choice[index] ─ tool[index, tool index]

Knows: event kinds, fields, order. Must never know: values that span events (laws), bytes (the SSE decoder), a server.
Cheap enough to guard every frame that a server sends: a few microseconds an event, memory bounded by what is open.

    grammar = load_grammar("messages")
    machine = grammar.start()
    machine.accept("message_start", {...})    # -> [] or violations
    machine.finish()                          # -> [] or what is missing
"""

from conformance.grammar.grammar import PROTOCOLS, Grammar, load_grammar
from conformance.grammar.machine import DONE_MARKER, Machine
from conformance.grammar.session import SessionMachine
from conformance.grammar.violation import Violation

__all__ = ["DONE_MARKER", "PROTOCOLS", "Grammar", "Machine", "SessionMachine", "Violation", "load_grammar"]
