"""A model with everything around it that requests need, built from settings."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from zllm_ref.cache.near_miss import NearMiss, NearMissPolicy
from zllm_ref.cache.resident import PrefixCache
from zllm_ref.cache.ssd.store import SnapshotStore
from zllm_ref.cache.tiered import TieredCache
from zllm_ref.cache.units import UnitPolicy
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.config import CacheSettings, EngineSettings
from zllm_ref.dialect import GeneratedStore, MemoryStore, ToolDialect, dialect_for, dialect_names
from zllm_ref.engine.drafters import drafters_for
from zllm_ref.engine.reading import Report, read_model
from zllm_ref.engine.replay_store import ReplayTable
from zllm_ref.engine.script import Script, read_script
from zllm_ref.fence import FenceCompiler
from zllm_ref.runtime.draft.drafter import DrafterFactory
from zllm_ref.runtime.loop import RuntimeLoop
from zllm_ref.runtime.model import Model
from zllm_ref.runtime.restore import TensorCodec
from zllm_ref.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger("zllm_ref.requests")


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
    drafters: DrafterFactory | None = None
    """Who guesses tokens."""
    siblings: Mapping[str, str] = field(default_factory=dict)
    """Identities that differ from `identity` in the dialect alone → that dialect's name."""

    def close(self) -> None:
        """Stops the runtime, then gives back the directories: nobody writes into them any more. Twice is once."""
        self.loop.stop()
        if isinstance(self.cache, TieredCache):
            self.cache.store.close()
        if isinstance(self.answers, ReplayTable):
            self.answers.close()


def load(settings: EngineSettings, report: Report) -> Loaded:
    """Finds the model, reads its files, builds everything around it. Raises the errors of the pieces, in plain words."""
    torch.set_num_threads(settings.model.threads)
    found = read_model(settings.model, report, drafting=settings.draft.drafter == "mtp")
    model, vocabulary = found.model, found.vocabulary
    drafters = drafters_for(settings, found, report)
    dialect = dialect_for(found.template, vocabulary, settings.model.dialect)
    before = [found.digest, vocabulary.digest]
    after = [str(model.numerics), str(model.context_length), str(model.device.type), torch.__version__]
    after += _advisory_facts(model, drafters)
    identity = _identity([*before, dialect.name, *after])
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
        drafters=drafters,
        loop=RuntimeLoop(model, cache, num_token_ids=vocabulary.size, max_lanes=settings.max_lanes, drafters=drafters),
        identity=identity,
        siblings={_identity([*before, name, *after]): name for name in dialect_names() if name != dialect.name},
    )


def _identity(facts: list[str]) -> str:
    """The name under which saved states are found: of this very model, in these numbers and this dialect."""
    return hashlib.sha256("\x1f".join(facts).encode()).hexdigest()


def _card(served_names: tuple[str, ...], own_name: str, context_length: int) -> ModelCard:
    first, *others = (*served_names, own_name)
    return ModelCard(first, int(time.time()), context_length, tuple(others))


def _advisory_facts(model: Model, drafters: DrafterFactory | None) -> list[str]:
    """What a saved state holds beyond the model's own: nothing, where drafters keep nothing in it."""
    names = [tensor.name for tensor in model.state.tensors if tensor.advisory]
    return [*names, drafters.digest if drafters is not None else ""] if names else []


def _build_cache(settings: CacheSettings, model: Model, identity: str, vocabulary: Vocabulary) -> PrefixCache:
    """The resident tier alone, or both."""
    layout = model.state.layout()
    units = UnitPolicy(
        end_of_prompt="end-of-prompt" in settings.units,
        end_of_answer="end-of-answer" in settings.units,
        common_prefix="common-prefix" in settings.units,
        interval_tokens=settings.unit_interval_tokens,
    )
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
