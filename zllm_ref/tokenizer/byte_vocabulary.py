"""A vocabulary made in code: one id a byte, and markers. Small models and scripts of tests speak it; no file is needed."""

from __future__ import annotations

from collections.abc import Sequence

from zllm_ref.tokenizer.vocabulary import Vocabulary

CHATML_MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
DIALECT_MARKERS = (
    # ChatML JSON and Qwen3-Coder; GLM shares tool_call and think.
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    # GLM
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    # DeepSeek
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜latest_reminder｜>",
    "｜DSML｜",
)


class ByteEncoder:
    """UTF-8 bytes are the ids."""

    keeps_ascii = True

    @property
    def name(self) -> str:
        return "bytes"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(text.encode("utf-8")) for text in texts]


def byte_vocabulary(markers: Sequence[str] = (*CHATML_MARKERS, *DIALECT_MARKERS)) -> Vocabulary:
    """Ids 0 to 255 are the bytes; `markers` follow from 256 on, in the order given."""
    ids = {text: 256 + index for index, text in enumerate(markers)}
    pieces = [bytes([byte]) for byte in range(256)] + [text.encode("utf-8") for text in markers]
    return Vocabulary(pieces, ids, ByteEncoder())
