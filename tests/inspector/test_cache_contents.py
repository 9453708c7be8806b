"""The cache as a tree: trunks once, both tiers, and the sums that must hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.inspector.stage import Stage, new_stage, rounds_held, until
from zllm_ref.config import CacheSettings

TRUNK = {"role": "system", "content": "A long beginning that all conversations of this test share. " * 6}


def nodes_of(nodes: list[Any]) -> list[Any]:
    return [one for node in nodes for one in (node, *nodes_of(node["children"]))]


async def talk(stage: Stage, text: str) -> str:
    name, _ = await stage.chat([TRUNK, {"role": "user", "content": text}], max_tokens=3)
    return name


async def test_conversations_with_one_beginning_share_a_trunk() -> None:
    stage = new_stage("tiny-llama")
    try:
        names = [await talk(stage, text) for text in ("plum", "pear", "fig")]

        tree = await stage.get("cache")

        nodes = nodes_of(tree["roots"])
        assert len(tree["roots"]) == 1
        trunk = tree["roots"][0]
        assert trunk["text"].startswith("<|im_start|>system\nA long beginning")
        assert trunk["num_blocks"] > 1
        assert trunk["num_blocks"] * 128 == trunk["tokens"][1]
        assert trunk["state"] is None
        leaves = [node for node in nodes if not node["children"]]
        assert {node["state"]["request"] for node in leaves} == set(names)
        assert sorted(node["state"]["last_used_rank"] for node in leaves) == [0, 1, 2]
        newest = next(node for node in leaves if node["state"]["request"] == names[-1])
        assert newest["state"]["last_used_rank"] == 0
        assert sum(node["bytes"] for node in nodes) == tree["gauge"]["resident_bytes"]
        assert sum(node["num_blocks"] for node in nodes) == tree["gauge"]["num_blocks"]
        assert tree["cut"] == 0
        for node in nodes:
            for child in node["children"]:
                assert child["tokens"][0] == node["tokens"][1]
        assert len({node["key"] for node in nodes}) == len(nodes)
    finally:
        stage.engine.close()


async def test_what_is_written_is_in_both_tiers_and_what_was_evicted_on_one(tmp_path: Path) -> None:
    cache = CacheSettings(resident_bytes=64 << 20, ssd_directory=tmp_path / "ssd", ssd_bytes=64 << 20)
    stage = new_stage("tiny-llama", cache=cache)
    await talk(stage, "plum")
    async with asyncio.timeout(120):  # for the writing behind the answer
        while True:
            tree = await stage.get("cache")
            if {node["tier"] for node in nodes_of(tree["roots"])} == {"both"}:
                break
            await asyncio.sleep(0.01)
    stage.engine.close()
    assert {node["tier"] for node in nodes_of(tree["roots"])} == {"both"}
    assert tree["gauge"]["ssd_bytes"] > 0

    again = new_stage("tiny-llama", cache=cache)
    try:
        fresh = await again.get("cache")
        name = await talk(again, "pear")
        context = await again.get(f"requests/{name}/context")
    finally:
        again.engine.close()

    assert {node["tier"] for node in nodes_of(fresh["roots"])} == {"ssd"}
    assert nodes_of(fresh["roots"])[-1]["state"]["tier"] == "ssd"
    assert fresh["gauge"]["resident_bytes"] == 0
    kinds = [span["kind"] for span in context["spans"]]
    assert kinds[0] == "hit_ssd"
    assert context["blocks"][0]["kept"] == "both"


async def test_a_running_request_pins_what_it_reads() -> None:
    stage = new_stage("tiny-llama")
    try:
        await talk(stage, "plum")
        body = {"model": "tiny-llama", "messages": [TRUNK, {"role": "user", "content": "plum"}], "temperature": 0}
        with rounds_held(stage.engine):
            running = asyncio.create_task(stage.ask("/v1/chat/completions", {**body, "max_tokens": 60, "ignore_eos": True}))
            await until(lambda: [one.started_at is not None for one in stage.recorder.records("")] == [True, True])
            during = await stage.get("cache")
        await running
        after = await stage.get("cache")

        assert during["roots"][0]["pins"] == 1
        assert during["gauge"]["pinned_bytes"] > 0
        assert during["gauge"]["reserved_bytes"] > 0
        assert {node["pins"] for node in nodes_of(after["roots"])} == {0}
        assert after["gauge"]["pinned_bytes"] == 0
    finally:
        stage.engine.close()


async def test_kv_figures_are_those_of_the_declared_states() -> None:
    stage = new_stage("tiny-llama")
    try:
        told = await stage.get("kv?tokens=1000")
        none = await stage.get("kv?tokens=0")
    finally:
        stage.engine.close()

    rows = {row["name"]: row for row in told["models"]}
    assert told["models"][0]["is_loaded"]
    assert rows["SmolLM2-135M"]["bytes_per_token"] == 30 * 2 * 3 * 64 * 2
    for row in told["models"]:
        assert row["total_bytes"] == 1000 * row["bytes_per_token"] + row["fixed_bytes"]
        assert sum(part["bytes_per_token"] for part in row["parts"]) == row["bytes_per_token"]
        assert sum(part["fixed_bytes"] for part in row["parts"]) == row["fixed_bytes"]
    assert {row["architecture"] for row in told["models"]} == {"llama", "qwen3", "glm4_moe", "deepseek_v32", "deepseek_v4"}
    assert all(row["total_bytes"] == row["fixed_bytes"] for row in none["models"])
