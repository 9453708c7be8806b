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
from collections.abc import Sequence
from dataclasses import dataclass

from zllm_ref.dialect.cursor import Tag
from zllm_ref.dialect.definitions import DSML
from zllm_ref.dialect.markup import Alphabet, Framing

_BLOCK_WORDS = ("tool_calls", "function_calls", "calls")


@dataclass(frozen=True, slots=True)
class _Atom:
    """One unit of a tag: what it may look like, and what its unfinished beginning may look like at the end of a text."""

    full: str
    beginning: str = ""


def _word(text: str) -> _Atom:
    """Exactly this text, in any case."""
    beginning = ""
    for character in reversed(text[:-1]):
        beginning = f"{re.escape(character)}(?:{beginning})?" if beginning else re.escape(character)
    return _Atom(re.escape(text), beginning)


def _either(atoms: Sequence[_Atom]) -> _Atom:
    return _Atom(
        f"(?:{'|'.join(atom.full for atom in atoms)})",
        "|".join(f"(?:{atom.beginning})" for atom in atoms if atom.beginning),
    )


_BLANKS = _Atom(r"\s*")
_BAR = _Atom(r"\\*[｜|]{1,2}", r"\\+")
_ATOMS = {
    "<": (_Atom(r"(?:\\*<|&lt;)\s*", r"\\+|&l?t?"),),
    ">": (_Atom(r"\s*(?:\\*>|&gt;)", r"\s*(?:\\+|&g?t?)|\s+"),),
    "/": (_Atom(r"\\*/\s*", r"\\+"),),
    '"': (_Atom(r"""\\*["']""", r"\\+"),),
    "=": (_Atom(r"\s*=", r"\s+"),),
    " ": (_BLANKS,),
    "\n": (_BLANKS,),
}
_DSML_SPELLED = (_BAR, _BLANKS, *map(_word, "DSML"), _BLANKS, _BAR)


def tolerant_tag(framing: Framing, alphabet: Alphabet) -> Tag:
    """The tag, spelled right or almost right; `framing` holds no line break at its ends."""
    atoms: list[_Atom] = []
    for piece in framing:
        if isinstance(piece, str):
            atoms += _atoms_of(piece)
        else:
            is_dsml = piece == DSML
            code, bar = re.escape(alphabet.code(piece)), "[｜|]?" if is_dsml else ""
            by_id = _Atom(f"{bar}{code}{bar}", bar.removesuffix("?"))
            atoms.append(_either([by_id, _joined(_DSML_SPELLED if is_dsml else _atoms_of(piece.name))]))
            atoms += [_BLANKS] if is_dsml else []
    whole = _joined(atoms)
    return Tag(
        alphabet.of_framing(framing),
        re.compile(whole.full, re.IGNORECASE),
        re.compile(rf"(?:{whole.beginning})\Z", re.IGNORECASE),
    )


def _atoms_of(text: str) -> list[_Atom]:
    atoms: list[_Atom] = []
    position = 0
    while position < len(text):
        word = next((word for word in _BLOCK_WORDS if text.startswith(f"{word}>", position)), None)
        if word is not None:
            atoms.append(_either([_word(other) for other in _BLOCK_WORDS]))
            position += len(word)
            continue
        atoms += _ATOMS.get(text[position]) or (_word(text[position]),)
        position += 1
    return atoms


def _joined(atoms: Sequence[_Atom]) -> _Atom:
    """The atoms in a row. Its beginning: some whole atoms, not all, and perhaps the beginning of the next one."""
    *others, last = atoms
    beginning = last.beginning
    for atom in reversed(others):
        rest = f"(?:{beginning})?" if beginning else ""
        beginning = f"{atom.full}{rest}" + (f"|{atom.beginning}" if atom.beginning else "")
    return _Atom("".join(atom.full for atom in atoms), beginning)
