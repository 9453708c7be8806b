"""The playground: what a template writes, what its tokens are, and what of it the cache has; and merges, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.inspector.prompts import CLOCK, WEATHER, answer, call, request, result, system, thought, user, view
from tests.inspector.stage import TOOLS, Stage, new_stage
from zllm_ref.canonical.message import Text
from zllm_ref.inspector.family import FAMILIES
from zllm_ref.inspector.family_tokenizers import FamilyTokenizers, with_markers
from zllm_ref.inspector.merges import merges
from zllm_ref.tokenizer import Vocabulary, byte_vocabulary
from zllm_ref.tokenizer.bpe_encoder import BpeEncoder
from zllm_ref.tokenizer.byte_alphabet import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE
from zllm_ref.tokenizer.rank_vocabulary import vocabulary_from_ranks

MESSAGES = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Weather? <|im_end|> <think>"}]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made = new_stage("tiny-qwen3")
    made.inspector.playground._tokenizers = FamilyTokenizers(Path("/nowhere"), lambda package: None)
    yield made
    made.engine.close()


@pytest.mark.parametrize("family", ["loaded", *FAMILIES])
async def test_every_family_renders_with_its_own_markers_or_says_whose_count(stage: Stage, family: str) -> None:
    told = await stage.post("render", {"family": family, "messages": MESSAGES, "tools": TOOLS})

    assert told["text"].encode() == b"".join(map(bytes.fromhex, told["tokens"]["bytes"]))
    assert told["num_tokens"] == len(told["tokens"]["ids"])
    assert any(flags & 1 for flags in told["tokens"]["flags"])
    assert told["tokenizer"]["is_real"] is (family == "loaded")
    assert (told["tokenizer"]["note"] is None) is (family == "loaded")
    if family == "loaded" or FAMILIES[family].shows_tools:
        assert "get_weather" in told["text"]
        assert told["notes"] == []
    else:
        assert "get_weather" not in told["text"]
        assert told["notes"] == ["This template never shows the tools to the model."]


async def test_families_are_listed_with_their_controls_and_tokenizers(stage: Stage) -> None:
    told = (await stage.get("families"))["families"]

    named = {family["name"]: family for family in told}
    assert [family["name"] for family in told] == ["loaded", *FAMILIES]
    assert named["loaded"]["can_run"]
    assert not named["qwen3"]["can_run"]
    assert named["gpt-oss"]["control"] == "soft"
    assert named["qwen3"]["control"] == named["glm-4.7"]["control"] == "hard"
    assert named["deepseek-v4"]["control"] == named["glm-4.5"]["control"] == "both"
    assert named["smollm2"]["control"] == "none"
    assert not named["glm-4.7"]["tokenizer"]["is_real"]


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.controls])
async def test_controls_of_reasoning_change_the_prompt(stage: Stage, name: str) -> None:
    controls = next(one for one in (await stage.get("families"))["families"] if one["name"] == name)["controls"]

    texts = set()
    for control in controls:
        told = await stage.post("render", {"family": name, "messages": MESSAGES, "reasoning": control["reasoning"]})
        texts.add(told["text"])

    assert len(texts) == len(controls)


@pytest.mark.parametrize("family", sorted(FAMILIES))
async def test_an_effort_that_no_template_knows_costs_nothing_but_itself(stage: Stage, family: str) -> None:
    asked = {"family": family, "messages": MESSAGES}

    for effort in ("none such", "\N{SUPERSCRIPT TWO}", "3"):
        assert (await stage.post("render", {**asked, "reasoning": {"enabled": True, "effort": effort}}))["text"]


async def test_special_tokens_that_somebody_types_stay_text(stage: Stage) -> None:
    told = await stage.post("render", {"family": "qwen3", "messages": MESSAGES})

    typed = {one["text"]: one for one in told["typed_markers"]}
    assert set(typed) == {"<|im_end|>", "<think>"}
    units = told["text"].encode("utf-16-le")
    for text, one in typed.items():
        start, end = one["utf16"]
        assert units[2 * start : 2 * end].decode("utf-16-le") == text
        first, last = one["tokens"]
        assert last - first == len(text)
        assert not any(flags & 1 for flags in told["tokens"]["flags"][first:last])


async def test_the_reusable_prefix_is_what_a_request_would_reuse(stage: Stage) -> None:
    messages: list[Any] = [{"role": "user", "content": "A question that was asked before, at some length."}]
    before = await stage.post("render", {"family": "loaded", "messages": messages})
    await stage.chat(messages, max_tokens=3)

    after = await stage.post("render", {"family": "loaded", "messages": messages})
    longer = await stage.post("render", {"family": "loaded", "messages": [*messages, *MESSAGES[1:]]})
    name, _ = await stage.chat([*messages, *MESSAGES[1:]], max_tokens=1)

    assert before["reusable"]["tokens"] < 40 < after["reusable"]["tokens"] == after["num_tokens"] - 1
    assert after["reusable"]["tier"] == "resident"
    summary = (await stage.get(f"requests/{name}"))["summary"]
    assert summary["cached_resident"] == longer["reusable"]["tokens"]


async def test_what_is_rendered_can_be_run_and_has_the_same_tokens(stage: Stage) -> None:
    asked = {"family": "loaded", "messages": MESSAGES, "tools": TOOLS, "reasoning": {"enabled": False, "effort": None}}
    told = await stage.post("render", asked)

    name, _ = await stage.ask("/v1/chat/completions", {**told["chat_request"], "max_tokens": 2})

    tokens = await stage.get(f"requests/{name}/tokens?end=10000")
    assert tokens["ids"][: told["num_tokens"]] == told["tokens"]["ids"]
    assert (await stage.get(f"requests/{name}"))["axis"]["prompt"] == told["num_tokens"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"family": "gpt-9", "messages": MESSAGES}, "family"),
        ({"messages": MESSAGES}, "family"),
        ({"family": "qwen3", "messages": "hi"}, "messages"),
        ({"family": "qwen3", "messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}, "tool_call_id"),
        ({"family": "qwen3", "messages": MESSAGES, "reasoning": {"enabled": "yes"}}, "reasoning"),
    ],
)
async def test_what_cannot_be_rendered_is_told(stage: Stage, body: dict[str, Any], says: str) -> None:
    refused = await stage.post("render", body, status=400)

    assert refused["error"]["code"] == "invalid"
    assert says in refused["error"]["message"]


# ---- the two families that only the playground has ----------------------------------------------------------------------------


def test_harmony_is_written_as_its_format_says() -> None:
    asked = request(
        system("Use a friendly tone."),
        user("What is the weather like in SF?"),
        answer(thought("Need to use function get_weather."), call('{"city": "San Francisco"}')),
        result('{"sunny": true}'),
        tools=(WEATHER,),
    )

    text = view(asked, "gpt-oss").axis.text

    assert text == (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n\n"
        "Reasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.\n"
        "Calls to these tools must go to the commentary channel: 'functions'.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nUse a friendly tone.\n\n# Tools\n\n## functions\n\n"
        "namespace functions {\n\n"
        "// The weather of a city.\ntype get_weather = (_: {\ncity: string,\n}) => any;\n\n} // namespace functions<|end|>"
        "<|start|>user<|message|>What is the weather like in SF?<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Need to use function get_weather.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "San Francisco"}<|call|>'
        '<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>{"sunny": true}<|end|>'
        "<|start|>assistant"
    )


def test_harmony_drops_the_thoughts_of_a_final_answer_behind_a_new_question() -> None:
    asked = request(user("2+2?"), answer(thought("Simple."), Text("4.")), user("9/2?"))

    text = view(asked, "gpt-oss").axis.text

    assert "Simple." not in text
    assert "<|start|>assistant<|channel|>final<|message|>4.<|end|><|start|>user<|message|>9/2?<|end|>" in text


def test_deepseek_v3_closes_its_calls_and_results() -> None:
    asked = request(
        system("Be terse."),
        user("Weather and time?"),
        answer(call('{"city": "Rome"}'), call('{"city": "Rome"}', "get_time", "call_2")),
        result("24"),
        result("noon", "call_2"),
        answer(Text("Warm, noon.")),
        user("Thanks"),
        tools=(WEATHER, CLOCK),
    )

    text = view(asked, "deepseek-v3").axis.text

    assert text == (
        "<｜begin▁of▁sentence｜>Be terse.<｜User｜>Weather and time?<｜Assistant｜><｜tool▁calls▁begin｜>"
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜>\n'
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜>'
        "<｜tool▁calls▁end｜><｜end▁of▁sentence｜><｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>24<｜tool▁output▁end｜>\n"
        "<｜tool▁output▁begin｜>noon<｜tool▁output▁end｜><｜tool▁outputs▁end｜>Warm, noon.<｜end▁of▁sentence｜>"
        "<｜User｜>Thanks<｜Assistant｜>"
    )


# ---- merges -------------------------------------------------------------------------------------------------------------------


def _trained() -> Vocabulary:
    """A real byte-pair tokenizer, trained on a few words."""
    from tokenizers import trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(CHARACTER_TO_BYTE), show_progress=False)
    tokenizer.train_from_iterator(["low lower lowest newer newest wide widest été 字字 🌧🌧 banana bandana"] * 20, trainer)
    pieces = [b""] * tokenizer.get_vocab_size()
    for piece, token_id in tokenizer.get_vocab().items():
        pieces[token_id] = bytes(CHARACTER_TO_BYTE[character] for character in piece)
    return Vocabulary(pieces, {}, BpeEncoder(tokenizer, "trained"))


TRAINED = _trained()
RANKED = vocabulary_from_ranks(
    {
        **{bytes([byte]): byte for byte in range(256)},
        **{
            piece: 256 + index
            for index, piece in enumerate((b"lo", b"low", b"er", b"lower", b"ab", b"bc", b"abc", b"aa", b"aaa"))
        },
    },
    {"<|end|>": 300},
    r"\s*\S+|\s+",
)


@pytest.mark.parametrize("vocabulary", [TRAINED, RANKED], ids=["trained", "ranked"])
@given(text=st.text(st.sampled_from("lower newst bandaéïü字🌧 \n") | st.characters(codec="utf-8"), max_size=30))
@example(text="lowest bandana été")
@example(text="aaaa abc lowerlower")
@settings(max_examples=60)
def test_the_steps_lead_from_bytes_to_the_tokenizers_own_ids(vocabulary: Vocabulary, text: str) -> None:
    words = merges(vocabulary, text)

    assert [token_id for word in words for token_id in word["ids"]] == vocabulary.encode_text(text)
    place = 0
    for word in words:
        assert word["start"] == place
        symbols = list(word["symbols"])
        place += len(symbols)
        ranks = []
        for step in word["merges"]:
            assert symbols[step["at"] : step["at"] + 2] == [step["left"], step["right"]]
            symbols[step["at"] : step["at"] + 2] = [step["left"] + step["right"]]
            ranks.append(step["rank"])
        assert len(word["ids"]) == len(symbols)
    assert place == len(text.encode())


def test_the_smallest_rank_of_all_neighbours_goes_first() -> None:
    (word,) = merges(RANKED, "lower")

    assert [(step["left"], step["right"]) for step in word["merges"]] == [
        (b"l".hex(), b"o".hex()),
        (b"lo".hex(), b"w".hex()),
        (b"e".hex(), b"r".hex()),
        (b"low".hex(), b"er".hex()),
    ]
    assert word["ids"] == [259]


async def test_merges_over_the_wire_and_their_limit(stage: Stage) -> None:
    told = await stage.post("merges", {"family": "loaded", "text": "hi 🌧"})
    refused = await stage.post("merges", {"family": "loaded", "text": "x" * 2001}, status=400)

    assert told["words"][0]["symbols"] == [f"{byte:02x}" for byte in "hi 🌧".encode()]
    assert told["words"][0]["merges"] == []
    assert "2000" in refused["error"]["message"]


def test_markers_that_a_vocabulary_lacks_stand_behind_its_last_id() -> None:
    served = byte_vocabulary()

    wider = with_markers(served, ("<|start|>", "<|im_end|>", "<|start|>"))

    assert wider.size == served.size + 1
    assert wider.marker_id("<|start|>") == served.size
    assert wider.marker_id("<|im_end|>") == served.marker_id("<|im_end|>")
    assert wider.encode_text("<|start|>") == served.encode_text("<|start|>")


def test_a_folder_of_the_home_brings_a_tokenizer_that_no_package_carries(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizers" / "glm"
    folder.mkdir(parents=True)
    encoder = TRAINED.encoder
    assert isinstance(encoder, BpeEncoder)
    encoder._tokenizer.save(str(folder / "tokenizer.json"))
    tokenizers = FamilyTokenizers(tmp_path, lambda package: None)

    found = tokenizers.get("glm", byte_vocabulary(), ())

    assert found.is_real
    assert found.vocabulary.encode_text("lowest") == TRAINED.encode_text("lowest")
    assert tokenizers.source("qwen") is None
    assert BYTE_TO_CHARACTER[ord("l")] == "l"
