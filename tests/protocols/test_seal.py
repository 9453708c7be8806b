from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.protocols.seal import Seal

OURS, OTHER = Seal(b"k" * 32), Seal(b"o" * 32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
def test_what_was_sealed_opens_with_its_own_key_alone(text: str) -> None:
    sealed = OURS.seal(text)

    assert OURS.open(sealed) == text
    assert OTHER.open(sealed) is None
    assert OURS.seal(text) == sealed


@given(TEXTS.filter(bool), st.data())
def test_a_changed_character_is_seen(text: str, data: st.DataObject) -> None:
    sealed = OURS.seal(text)
    place = data.draw(st.integers(3, len(sealed) - 5))
    changed = sealed[:place] + ("A" if sealed[place] != "A" else "B") + sealed[place + 1 :]

    assert OURS.open(changed) is None


@given(st.text())
def test_foreign_text_does_not_open(text: str) -> None:
    assert OURS.open(text) is None
    assert OURS.open("e1." + text) is None


def test_a_signature_belongs_to_its_text() -> None:
    signature = OURS.sign("thought")

    assert OURS.verify("thought", signature)
    assert not OURS.verify("thoughts", signature)
    assert not OTHER.verify("thought", signature)
    assert not OURS.verify("thought", "ü")


def test_a_key_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="got 5 bytes, allowed 32"):
        Seal(b"short")
