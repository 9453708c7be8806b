"""Vocabularies from code, from a tokenizer.json and from GGUF metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from zllm_ref.tokenizer import Vocabulary, VocabularyError, byte_vocabulary, vocabulary_from_gguf
from zllm_ref.tokenizer.byte_alphabet import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE
from zllm_ref.tokenizer.gguf_metadata import read_gguf_metadata
from zllm_ref.tokenizer.json_vocabulary import vocabulary_from_tokenizer_json

MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>")
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "Ġ"), ("Ġ", "w"), ("i", "m"), ("<", "|"))


def words() -> dict[str, int]:
    """Markers first (as in SmolLM2), then bytes, then merged pieces."""
    pieces = [*MARKERS, *(BYTE_TO_CHARACTER[byte] for byte in range(256)), *("".join(pair) for pair in MERGES)]
    return {piece: index for index, piece in enumerate(pieces)}


def write_gguf(path: Path, **changes: Any) -> Path:
    writer = GGUFWriter(path, "llama")
    tokens = list(words())
    writer.add_tokenizer_model(changes.get("model", "gpt2"))
    writer.add_tokenizer_pre(changes.get("pre", "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in MARKERS else 1 for token in tokens])
    writer.add_token_merges(changes.get("merges", [" ".join(pair) for pair in MERGES]))
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def write_tokenizer_json(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=words(), merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(marker, special=marker != "<tool_call>") for marker in MARKERS])
    tokenizer.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    return tokenizer


@pytest.fixture(params=["bytes", "gguf", "json"])
def vocabulary(request: pytest.FixtureRequest, tmp_path: Path) -> Vocabulary:
    if request.param == "bytes":
        return byte_vocabulary()
    if request.param == "gguf":
        return vocabulary_from_gguf(write_gguf(tmp_path / "model.gguf"))
    write_tokenizer_json(tmp_path)
    return vocabulary_from_tokenizer_json(tmp_path)


HOSTILE = st.lists(
    st.sampled_from([*MARKERS, "<|im_", "end|>", "<tool", "_call>", "<", ">", "|", "hello", "  ", "\n", "é", "🜁", "\x00"])
    | st.text(max_size=5),
    max_size=12,
).map("".join)


class TestEveryVocabulary:
    def test_text_that_spells_a_marker_never_becomes_one(self, vocabulary: Vocabulary) -> None:
        marker_ids = set(vocabulary.markers.values())

        @given(HOSTILE)
        def check(text: str) -> None:
            ids = vocabulary.encode_text(text)

            assert not marker_ids & set(ids)
            assert b"".join(map(vocabulary.token_bytes, ids)) == text.encode()

        check()

    def test_trusted_text_yields_its_markers_as_ids_and_decodes_to_itself(self, vocabulary: Vocabulary) -> None:
        text = "<|im_start|>user\nhello<|im_end|>\n"

        ids = vocabulary.encode_with_markers(text)

        assert ids[0] == vocabulary.marker_id("<|im_start|>")
        assert vocabulary.marker_id("<|im_end|>") in ids
        assert vocabulary.decode(ids) == text

    def test_batch_encoding_is_encoding_one_by_one(self, vocabulary: Vocabulary) -> None:
        texts = ["hello  world", "", "12 34", "<|im_end|>"]

        assert vocabulary.encode_texts(texts) == [vocabulary.encode_text(text) for text in texts]

    def test_end_markers_are_stop_ids(self, vocabulary: Vocabulary) -> None:
        assert {vocabulary.marker_id("<|im_end|>"), vocabulary.marker_id("<|endoftext|>")} <= set(vocabulary.stop_ids)
        assert vocabulary.marker_id("<|im_start|>") not in vocabulary.stop_ids

    def test_a_lone_surrogate_is_refused_with_its_place(self, vocabulary: Vocabulary) -> None:
        with pytest.raises(VocabularyError, match="character 2"):
            vocabulary.encode_text("ab\ud800")

    def test_ids_outside_are_refused(self, vocabulary: Vocabulary) -> None:
        for token_id in (-1, vocabulary.size):
            with pytest.raises(VocabularyError):
                vocabulary.token_bytes(token_id)

    def test_markers_spell_themselves(self, vocabulary: Vocabulary) -> None:
        for text, token_id in vocabulary.markers.items():
            assert vocabulary.token_bytes(token_id) == text.encode()
            assert vocabulary.marker_text(token_id) == text
        assert vocabulary.marker_id("<no such marker>") is None


class TestByteVocabulary:
    def test_bytes_are_their_own_ids(self) -> None:
        vocabulary = byte_vocabulary()

        assert vocabulary.encode_text("aé") == [0x61, 0xC3, 0xA9]
        assert vocabulary.size == 256 + len(vocabulary.markers)

    def test_user_and_observation_markers_do_not_stop_where_chatml_is_spoken_too(self) -> None:
        vocabulary = byte_vocabulary()

        assert vocabulary.marker_id("<|user|>") not in vocabulary.stop_ids

    def test_a_glm_vocabulary_stops_at_the_next_speaker(self) -> None:
        vocabulary = byte_vocabulary(("[gMASK]", "<sop>", "<|endoftext|>", "<|user|>", "<|observation|>"))

        assert {vocabulary.marker_id(text) for text in ("<|endoftext|>", "<|user|>", "<|observation|>")} == set(
            vocabulary.stop_ids
        )


class TestTokenizerJson:
    def test_text_without_markers_gets_the_ids_of_the_library(self, tmp_path: Path) -> None:
        theirs = write_tokenizer_json(tmp_path)
        ours = vocabulary_from_tokenizer_json(tmp_path / "tokenizer.json")

        for text in ("hello world", "  hello\n\n  wim", "ünï", "<|im"):
            assert ours.encode_text(text) == theirs.encode(text, add_special_tokens=False).ids

    def test_what_lies_beside_is_read(self, tmp_path: Path) -> None:
        write_tokenizer_json(tmp_path)
        vocabulary = vocabulary_from_tokenizer_json(tmp_path)

        assert (vocabulary.eos_id, vocabulary.bos_id, vocabulary.stop_ids) == (2, 1, (0, 2))
        assert vocabulary.chat_template == "{{ messages }}"

    def test_a_template_file_beside_wins_over_the_one_in_the_config(self, tmp_path: Path) -> None:
        write_tokenizer_json(tmp_path)
        (tmp_path / "chat_template.jinja").write_text("beside")

        assert vocabulary_from_tokenizer_json(tmp_path).chat_template == "beside"

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"model": {"type": "Unigram"}}'])
    def test_other_files_are_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "tokenizer.json").write_text(text)

        with pytest.raises(VocabularyError):
            vocabulary_from_tokenizer_json(tmp_path)


class TestGguf:
    def test_digits_are_cut_one_by_one_before_merging(self, tmp_path: Path) -> None:
        vocabulary = vocabulary_from_gguf(write_gguf(tmp_path / "model.gguf"))

        pieces = [vocabulary.token_bytes(token_id) for token_id in vocabulary.encode_text("hello  12")]

        assert pieces == [b"hello", b"  ", b"1", b"2"]

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"model": "llama"}, "tokenizer.ggml.model"), ({"pre": "unheard-of"}, "smollm"), ({"merges": ["ab"]}, "merges")],
    )
    def test_what_cannot_be_read_is_refused_by_name(self, tmp_path: Path, change: dict[str, Any], named: str) -> None:
        with pytest.raises(VocabularyError, match=named):
            vocabulary_from_gguf(write_gguf(tmp_path / "model.gguf", **change))

    def test_every_cut_of_the_file_is_an_error_and_never_a_crash(self, tmp_path: Path) -> None:
        whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
        cut = tmp_path / "cut.gguf"

        for length in (*range(0, 400, 7), len(whole) // 2, len(whole) - 17):
            cut.write_bytes(whole[:length])
            with pytest.raises(VocabularyError):
                read_gguf_metadata(cut)

    def test_an_absurd_length_is_refused_before_anything_is_allocated(self, tmp_path: Path) -> None:
        whole = bytearray(write_gguf(tmp_path / "whole.gguf").read_bytes())
        whole[24:32] = (2**63).to_bytes(8, "little")
        (tmp_path / "absurd.gguf").write_bytes(whole)

        with pytest.raises(VocabularyError, match="at byte 32"):
            read_gguf_metadata(tmp_path / "absurd.gguf")


def test_the_alphabet_names_every_byte_once() -> None:
    assert sorted(CHARACTER_TO_BYTE.values()) == list(range(256))
    assert len(BYTE_TO_CHARACTER) == 256


def test_the_digest_changes_with_markers_and_only_with_the_vocabulary() -> None:
    assert byte_vocabulary().digest == byte_vocabulary().digest
    assert byte_vocabulary().digest != byte_vocabulary(("<|im_end|>",)).digest
