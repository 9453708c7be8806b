"""Shows what the model saw: a bounded record of the last requests, and what can be told from it.

Knows: the bytes that came and went, the conversation, the rendered segments, the ids, the cache's verdicts, the tokens of an
answer with how each came to be. It is told all of this by those who know it and works it out when somebody looks.

Must never know: how to serve a request. A server without an inspector answers the same bytes.
"""
