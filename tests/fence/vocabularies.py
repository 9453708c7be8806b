"""Vocabularies of the tests: one id a byte, and a small byte-level BPE trained on the spot."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from zllm_ref.tokenizer import Vocabulary, byte_vocabulary, vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.byte_vocabulary import CHATML_MARKERS, DIALECT_MARKERS

MARKERS = (*CHATML_MARKERS, *DIALECT_MARKERS)


def text_mode_vocabulary() -> Vocabulary:
    """Bytes, and only the markers that end a turn: every other marker has to be spelled."""
    return byte_vocabulary(("<|endoftext|>", "<|im_end|>"))


@cache
def trained_vocabulary(size: int = 1200) -> Vocabulary:
    """A byte-level BPE that has merges across the borders of tags, as real ones have (`">\\n"`, `</`, `_call`)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(_corpus(), trainer)
    definition = json.loads(tokenizer.to_str())
    first = len(definition["model"]["vocab"])
    definition["added_tokens"] = [
        {
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            "id": first + index,
            "content": text,
            "special": True,
        }
        for index, text in enumerate(MARKERS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(definition, ensure_ascii=False), "utf-8")
        return vocabulary_from_tokenizer_json(path)


def _corpus() -> list[str]:
    lines = [
        'tool_calls>\n<invoke name="get_weather">\n<parameter name="city" string="true">New York</parameter>\n</invoke>',
        '\n{"name": "get_weather", "arguments": {"location": "Zürich", "days": 12, "on": true, "off": false, "no": null}}\n',
        "\n<function=get_weather_now>\n<parameter=location>\nParis, France\n</parameter>\n</function>\n",
        "The weather in the city is not what one would like it to be, and so we have to call the tool for the next days.",
        'function_calls> calls>  invoke> invoke name="list" string="false"> {"v": 1, "next": {"v": 2, "next": null}}, [1, 2, 3]',
        "def f(x):\n    if x:\n        return 1\n\n\n    return 2\n",
    ]
    return [line for line in lines for _ in range(20)]
