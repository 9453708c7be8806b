"""The five panels of a request: what they say, and that they light up together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from end_to_end.inspect.conversations import ANSWER, QUESTION, Talk
from end_to_end.inspect.inspector_page import PANELS, InspectorPage
from end_to_end.serving import ServerProcess

Open = Callable[..., InspectorPage]


@pytest.fixture(scope="module")
def opened_answer(browser: Browser, server: ServerProcess, recorded: Talk) -> Iterator[InspectorPage]:
    """The second turn through the OpenAI SDK: history, a call, its result, an answer."""
    inspector = InspectorPage.opened(browser, server.url, f"requests/{recorded.chat_answer}")
    yield inspector
    inspector.close()


@pytest.fixture
def answer(opened_answer: InspectorPage) -> InspectorPage:
    """As it is when it has just been opened: nothing pinned, every panel at its beginning."""
    page = opened_answer.page
    page.mouse.move(400, 5)
    opened_answer.settled()
    if page.locator(".link-line.is-pinned").count():
        page.keyboard.press("Escape")
    expect(opened_answer.link_line).to_contain_text("Point at anything")
    if not page.locator(".follow input").is_checked():
        page.keyboard.press("f")
    expect(page.locator(".follow input")).to_be_checked()
    for panel in ("wire", "conversation", "segments", "tokens"):
        opened_answer.scroll(panel, "start")
    expect(opened_answer.panel("tokens").locator(".token.special").first).to_be_visible()
    return opened_answer


# What they say


def test_the_wire_shows_the_request_as_it_came_and_each_frame_with_its_time(answer: InspectorPage) -> None:
    wire = answer.panel("wire")

    expect(wire).to_contain_text("POST /v1/chat/completions")
    expect(wire).to_contain_text(re.compile("user-agent: OpenAI/Python", re.IGNORECASE))
    expect(wire).to_contain_text('"role":"system"')
    answer.scroll("wire")
    expect(wire).to_contain_text("[DONE]")
    expect(wire.locator(".frame-row .at").last).to_have_text(re.compile(r"^\+[\d.,]+ m?s"))


def test_the_conversation_shows_messages_the_call_and_its_result(answer: InspectorPage) -> None:
    conversation = answer.panel("conversation")

    for text in ("get_weather", "system", "You are a weather service"):
        expect(conversation).to_contain_text(text)
    answer.scroll("conversation")
    for text in ("tool call", "tool result", "Sunny in Rome", "the answer", "It is sunny"):
        expect(conversation).to_contain_text(text)


def test_the_template_tells_roles_and_authors_apart(answer: InspectorPage) -> None:
    template = answer.panel("segments")

    expect(template.locator(".kind-marker").first).to_be_visible()
    expect(template.locator(".gutter", has_text="S").first).to_be_visible()
    for origin in ("template", "client"):
        expect(template.locator(f".origin-{origin}").first).to_be_visible()
    answer.scroll("segments")
    expect(template.locator(".gutter", has_text="A").last).to_be_visible()
    expect(template.locator(".origin-model").last).to_be_visible()


def test_tokens_show_text_and_id_and_mark_special_ones(answer: InspectorPage) -> None:
    tokens = answer.panel("tokens")

    first = tokens.locator(".token").first
    expect(first).to_have_class(re.compile("special"))
    expect(first.locator("small")).to_have_text(re.compile(r"^\d+"))


def test_a_part_of_a_character_is_shown_as_bytes(answer: InspectorPage) -> None:
    answer.scroll("tokens")

    partial = answer.panel("tokens").locator(".token.partial").last
    expect(partial).to_be_visible()
    expect(partial.locator("b")).to_have_text(re.compile(r"^[0-9A-F]{2}( [0-9A-F]{2})*$"))


def test_the_context_shows_what_was_hit_and_what_was_computed(answer: InspectorPage) -> None:
    page = answer.page

    for kind in ("hit_resident", "recomputed", "output"):
        expect(page.get_by_test_id(f"region-{kind}")).to_have_count(1)
    expect(page.locator(".context-body .legend").first).to_contain_text("hit, resident")
    expect(page.locator(".context-body .legend").first).to_contain_text(re.compile(r"[\d.]+ [KM]iB"))
    expect(answer.panel("context").locator(".block").first).to_be_visible()


# How they hang together


@pytest.mark.parametrize("origin", ["wire", "conversation", "segments", "tokens"])
def test_what_is_pointed_at_lights_up_in_all_panels(answer: InspectorPage, origin: str) -> None:
    """The same tokens everywhere: the beginning of the question."""
    if origin != "tokens":
        answer.word(origin, QUESTION[:12]).hover()
    else:
        answer.word("segments", QUESTION[:12]).click()
        token = answer.panel("tokens").locator(".token.lit")
        expect(token).to_have_count(1)
        place = token.get_attribute("data-a")
        answer.page.keyboard.press("Escape")
        expect(answer.link_line).not_to_contain_text("pinned")
        answer.panel("tokens").locator(f'.token[data-a="{place}"]').hover()

    for panel in PANELS:
        expect(answer.lit(panel)).not_to_have_count(0)
    for panel in ("wire", "conversation", "segments", "tokens"):
        answer.eventually(lambda: answer.lit_text(panel)[:1] == QUESTION[0], panel)  # noqa: B023
    expect(answer.link_line).to_contain_text("pointing at")
    expect(answer.link_line).to_contain_text("written by the client")


def test_a_message_lights_all_its_tokens(answer: InspectorPage) -> None:
    answer.panel("conversation").locator(".head-row", has_text="user").first.hover()

    expect(answer.link_line).to_contain_text("tokens")
    expect(answer.panel("segments").locator(".lit").first).to_be_in_viewport()
    said = QUESTION.replace(" ", "")
    answer.eventually(lambda: said in answer.lit_text("segments").replace("\n", "").replace(" ", ""), said)


def test_pointing_scrolls_the_counterpart_into_sight(answer: InspectorPage) -> None:
    answer.scroll("conversation")
    answer.word("conversation", "It is sunny").hover()

    for panel in ("wire", "segments", "tokens"):
        expect(answer.lit(panel).first).to_be_in_viewport()


def test_the_answer_on_the_wire_is_the_answer_in_the_tokens(answer: InspectorPage) -> None:
    answer.scroll("conversation")
    answer.word("conversation", "It is sunny").hover()

    frames = answer.panel("wire").locator(".frame-row.lit, .frame-row.holds")
    expect(frames).not_to_have_count(0)
    assert ANSWER.startswith("It is sunny")
    sent = answer.panel("wire").locator(".frame-data .lit, .frame-data .holds", has_text='"content":"I')
    expect(sent.first).to_be_visible()
    expect(answer.panel("tokens").locator(".token.output.lit")).not_to_have_count(0)


def test_a_region_of_the_context_lights_its_tokens(answer: InspectorPage) -> None:
    answer.page.get_by_test_id("region-recomputed").hover()

    expect(answer.panel("tokens").locator(".lit:not(.reused)")).not_to_have_count(0)
    expect(answer.panel("tokens").locator(".lit.reused")).to_have_count(0)


def test_nothing_moves_when_it_is_pointed_at(answer: InspectorPage) -> None:
    place = "element => element.getBoundingClientRect().top"
    before = answer.panel("segments").evaluate(place)

    answer.word("segments", "You are").hover()
    expect(answer.link_line).to_contain_text("pointing at")
    assert answer.panel("segments").evaluate(place) == before


def test_a_click_pins_and_escape_lets_go(answer: InspectorPage) -> None:
    page = answer.page
    answer.word("conversation", QUESTION[:12]).click()
    page.mouse.move(400, 5)

    expect(answer.link_line).to_contain_text("pinned")
    for panel in ("wire", "conversation", "segments", "tokens"):
        expect(answer.panel(panel).locator(".pinned")).not_to_have_count(0)
    page.keyboard.press("Escape")
    expect(answer.link_line).to_contain_text("Point at anything")
    for panel in PANELS:
        expect(answer.lit(panel)).to_have_count(0)


def test_arrow_keys_move_the_pin_token_by_token(answer: InspectorPage) -> None:
    answer.panel("tokens").locator(".token").nth(3).click()
    expect(answer.link_line).to_contain_text("token 3 of")

    answer.page.keyboard.press("ArrowRight")
    expect(answer.link_line).to_contain_text("token 4 of")
    answer.page.keyboard.press("Shift+ArrowRight")
    expect(answer.link_line).to_contain_text("token 14 of")
    answer.page.keyboard.press("ArrowLeft")
    expect(answer.link_line).to_contain_text("token 13 of")


def test_other_panels_follow_the_pin_and_stay_where_following_is_off(answer: InspectorPage) -> None:
    template = answer.panel("segments")
    answer.scroll("tokens")
    answer.panel("tokens").locator(".token.output").last.click()
    expect(answer.link_line).to_contain_text("pinned")
    expect(template.locator(".lit").first).to_be_in_viewport()
    assert template.evaluate("element => element.scrollTop") > 0

    answer.page.keyboard.press("f")
    expect(answer.page.locator(".follow input")).not_to_be_checked()
    template.evaluate("element => element.scrollTop = 0")
    before = answer.link_line.inner_text()
    answer.page.keyboard.press("ArrowLeft")
    expect(answer.link_line).not_to_have_text(before)
    answer.page.wait_for_timeout(300)
    assert template.evaluate("element => element.scrollTop") == 0


def test_a_panel_can_be_made_large(answer: InspectorPage) -> None:
    answer.page.keyboard.press("3")
    expect(answer.panel("segments")).to_be_focused()
    answer.page.keyboard.press("m")

    expect(answer.panel("wire")).to_be_hidden()
    expect(answer.panel("segments")).to_be_visible()
    answer.page.keyboard.press("m")
    expect(answer.panel("wire")).to_be_visible()


def test_the_same_conversation_through_the_anthropic_sdk_has_all_panels(inspect: Open, recorded: Talk) -> None:
    inspector = inspect(f"requests/{recorded.messages_answer}")

    expect(inspector.panel("wire")).to_contain_text("POST /v1/messages")
    expect(inspector.panel("conversation")).to_contain_text("You are a weather service")
    inspector.word("conversation", QUESTION[:12]).hover()
    for panel in PANELS:
        expect(inspector.lit(panel)).not_to_have_count(0)
    inspector.scroll("wire")
    expect(inspector.panel("wire")).to_contain_text("message_stop")


def test_the_panels_are_asked_for_before_it_is_known_that_they_are_there(inspect: Open, recorded: Talk) -> None:
    inspector = inspect("cache")
    page = inspector.page
    held: list[Route] = []
    page.route(re.compile(rf"/inspect/api/requests/{recorded.chat_answer}$"), lambda route: held.append(route))

    with page.expect_request(re.compile("/segments$")), page.expect_request(re.compile("/wire$")):
        inspector.open(f"requests/{recorded.chat_answer}")
    inspector.eventually(lambda: len(held) == 1, "the request itself is not asked for")
    expect(inspector.panel("wire")).to_have_count(0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[-1]))
    held[0].continue_()
    expect(inspector.panel("wire").locator(".row").first).to_be_visible()
    expect(inspector.panel("segments").locator(".row").first).to_be_visible()
    assert not {"wire", "segments"} & set(asked), asked
