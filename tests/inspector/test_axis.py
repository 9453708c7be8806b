"""The token axis: every byte, character and segment has its tokens, whatever the text is made of."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from zllm_ref.canonical.message import Role
from zllm_ref.dialect import MarkerSegment, ReplaySegment, Segment, TextSegment, encode
from zllm_ref.dialect.segment import Author, Origin
from zllm_ref.inspector.axis import Axis
from zllm_ref.inspector.utf16 import Utf16Places
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary
from zllm_ref.tokenizer.bpe_encoder import BpeEncoder
from zllm_ref.tokenizer.byte_alphabet import BYTE_TO_CHARACTER

CLIENT = Origin(Role.USER, Author.CLIENT)
BYTES = byte_vocabulary()


def _words() -> Vocabulary:
    """A tokenizer that merges over the borders of segments, and composes characters first."""
    letters = [BYTE_TO_CHARACTER[byte] for byte in range(256)]
    merges = [
        ("a", "b"),
        ("ab", "a"),
        (BYTE_TO_CHARACTER[0xC3], BYTE_TO_CHARACTER[0xA9]),
        (" ".replace(" ", BYTE_TO_CHARACTER[32]), "a"),
    ]
    pieces = [*letters, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    table = {character: byte for byte, character in BYTE_TO_CHARACTER.items()}
    spelled = [bytes(table[character] for character in piece) for piece in pieces]
    return Vocabulary([*spelled, b"<|end|>"], {"<|end|>": len(spelled)}, BpeEncoder(tokenizer, "words"))


WORDS = _words()

texts = st.text(st.sampled_from("ab é🌧字\n😀́") | st.characters(codec="utf-8"), min_size=1, max_size=6)
segments = st.lists(
    st.one_of(
        texts.map(lambda text: TextSegment(text, CLIENT)),
        st.just("marker"),
        st.lists(st.integers(0, 255), min_size=1, max_size=5).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def _made(plan: list[object], vocabulary: Vocabulary) -> list[Segment]:
    marker = "<|end|>" if vocabulary is WORDS else "<|im_end|>"
    marker_id = vocabulary.marker_id(marker)
    assert marker_id is not None
    made: list[Segment] = []
    for one in plan:
        if isinstance(one, tuple):
            made.append(ReplaySegment(one, vocabulary.decode(one), Origin(Role.ASSISTANT, Author.MODEL)))
        else:
            made.append(one if isinstance(one, TextSegment) else MarkerSegment(marker_id, marker, CLIENT))
    return made


def _axis(plan: list[object], vocabulary: Vocabulary, output: list[int]) -> Axis:
    made = _made(plan, vocabulary)
    return Axis(vocabulary, made, encode(made, vocabulary), output)


@given(segments, st.lists(st.integers(0, 255), max_size=6))
@example([(0xF0,), TextSegment("x", CLIENT)], [0x9F, 0x8C])
def test_the_bytes_of_the_axis_are_the_bytes_of_its_tokens(plan: list[object], output: list[int]) -> None:
    axis = _axis(plan, BYTES, output)

    assert b"".join(BYTES.token_bytes(token) for token in axis.ids.tolist()) == axis.data
    assert axis.text == axis.data.decode("utf-8", "replace")
    assert axis.num_utf16 == len(axis.text.encode("utf-16-le")) // 2


@given(segments, st.lists(st.integers(0, 255), max_size=6))
@example(["marker", TextSegment("🌧", CLIENT)], [0xF0, 0x9F])
@example(["marker"], [128])
def test_a_tokens_utf16_span_is_the_text_of_its_characters(plan: list[object], output: list[int]) -> None:
    axis = _axis(plan, BYTES, output)
    units = axis.text.encode("utf-16-le")

    for token in range(axis.num_tokens):
        span = axis.bytes_of((token, token + 1))
        start, end = axis.utf16(span)
        shown = units[2 * start : 2 * end].decode("utf-16-le")
        if axis.is_whole(token):
            assert shown == axis.data[slice(*span)].decode()
        else:
            assert len(shown) == 1


@given(segments)
def test_every_segment_has_the_bytes_of_its_own_text(plan: list[object]) -> None:
    made = _made(plan, BYTES)
    axis = Axis(BYTES, made, encode(made, BYTES))

    assert len(axis.placed) == len(made)
    place = 0
    for segment, placed in zip(made, axis.placed, strict=True):
        assert placed.segment is segment
        assert placed.bytes[0] == place
        place = placed.bytes[1]
        if not isinstance(segment, ReplaySegment):
            assert axis.data[slice(*placed.bytes)] == segment.text.encode()
        assert placed.tokens == axis.tokens_of(placed.bytes)
    assert place == len(axis.data)


@given(st.lists(texts.map(lambda text: TextSegment(text, CLIENT)), min_size=1, max_size=6))
@example([TextSegment("a", CLIENT), TextSegment("ba", CLIENT)])
@example([TextSegment("e", CLIENT), TextSegment("\u0301", CLIENT)])
def test_a_token_over_a_border_belongs_to_both_segments(plan: list[Segment]) -> None:
    axis = Axis(WORDS, plan, encode(plan, WORDS))

    assert axis.placed[-1].bytes[1] == len(axis.data)
    covered = set()
    for placed in axis.placed:
        assert placed.tokens == axis.tokens_of(placed.bytes) or placed.bytes[0] == placed.bytes[1]
        covered |= set(range(*placed.tokens))
    assert covered == set(range(axis.num_tokens))


def test_the_joint_token_of_two_segments_is_in_both_spans() -> None:
    plan: list[Segment] = [TextSegment("a", CLIENT), TextSegment("b", CLIENT)]

    axis = Axis(WORDS, plan, encode(plan, WORDS))

    assert axis.num_tokens == 1
    assert [placed.tokens for placed in axis.placed] == [(0, 1), (0, 1)]
    assert [placed.bytes for placed in axis.placed] == [(0, 1), (1, 2)]


def test_each_token_names_the_first_segment_that_it_belongs_to() -> None:
    axis = _axis(["marker", TextSegment("ab", CLIENT), "marker"], BYTES, [97])

    assert [axis.segment_of(token) for token in range(axis.num_tokens)] == [0, 1, 1, 2, 3]


@given(st.text(max_size=20))
def test_places_in_utf16_are_those_of_an_encoder(text: str) -> None:
    places = Utf16Places(text)

    for index in range(len(text) + 1):
        assert places(index) == len(text[:index].encode("utf-16-le", "surrogatepass")) // 2


def test_a_character_that_is_composed_moves_the_borders_behind_it() -> None:
    plan: list[Segment] = [TextSegment("e\u0301", CLIENT), TextSegment("xy", CLIENT)]

    axis = Axis(WORDS, plan, encode(plan, WORDS))

    assert axis.text == "éxy"
    assert [placed.bytes for placed in axis.placed] == [(0, 2), (2, 4)]
    assert [placed.tokens for placed in axis.placed] == [(0, 1), (1, 3)]
