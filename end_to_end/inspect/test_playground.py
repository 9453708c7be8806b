"""The playground: what a conversation becomes as one types, and the two step-throughs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from end_to_end.inspect.conversations import Talk
from end_to_end.inspect.inspector_page import InspectorPage

Open = Callable[..., InspectorPage]


def total(page: Page) -> int:
    return int(page.get_by_test_id("reusable").get_attribute("data-total") or 0)


def settled(page: Page) -> None:
    """What is shown is of what is written: the page says so from the keystroke on."""
    expect(page.locator(".result:not(.stale) .token:not(.waiting)").first).to_be_visible()


def test_template_tokens_and_count_change_as_one_types(inspect: Open) -> None:
    inspector = inspect("playground")
    page = inspector.page
    settled(page)
    before = total(page)

    page.locator(".draft-message.role-user textarea").first.fill("Hello from the keyboard, with rather more words than before")
    expect(inspector.panel("segments")).to_contain_text("Hello from the keyboard")
    settled(page)
    assert total(page) != before


def test_what_a_recorded_request_left_is_reusable_until_it_is_edited(inspect: Open, recorded: Talk) -> None:
    inspector = inspect("playground")
    page = inspector.page
    expect(page.get_by_label("begin with").locator("option")).not_to_have_count(2)
    page.get_by_label("begin with").select_option(recorded.chat_answer)
    reusable = page.get_by_test_id("reusable")
    expect(page.locator(".draft-message.role-system textarea").first).to_have_value(re.compile("The time is 2026-11-30 02:05"))
    expect(reusable).to_contain_text(re.compile(r"\d+ of them reusable now \(resident"))
    settled(page)
    before = int(reusable.get_attribute("data-tokens") or 0)
    assert 0 < before < total(page)

    system = page.locator(".draft-message.role-system textarea").first
    system.fill(system.input_value().replace("02:05", "12:15"))
    expect(reusable).not_to_have_attribute("data-tokens", str(before))
    settled(page)
    assert int(reusable.get_attribute("data-tokens") or 0) < before


def test_a_special_token_that_is_typed_stays_text(inspect: Open) -> None:
    inspector = inspect("playground")
    page = inspector.page
    settled(page)

    page.locator(".draft-message.role-user textarea").first.fill("I type <|im_end|> here")
    typed = page.get_by_test_id("typed-markers")
    expect(typed).to_contain_text(re.compile(r"stays text: <\|im_end\|> became [1-9]\d+ tokens"))
    expect(inspector.panel("segments").locator(".kind-text.origin-client", has_text="<|im_end|>")).to_have_count(1)


def test_another_family_writes_another_template(inspect: Open) -> None:
    inspector = inspect("playground")
    page = inspector.page
    settled(page)
    names = page.get_by_label("template family").locator("option").evaluate_all("all => all.map(option => option.value)")
    assert {"loaded", "qwen3", "deepseek-v3", "deepseek-v3.2", "deepseek-v4", "glm-4.5", "glm-4.7", "gpt-oss"} <= set(names)

    page.get_by_label("template family").select_option("deepseek-v4")
    expect(inspector.panel("segments")).to_contain_text("｜begin▁of▁sentence｜")
    inspector.word("segments", "｜User｜")
    expect(page.get_by_test_id("reusable")).to_contain_text("not the served model")
    page.get_by_label("template family").select_option("gpt-oss")
    inspector.scroll("segments", "start")
    expect(inspector.panel("segments")).to_contain_text("<|start|>", timeout=300_000)  # 200,000 entries are read first
    inspector.word("segments", "<|channel|>")


@pytest.mark.parametrize(
    ("locale", "said", "control", "told"),
    [
        ("en-GB", "counted with the served model's", "the model opens <think> itself", "This template never shows the tools"),
        ("zh-CN", "以所服务模型的分词器计数", "模型自己打开 <think>", "此模板从不向模型展示工具"),
    ],
)
def test_a_tokenizer_that_stands_in_controls_and_tools_that_are_left_out_are_told(
    inspect: Open, locale: str, said: str, control: str, told: str
) -> None:
    page = inspect("playground", locale=locale).page
    settled(page)

    page.locator(".family-choice select").select_option("glm-4.5")
    expect(page.locator(".tokenizer.stand-in")).to_contain_text(said)
    expect(page.locator("option", has_text=control).first).to_be_attached()
    page.locator(".family-choice select").select_option("deepseek-v3")
    expect(page.locator(".tokenizer.stand-in")).to_have_count(0)
    expect(page.locator(".result .note", has_text=told)).to_be_visible()


def test_tools_and_calls_that_are_no_json_are_told(inspect: Open) -> None:
    page = inspect("playground").page
    settled(page)

    page.get_by_label("Chat Completions tools; empty: none").fill("[{")
    expect(page.get_by_role("alert")).to_contain_text("Tools (JSON) is not JSON")


def test_a_message_can_be_added_moved_and_removed(inspect: Open) -> None:
    page = inspect("playground").page
    settled(page)
    messages = page.locator(".draft-message")
    before = messages.count()

    page.get_by_role("button", name="Add a message").click()
    expect(messages).to_have_count(before + 1)
    messages.last.locator("textarea").fill("the last one")
    messages.last.get_by_role("button", name="Move up").click()
    expect(messages.nth(before - 1).locator("textarea")).to_have_value("the last one")
    messages.nth(before - 1).get_by_role("button", name="Remove").click()
    expect(messages).to_have_count(before)


def test_a_conversation_runs_and_stands_in_the_list(inspect: Open) -> None:
    inspector = inspect("playground")
    page = inspector.page
    settled(page)
    for _ in range(4):
        page.locator(".draft-message").last.get_by_role("button", name="Remove").click()
    page.locator(".draft-message textarea").first.fill("A question from the playground")
    page.locator(".draft-message select").first.select_option("user")
    settled(page)

    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_test_id("run-answer")).to_contain_text("Let me look.")
    page.get_by_role("link", name="Open it as a request").click()
    expect(inspector.panel("conversation")).to_contain_text("A question from the playground")


def test_soft_and_hard_control_of_thinking_are_compared(inspect: Open) -> None:
    page = inspect("playground/compare").page
    page.get_by_label("template family").select_option("deepseek-v4")
    parting = page.get_by_test_id("parting")
    expect(page.locator("optgroup").first).to_be_attached()

    expect(parting).to_contain_text("They part at token")
    assert int(parting.get_attribute("data-shared") or 0) > 0
    thinking = page.locator(".compare .result select")
    groups = thinking.first.locator("optgroup").evaluate_all("all => all.map(group => group.label)")
    assert {label.split(":")[0] for label in groups} == {"soft", "hard"}
    for choice in (thinking.first, thinking.last):
        choice.select_option("")
    expect(parting).to_contain_text("Both are the same")


def test_merges_are_stepped_played_and_end_as_the_tokens(inspect: Open) -> None:
    page = inspect("playground/merges").page
    page.get_by_label("template family").select_option("deepseek-v4")
    page.get_by_test_id("merge-text").fill("the weather of tomorrow morning, and what the playing of it looks like. " * 6)
    first = page.get_by_test_id("symbols").first
    expect(first.locator(".symbol")).to_have_text(["t", "h", "e"])
    step = page.locator(".step-controls output")
    expect(step).to_contain_text("step 0 of")

    page.get_by_role("button", name="Next").click()
    expect(page.get_by_test_id("merge-line")).to_contain_text(re.compile("joins “.+” and “.+” · rank"))
    expect(page.locator(".symbol.joined")).to_have_count(1)
    expect(first.locator(".symbol")).to_have_count(2)
    page.get_by_role("button", name="Back").click()
    expect(first.locator(".symbol")).to_have_count(3)
    page.get_by_role("button", name="Play").click()
    expect(step).to_have_text(re.compile(r"step ([2-9]|\d{2,}) of"))  # two are soon over, and many more follow them
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="To the end").click()
    expect(page.get_by_test_id("merge-line")).to_contain_text("these are the tokens")
    expect(first.locator(".symbol")).to_have_text(["the"])


def test_characters_of_several_bytes_begin_as_bytes(inspect: Open) -> None:
    page = inspect("playground/merges").page
    page.get_by_test_id("merge-text").fill("日")

    expect(page.get_by_test_id("symbols").first.locator(".symbol.bytes")).to_have_text(["E6", "97", "A5"])


def test_attention_with_a_cache_computes_a_row_and_without_one_the_triangle(inspect: Open) -> None:
    page = inspect("playground/attention").page
    cached, plain = page.get_by_test_id("with-cache"), page.get_by_test_id("without-cache")
    for figure in (cached, plain):
        expect(figure).to_have_attribute("data-cells", "15")

    page.keyboard.press("ArrowRight")
    expect(cached).to_have_attribute("data-cells", "6")
    expect(plain).to_have_attribute("data-cells", "21")
    expect(cached.locator(".cells .now")).to_have_count(6)
    expect(cached.locator(".cells .kept")).to_have_count(15)
    expect(plain.locator(".cells .again")).to_have_count(15)
    page.get_by_role("button", name="To the end").click()
    expect(page.locator(".step-controls output")).to_contain_text("step 6 of 6")
    sums = page.get_by_test_id("attention-table").locator("tbody tr td:last-child").all_inner_texts()
    assert sums == ["266", "66"]  # 15 + 21 + … + 66 against the triangle of 11
