"""The LiteLLM proxy in front of llama.cpp's server: what of the protocols comes from a proxy, and what survives it."""

from __future__ import annotations

import secrets

from llama_server import llama_server
from peer import MODEL_NAME, Settings, finish, free_port, judge, make_environment, running, versions_of

TARGET = "LiteLLM"
REQUIREMENTS = ("litellm[proxy]==1.108.7",)
PROVIDER = "hosted_vllm"
"""LiteLLM's route to any OpenAI-like server; its `openai` route sends Messages through the upstream's Responses."""


def main(settings: Settings) -> int:
    python = make_environment(settings, "litellm", REQUIREMENTS)
    with llama_server(settings) as (upstream, upstream_versions):
        versions = {**versions_of(python, "litellm"), **upstream_versions}
        configuration = settings.work / "litellm.yaml"
        configuration.write_text(
            f"model_list:\n  - model_name: {MODEL_NAME}\n    litellm_params:\n      model: {PROVIDER}/{MODEL_NAME}\n"
            f"      api_base: {upstream}/v1\n      api_key: none\n",
            encoding="utf-8",
        )
        port, key = free_port(), f"sk-{secrets.token_urlsafe(32)}"  # it refuses to start without a strong key
        command = [python.with_name("litellm"), "--config", configuration, "--host", "127.0.0.1", "--port", str(port)]
        address = f"http://127.0.0.1:{port}"
        variables = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
        with running(settings, "litellm", command, f"{address}/health/liveliness", variables):
            served = f"route `{PROVIDER}/`, in front of the llama.cpp of this table"
            return judge(settings, TARGET, address, versions, served=served, api_key=key)


if __name__ == "__main__":
    finish(TARGET, main)
