"""Each named cause is named where it is one, and not where something merely looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.inspector.prompts import (
    CLOCK,
    WEATHER,
    answer,
    call,
    cause,
    explained,
    request,
    result,
    salted,
    system,
    thought,
    user,
)
from zllm_ref.canonical.message import Text

LONG = "You are an agent that works in a terminal.\nRead before you write.\n"


# ---- a clock ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "now_is"),
    [
        ("It is 12:00.", "It is 12:07."),
        ("Today is 2026-11-29.", "Today is 2026-11-30."),
        ("Now: 2026-11-30T12:00:00Z", "Now: 2026-11-30T12:00:41Z"),
        ("Today is Sunday, November 29, 2026.", "Today is Monday, November 30, 2026."),
        ("Date: 30 Nov 2026", "Date: 1 Dec 2026"),
        ("ts=1796005648", "ts=1796005649"),
        ("今天是2026年11月29日", "今天是2026年11月30日"),
    ],
)
def test_a_changed_clock_is_named(was: str, now_is: str) -> None:
    earlier, now = request(system(LONG + was), user("hi")), request(system(LONG + now_is), user("hi"))

    assert cause(now, earlier) == "changed_clock"


@pytest.mark.parametrize(
    ("was", "now_is"),
    [
        ("Version 12 of the rules.", "Version 13 of the rules."),
        ("It is 12:00. Be terse.", "It is 12:00. Be polite."),
        ("It is 12:00. Be terse.", "It is 12:07. Be polite."),
        ("Use port 8000.", "Use port 8001."),
    ],
)
def test_a_number_is_no_clock_and_a_clock_beside_another_change_is_not_the_cause(was: str, now_is: str) -> None:
    earlier, now = request(system(LONG + was), user("hi")), request(system(LONG + now_is), user("hi"))

    assert cause(now, earlier) != "changed_clock"


def test_the_clocks_texts_are_told() -> None:
    found = explained(request(system("It is 12:07."), user("hi")), request(system("It is 12:00."), user("hi"))).cause

    assert found is not None
    assert found["detail"] == "It said '12:00' and says '12:07'."


# ---- tools ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family", ["smollm2", "qwen3", "deepseek-v3.2", "deepseek-v4", "glm-4.5", "glm-4.7", "gpt-oss", "qwen3-coder"]
)
def test_the_same_tools_in_another_order_are_named(family: str) -> None:
    earlier = request(system(LONG), user("hi"), tools=(WEATHER, CLOCK))
    now = request(system(LONG), user("hi"), tools=(CLOCK, WEATHER))

    assert cause(now, earlier, family) == "reordered_tools"


@pytest.mark.parametrize("family", ["smollm2", "deepseek-v4", "glm-4.7", "gpt-oss"])
def test_other_tools_in_another_order_are_not_called_reordered(family: str) -> None:
    earlier = request(system(LONG), user("hi"), tools=(WEATHER, CLOCK))
    other = replace(CLOCK, description="The time of a town.")
    now = request(system(LONG), user("hi"), tools=(other, WEATHER))

    assert cause(now, earlier, family) == "changed_tools"


def test_one_tool_more_is_a_change_of_tools() -> None:
    earlier, now = request(user("hi"), tools=(WEATHER,)), request(user("hi"), tools=(WEATHER, CLOCK))

    found = explained(now, earlier).cause

    assert found is not None
    assert found["name"] == "changed_tools"
    assert "Tools added: 'get_time'." in found["detail"]


def test_tools_that_differ_behind_the_fork_are_not_the_cause() -> None:
    """The clock stands before the tools: it alone broke the prefix."""
    earlier = request(system("It is 12:00."), user("hi"), tools=(WEATHER, CLOCK))
    now = request(system("It is 12:07."), user("hi"), tools=(CLOCK, WEATHER))

    assert cause(now, earlier) == "changed_clock"


# ---- what was said before ----------------------------------------------------------------------------------------------------


def test_a_call_with_the_same_arguments_in_other_characters_is_named() -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, answer(call('{"city": "Paris", "days": 1.0}')), result("18"), tools=(WEATHER,))
    now = request(*past, answer(call('{"days": 1, "city": "Paris"}')), result("18"), user("thanks"), tools=(WEATHER,))

    assert cause(now, earlier) == "tool_call_rerendered"


def test_a_call_with_other_arguments_was_not_merely_written_anew() -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, answer(call('{"city": "Paris", "days": 1}')), result("18"), tools=(WEATHER,))
    now = request(*past, answer(call('{"city": "Paris", "days": 2}')), result("18"), user("thanks"), tools=(WEATHER,))

    assert cause(now, earlier) == "edited_history"


THOUGHTFUL = answer(thought("The user wants the weather. I shall call the tool."), call('{"city": "Paris"}'))


def test_reasoning_that_the_client_dropped_is_named() -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, THOUGHTFUL, result("18"), tools=(WEATHER,), reasoning=True)
    now = request(*past, answer(call('{"city": "Paris"}')), result("18"), tools=(WEATHER,), reasoning=True)

    found = explained(now, earlier, "qwen3").cause

    assert found is not None
    assert found["name"] == "reasoning_dropped"
    assert "by the client" in found["detail"]


def test_reasoning_that_the_template_drops_behind_a_new_question_is_named() -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, THOUGHTFUL, result("18"), tools=(WEATHER,), reasoning=True)
    now = request(*past, THOUGHTFUL, result("18"), user("And tomorrow?"), tools=(WEATHER,), reasoning=True)

    found = explained(now, earlier, "qwen3").cause

    assert found is not None
    assert found["name"] == "reasoning_dropped"
    assert "by the template" in found["detail"]


def test_other_reasoning_in_the_same_place_was_not_dropped() -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, THOUGHTFUL, result("18"), tools=(WEATHER,), reasoning=True)
    other = answer(thought("The user wants rain. I shall call the tool."), call('{"city": "Paris"}'))
    now = request(*past, other, result("18"), tools=(WEATHER,), reasoning=True)

    assert cause(now, earlier, "qwen3") not in ("reasoning_dropped", "tool_call_rerendered")


def test_reasoning_that_was_only_edited_at_its_end_was_not_dropped() -> None:
    past = (system(LONG), user("Weather?"))
    ends = ("Today, I think, since nothing else is said of it.", "Rather tomorrow, since nothing else is said of it.")
    same = "The user wants to know the weather of a city in France, which is Paris, and has not said for when. "
    one, other = (answer(thought(same + end), call('{"city": "Paris"}')) for end in ends)
    earlier = request(*past, one, result("18"), tools=(WEATHER,), reasoning=True)
    now = request(*past, other, result("18"), tools=(WEATHER,), reasoning=True)

    assert cause(now, earlier, "qwen3") == "edited_history"


def test_a_changed_answer_is_edited_history() -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, answer(Text("It is mild.")), user("thanks"))
    now = request(*past, answer(Text("It is cold.")), user("thanks"))

    assert cause(now, earlier) == "edited_history"


def test_a_changed_question_in_front_of_the_same_conversation_is_edited_history() -> None:
    rest = (answer(Text("It is mild.")), user("thanks"))
    earlier, now = request(user("Weather in Paris?"), *rest), request(user("Weather in Parma?"), *rest)

    assert cause(now, earlier) == "edited_history"


def test_another_question_behind_the_same_beginning_is_another_conversation() -> None:
    earlier = request(system(LONG), user("Weather?"), answer(Text("Mild.")), user("thanks"))
    now = request(system(LONG), user("Write a poem."))

    assert cause(now, earlier) == "other_conversation"


# ---- lines, dialects, namespaces ---------------------------------------------------------------------------------------------

BILLING = "x-anthropic-billing-header: cc_version=2.1; cch={}\n" + LONG


def test_a_billing_line_that_changes_is_named() -> None:
    earlier = request(system(BILLING.format("a1b2c")), user("hi"))
    now = request(system(BILLING.format("d3e4f")), user("hi"))

    assert cause(now, earlier) == "billing_line"


def test_a_billing_line_that_stays_is_not_the_cause_of_what_changes_behind_it() -> None:
    earlier = request(system(BILLING.format("a1b2c") + "Be terse."), user("hi"))
    now = request(system(BILLING.format("a1b2c") + "Be polite."), user("hi"))

    assert cause(now, earlier) != "billing_line"


def test_another_revision_of_the_dialect_is_named() -> None:
    asked = request(system(LONG), user("hi"), tools=(WEATHER,))

    assert cause(asked, asked, "deepseek-v4", "deepseek-v3.2") == "other_dialect_revision"
    assert cause(asked, asked, "deepseek-v4", "deepseek-v4") is None


def test_another_namespace_is_named_although_the_tokens_are_the_same() -> None:
    asked = request(system(LONG), user("hi"))

    assert cause(salted(asked, "b"), salted(asked, "a")) == "other_namespace"
    assert cause(salted(asked, "a"), salted(asked, "a")) is None


@pytest.mark.parametrize("family", ["smollm2", "deepseek-v3.2", "glm-4.7"])
def test_nothing_broke_where_the_earlier_prompt_is_the_beginning(family: str) -> None:
    past = (system(LONG), user("Weather?"))
    earlier = request(*past, tools=(WEATHER,))
    now = request(*past, answer(call('{"city": "Paris"}')), result("18"), tools=(WEATHER,))

    assert cause(now, earlier, family) in (None, "unknown")
    assert cause(now, now, family) is None


def test_both_texts_around_the_fork_are_shown() -> None:
    shown = explained(request(system("It is 12:07."), user("hi")), request(system("It is 12:00."), user("hi"))).shown()

    near = shown["nearest"]
    assert near["before"].endswith("It is 12:0")
    assert near["earlier"].startswith("0.<|im_end|>")
    assert near["now"].startswith("7.<|im_end|>")
    assert near["window"]["now"][0] == near["fork"] == near["window"]["before"][1]
    assert near["lost_tokens"] == near["length"] - near["fork"]
