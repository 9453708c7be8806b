"""What was wrong with an answer is said in the server's log when the answer is made, and not again by whoever looks."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.inspector.stage import TOOLS, new_stage, write_script

PANELS = ("wire", "conversation", "segments", "tokens", "context", "prefix", "decode")


async def test_a_remark_of_the_parser_is_made_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = write_script(tmp_path / "script.json", [{"call": {"name": "another", "arguments": {}}}])
    stage = new_stage(script=script)
    try:
        with caplog.at_level(logging.INFO, "zllm_ref.engine.answer"):
            name, _ = await stage.chat([{"role": "user", "content": "Hi"}], tools=TOOLS)
            said = [record.getMessage() for record in caplog.records if record.name == "zllm_ref.engine.answer"]
            caplog.clear()
            for panel in PANELS:
                await stage.get(f"requests/{name}/{panel}")
            again = [record.getMessage() for record in caplog.records if record.name == "zllm_ref.engine.answer"]
    finally:
        stage.engine.close()

    assert len(said) == 1
    assert "parser" in said[0]
    assert again == []
