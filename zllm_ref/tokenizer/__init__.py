"""The only door between text and ids.

Knows: a vocabulary (from a `tokenizer.json`, from GGUF metadata, or made in code), how text becomes ids, how ids become text
piece by piece, and which ids are markers: ids with a meaning of their own that no text may ever turn into.
Must never know: a message, a tool, a template, what a marker means to a dialect, a tensor.

    text ──encode_text──▶ ids             never a marker, whatever the text spells
    template ──encode_with_markers──▶ ids  only for text that the server itself wrote
    ids ──Detokenizer──▶ TextPiece | MarkerPiece
"""

from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary
from zllm_ref.tokenizer.detokenizer import Detokenizer, MarkerPiece, Piece, TextPiece
from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf
from zllm_ref.tokenizer.json_vocabulary import vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.vocabulary import Vocabulary, VocabularyError

__all__ = [
    "Detokenizer",
    "MarkerPiece",
    "Piece",
    "TextPiece",
    "Vocabulary",
    "VocabularyError",
    "byte_vocabulary",
    "vocabulary_from_gguf",
    "vocabulary_from_tokenizer_json",
]
