"""Repair mode: how a tag is recognised that a model wrote almost right.

| what models write                                   | what it is read as                |
|-----------------------------------------------------|-----------------------------------|
| other case: `<TOOL_CALL>`, `<｜DSML｜INVOKE NAME="…">` | the tag                           |
| blanks inside a tag: `< tool_call >`, `</ tool_call>` | the tag                           |
| escapes: `\\<｜DSML｜invoke`, `&lt;tool_call&gt;`        | the tag                           |
| bars: `<|DSML|invoke`, `<｜｜DSML｜｜invoke`             | the DSML marker                   |
| another revision's block word: `function_calls`     | this revision's                   |
| a call without its block (or `<function=` alone)    | a call                            |
| a closing tag that closes nothing                   | nothing: it is left out           |

Every repair is reported. Values are never touched: only where a tag may stand is one looked for.
"""

from __future__ import annotations

import re

from zllm_ref.dialect.definitions import DSML
from zllm_ref.dialect.markup import Alphabet, Framing

_BLOCK_WORDS = ("tool_calls", "function_calls", "calls")
_BAR = r"\\*[｜|]{1,2}"
_TOLERANT = {
    "<": r"(?:\\*<|&lt;)\s*",
    ">": r"\s*(?:\\*>|&gt;)",
    "/": r"\\*/\s*",
    '"': r"""\\*["']""",
    "=": r"\s*=\s*",
    " ": r"\s*",
    "\n": r"\s*",
}


def tolerant_pattern(framing: Framing, alphabet: Alphabet) -> re.Pattern[str]:
    """A pattern that finds the tag in the parser's buffer, spelled right or almost right."""
    parts = []
    for piece in framing:
        if isinstance(piece, str):
            parts.append(_tolerant_text(piece))
        elif piece == DSML:
            parts.append(rf"(?:{re.escape(alphabet.code(DSML))}|{_BAR}\s*DSML\s*{_BAR})\s*")
        else:
            parts.append(f"(?:{re.escape(alphabet.code(piece))}|{_tolerant_text(piece.name)})")
    return re.compile("".join(parts), re.IGNORECASE)


def _tolerant_text(text: str) -> str:
    text = text.strip("\n")
    parts: list[str] = []
    position = 0
    while position < len(text):
        word = next((word for word in _BLOCK_WORDS if text.startswith(f"{word}>", position)), None)
        if word is not None:
            parts.append(f"(?:{'|'.join(_BLOCK_WORDS)})")
            position += len(word)
            continue
        character = text[position]
        parts.append(_TOLERANT.get(character) or re.escape(character))
        position += 1
    return "".join(parts)
