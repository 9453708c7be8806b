"""Ids come out as text and markers, and a character is never cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zllm_ref.tokenizer import Detokenizer, MarkerPiece, Piece, TextPiece, byte_vocabulary

VOCABULARY = byte_vocabulary()
IM_END = VOCABULARY.markers["<|im_end|>"]


def spoken(ids: list[int]) -> list[Piece]:
    detokenizer = Detokenizer(VOCABULARY)
    pieces = [piece for token_id in ids for piece in detokenizer.push(token_id)]
    return [*pieces, *detokenizer.finish()]


def test_a_character_of_four_bytes_comes_out_with_its_last_byte() -> None:
    detokenizer = Detokenizer(VOCABULARY)

    counts = [len(detokenizer.push(byte)) for byte in "🜁".encode()]

    assert counts == [0, 0, 0, 1]


def test_a_marker_is_no_text() -> None:
    assert spoken([*b"hi", IM_END, *b"<|im_end|>"])[:3] == [TextPiece("h"), TextPiece("i"), MarkerPiece(IM_END, "<|im_end|>")]
    assert all(isinstance(piece, TextPiece) for piece in spoken(list(b"<|im_end|>")))


def test_a_marker_amid_a_character_breaks_the_character_and_not_itself() -> None:
    assert spoken([0xF0, 0x9F, IM_END, 0x61]) == [TextPiece("�"), MarkerPiece(IM_END, "<|im_end|>"), TextPiece("a")]


def test_an_unfinished_character_is_replaced_at_the_end_and_held_until_then() -> None:
    detokenizer = Detokenizer(VOCABULARY)

    assert detokenizer.push(0xE2) == ()
    assert detokenizer.held_bytes == b"\xe2"
    assert detokenizer.finish() == (TextPiece("�"),)
    assert detokenizer.finish() == ()


def test_a_clone_goes_its_own_way() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    detokenizer.push(0xC3)
    copy = detokenizer.clone()

    assert copy.push(0xA9) == (TextPiece("é"),)
    assert detokenizer.held_bytes == b"\xc3"


@given(st.binary(max_size=40))
def test_pieces_joined_are_the_bytes_decoded_at_once(data: bytes) -> None:
    text = "".join(piece.text for piece in spoken(list(data)))

    assert text == data.decode("utf-8", "replace")
