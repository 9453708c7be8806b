"""`python -m zllm_ref cache`: what it prints, and its exit codes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tests.cache.toy_state import open_store, reuse, save
from zllm_ref.commands import cache


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = open_store(tmp_path / "ssd")
    save(store, range(10), "cache_a", namespace="tenant")
    save(store, range(100, 108), "cache_b")
    store.close()
    return tmp_path / "ssd"


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cache.add_parser(parser.add_subparsers())
    args = parser.parse_args(["cache", *arguments])
    return int(args.run(args))


def damage(directory: Path) -> Path:
    chunk = min((directory / "chunks").iterdir())
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    return chunk


def test_ls_names_every_snapshot(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ls", "--ssd-dir", str(directory)) == 0

    text = capsys.readouterr().out
    assert "cache_a" in text
    assert "tenant" in text
    assert "2 snapshots" in text


def test_ls_as_json_is_one_object(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("ls", "--json", "--ssd-dir", str(directory))

    found = json.loads(capsys.readouterr().out)
    assert [(one["cache_id"], one["tokens"], one["namespace"]) for one in found["snapshots"]] == [
        ("cache_a", 10, "tenant"),
        ("cache_b", 8, ""),
    ]


def test_show_prints_the_manifest_and_refuses_an_unknown_id(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "cache_a", "--json", "--ssd-dir", str(directory)) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ids"] == list(range(10))
    assert len(shown["chunk_files"]) == 3

    assert run("show", "cache_nobody", "--ssd-dir", str(directory)) == 1
    assert "cache_nobody" in capsys.readouterr().err


def test_verify_says_which_chunk_is_damaged(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", "--ssd-dir", str(directory)) == 0
    assert "5 chunks read, 0 damaged" in capsys.readouterr().out

    chunk = damage(directory)

    assert run("verify", "--ssd-dir", str(directory)) == 1
    assert chunk.name in capsys.readouterr().out


def test_gc_removes_what_is_damaged_and_what_is_beyond_the_budget(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(directory)
    assert run("gc", "--json", "--ssd-dir", str(directory)) == 0
    assert json.loads(capsys.readouterr().out)["damaged"] == 1
    assert run("verify", "--ssd-dir", str(directory)) == 0

    assert run("gc", "--ssd-bytes", "1B", "--ssd-dir", str(directory)) == 0
    assert list((directory / "chunks").iterdir()) == []
    assert list((directory / "manifests").iterdir()) == []


def test_gc_beside_a_server_is_refused_and_looking_is_not(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(directory)

    assert run("gc", "--ssd-dir", str(directory)) == 2
    assert "in use by process" in capsys.readouterr().err
    assert run("ls", "--ssd-dir", str(directory)) == 0
    assert reuse(store, range(101, 103)) == 0
    assert reuse(store, range(100, 109)) == 8
    store.close()


def test_a_directory_without_snapshots_is_said_to_be_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ls", "--ssd-dir", str(tmp_path / "nowhere")) == 2
    assert "cannot be used" in capsys.readouterr().err
