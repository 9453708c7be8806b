"""Real clients: how each is installed, configured and asked. Nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROMPT = "Write the file."
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Place:
    """Where a client finds its program, the server, a home of its own, and a folder to work in."""

    modules: Path
    url: str
    home: Path
    work: Path


@dataclass(frozen=True)
class Client:
    """`command` and `files` (path below the home: text) for a place; `packages` of npm with exact versions."""

    name: str
    protocol: str
    packages: tuple[str, ...]
    command: Callable[[Place], list[str]]
    files: Callable[[Place], Mapping[str, str]] = lambda place: {}
    environment: Callable[[Place], Mapping[str, str]] = field(default=lambda place: {})
    model: str = "scripted"
    """What the server is told to call its model: some clients behave by the name."""


CLAUDE_CODE = ("@anthropic-ai/claude-code@2.1.332",)
CODEX = ("@openai/codex@0.171.0",)
OPENCODE = ("opencode-ai@1.18.33",)
AI_SDK = (
    "ai@6.0.326",
    "@ai-sdk/openai@3.0.141",
    "@ai-sdk/anthropic@3.0.140",
    "@ai-sdk/openai-compatible@2.0.92",
    "zod@4.6.7",
)


def _claude_command(place: Place) -> list[str]:
    program = place.modules / "@anthropic-ai/claude-code-linux-x64/claude"
    return [str(program), "-p", PROMPT, "--model", "scripted", "--output-format", "json", "--allowedTools", "Bash"]


def _claude_environment(place: Place) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": "sk-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",
    }


def _codex_config(*, websocket: bool, model: str = "scripted") -> Callable[[Place], dict[str, str]]:
    def files(place: Place) -> dict[str, str]:
        text = f"""
model = "{model}"
model_provider = "local"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics = {{ enabled = false }}
feedback = {{ enabled = false }}
otel = {{ exporter = "none" }}
[model_providers.local]
name = "local"
base_url = "{place.url}/v1"
wire_api = "responses"
env_key = "LOCAL_API_KEY"
request_max_retries = 1
stream_max_retries = 1
supports_websockets = {str(websocket).lower()}
"""
        return {".codex/config.toml": text}

    return files


def _codex_command(place: Place) -> list[str]:
    program = place.modules / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    return [str(program), "exec", "--skip-git-repo-check", "--json", PROMPT]


def _codex_environment(place: Place) -> dict[str, str]:
    return {"CODEX_HOME": str(place.home / ".codex"), "LOCAL_API_KEY": "sk-test"}


def _opencode_config(package: str) -> Callable[[Place], dict[str, str]]:
    def files(place: Place) -> dict[str, str]:
        provider = {
            "npm": package,
            "options": {"baseURL": f"{place.url}/v1", "apiKey": "sk-test"},
            "models": {"scripted": {"limit": {"context": 100_000, "output": 8192}}},
        }
        config = {
            "autoupdate": False,
            "share": "disabled",
            "model": "local/scripted",
            "small_model": "local/scripted",
            "permission": {"*": "allow"},
            "provider": {"local": provider},
        }
        return {".config/opencode/opencode.json": json.dumps(config)}

    return files


def _opencode_command(place: Place) -> list[str]:
    return [str(place.modules / "opencode-linux-x64-baseline/bin/opencode"), "run", "--model", "local/scripted", PROMPT]


def _opencode_environment(place: Place) -> dict[str, str]:
    names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return {f"OPENCODE_DISABLE_{name}": "1" for name in names}


def _ai_sdk(protocol: str) -> Client:
    def command(place: Place) -> list[str]:
        return ["node", str(place.work / "ai_sdk.mjs"), f"{place.url}/v1", protocol]

    def files(place: Place) -> dict[str, str]:
        return {"work/ai_sdk.mjs": (_HERE / "ai_sdk.mjs").read_text("utf-8")}

    return Client(f"AI SDK, {protocol}", protocol, AI_SDK, command, files)


CLIENTS = (
    Client("Claude Code", "messages", CLAUDE_CODE, _claude_command, environment=_claude_environment),
    Client("Codex", "responses", CODEX, _codex_command, _codex_config(websocket=False), _codex_environment),
    Client("Codex, WebSocket", "responses", CODEX, _codex_command, _codex_config(websocket=True), _codex_environment),
    Client(
        "Codex, tools as items",
        "responses",
        CODEX,
        _codex_command,
        _codex_config(websocket=False, model="gpt-6.2-sol"),
        _codex_environment,
        "gpt-6.2-sol",
    ),
    *(
        Client(f"opencode, {protocol}", protocol, OPENCODE, _opencode_command, _opencode_config(package), _opencode_environment)
        for protocol, package in (
            ("chat", "@ai-sdk/openai-compatible"),
            ("responses", "@ai-sdk/openai"),
            ("messages", "@ai-sdk/anthropic"),
        )
    ),
    *(_ai_sdk(protocol) for protocol in ("chat", "responses", "messages")),
)
