"""A reference LLM server: API conversation, tokens that the model sees, state that the device holds, kept aligned.

Two worlds, one bridge. *Words* (JSON, roles, tool names, text) live in `canonical`, `protocols`, `dialect`, `tokenizer`,
`fence`. *Numbers* (ids, positions, blocks, tensors) live in `cache` and `runtime`. `engine.py` is the only module that
imports both.
"""

__version__ = "0.1.0"
