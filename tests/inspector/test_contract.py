"""The answers have the fields that docs/inspector.md names, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inspector.stage import TOOLS, Stage, new_stage
from zllm_ref.inspector.prefix_cause import TITLES
from zllm_ref.server.inspect_api import _ANSWERS

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "inspector.md").read_text("utf-8")
FREE = {"parameters", "values"}
"""Fields whose value is the client's own JSON, or named by a sentence."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made = new_stage("tiny-qwen3")
    yield made
    made.engine.close()


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}.*?\n(.*?)(?=^#|\Z)", DOCS, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def fields(text: str) -> set[str]:
    """Names in inline objects (`"name": …`) and in the first column of tables."""
    named = set(re.findall(r'"(\w+)"', text))
    for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE):
        named |= set(re.findall(r"`(\w+)`", row))
    return named | set(re.findall(r"`(\w+)`", text))


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            if name not in FREE:
                yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def table(text: str) -> set[str]:
    return {name for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


async def test_about_has_its_table(stage: Stage) -> None:
    assert set(await stage.get("about")) == table(section("`GET about`"))


async def test_a_summary_has_its_table(stage: Stage) -> None:
    await stage.chat([{"role": "user", "content": "hi"}], max_tokens=2)

    (summary, *_) = (await stage.get("requests"))["requests"]

    assert set(summary) == table(section("`GET requests?after=CURSOR`"))


@pytest.mark.parametrize(
    ("path", "title", "more"),
    [
        ("", "`GET requests/{id}`", ("`GET requests?after=CURSOR`",)),
        ("/wire", "`GET requests/{id}/wire`", ()),
        ("/conversation", "`GET requests/{id}/conversation`", ()),
        ("/segments", "`GET requests/{id}/segments`", ()),
        ("/tokens", "`GET requests/{id}/tokens?start=&end=`", ()),
        ("/context", "`GET requests/{id}/context`", ()),
        ("/prefix", "`GET requests/{id}/prefix?price_input=&price_cached=`", ()),
        ("/decode", "`GET requests/{id}/decode?start=&end=`", ()),
    ],
)
async def test_a_panel_has_the_fields_of_its_section(stage: Stage, path: str, title: str, more: tuple[str, ...]) -> None:
    messages = [{"role": "system", "content": "It is 12:00."}, {"role": "user", "content": "hi"}]
    await stage.chat(messages, tools=TOOLS, max_tokens=3)
    messages[0]["content"] = "It is 12:07."
    name, _ = await stage.chat(messages, tools=TOOLS, max_tokens=3)

    told = await stage.get(f"requests/{name}{path}")

    documented = set().union(*(fields(section(one)) for one in (title, *more)))
    assert set(keys(told)) <= documented
    assert table(section(title)) <= set(keys(told))


@pytest.mark.parametrize(
    ("path", "title"),
    [("cache", "`GET cache`"), ("cache/gauge", "`GET cache`"), ("kv", "`GET kv?tokens=N`"), ("families", "`GET families`")],
)
async def test_other_answers_have_the_fields_of_their_sections(stage: Stage, path: str, title: str) -> None:
    await stage.chat([{"role": "user", "content": "hi"}], max_tokens=2)

    assert set(keys(await stage.get(path))) <= fields(section(title))


async def test_render_and_merges_have_the_fields_of_their_sections(stage: Stage) -> None:
    rendered = await stage.post("render", {"family": "loaded", "messages": [{"role": "user", "content": "<think>"}]})
    merged = await stage.post("merges", {"family": "loaded", "text": "hi"})
    chat = rendered.pop("chat_request")

    assert set(chat) <= {"model", "messages", "tools", "reasoning_effort"}
    known = fields(section("`GET families`")) | fields(section("`GET requests/{id}/segments`"))
    known |= fields(section("`GET requests/{id}/tokens?start=&end=`"))
    assert set(keys(rendered)) <= known | fields(section("`POST render`"))
    assert set(keys(merged)) <= fields(section("`GET families`")) | fields(section("`POST merges`"))


def test_every_path_is_described_and_every_described_path_is_there() -> None:
    described = {(method, path.split("?")[0]) for method, path in re.findall(r"^#+ `(GET|POST) ([^`]+)`", DOCS, re.MULTILINE)}
    served = {(method, path.replace("{request_id}", "{id}")) for method, path in _ANSWERS} | {("GET", "about"), ("GET", "events")}

    assert described == served


def test_every_cause_is_described() -> None:
    text = section("`GET requests/{id}/prefix?price_input=&price_cached=`")

    assert all(f"`{name}`" in text for name in TITLES)
