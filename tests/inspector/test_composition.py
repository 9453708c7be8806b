"""Every token of a prompt is counted once, under the part that it is of."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.inspector.prompts import CLOCK, WEATHER, answer, call, request, result, system, user, view
from zllm_ref.canonical.message import Text
from zllm_ref.inspector.composition import KINDS, composition
from zllm_ref.inspector.family import FAMILIES
from zllm_ref.inspector.prefix_panel import Prices, shares

ASKED = request(
    system("You are terse.\n<env>\ncwd: /tmp\n</env>"),
    user("<system-reminder>\nA file changed.\n</system-reminder>Weather in Paris?"),
    answer(Text("I look."), call('{"city": "Paris"}')),
    result("18 degrees"),
    answer(Text("It is mild.")),
    user("And in Rome?"),
    tools=(WEATHER, CLOCK),
)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_parts_of_a_prompt_sum_up_to_it(family: str) -> None:
    seen = view(ASKED, family)

    parts = composition(seen)

    assert [part.kind for part in parts] == list(KINDS)
    assert sum(part.tokens for part in parts) == seen.axis.num_prompt
    assert sum(part.share for part in parts) == pytest.approx(1)
    covered = sorted(span for part in parts for span in part.spans)
    assert covered[0][0] == 0
    assert covered[-1][1] == seen.axis.num_prompt
    assert all(first[1] == second[0] for first, second in pairwise(covered))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_each_text_is_counted_where_it_belongs(family: str) -> None:
    seen = view(ASKED, family)
    said = {part.kind: "".join(seen.axis.text_of(span) for span in part.spans) for part in composition(seen)}

    assert "You are terse." in said["system"]
    assert said["workspace"] == "<env>\ncwd: /tmp\n</env><system-reminder>\nA file changed.\n</system-reminder>"
    assert "Weather in Paris?" in said["history"]
    assert "It is mild." in said["history"]
    assert "18 degrees" in said["tool_results"]
    assert said["new_input"] == "And in Rome?"
    if FAMILIES[family].shows_tools:
        assert "get_weather" in said["tools"]
        assert "get_time" in said["tools"]
    assert "18 degrees" not in said["history"]
    assert "terse" not in said["tools"]


def test_results_that_wait_for_an_answer_are_results_and_nothing_is_new() -> None:
    asked = request(user("Weather?"), answer(call('{"city": "Paris"}')), result("18"), tools=(WEATHER,))

    counted = {part.kind: part.tokens for part in composition(view(asked))}

    assert counted["new_input"] == 0
    assert counted["tool_results"] == 2


def test_costs_are_prices_times_tokens() -> None:
    seen = view(ASKED)

    parts, total = shares(seen, 10, Prices(3.0, 0.3), 2.0)

    size = seen.axis.num_prompt
    assert total["cost_uncached"] == pytest.approx(size * 3e-6)
    assert total["cost_cached"] == pytest.approx(size * 0.3e-6)
    assert total["cost"] == pytest.approx(10 * 0.3e-6 + (size - 10) * 3e-6)
    assert total["ms_uncached"] == 2.0 * size
    assert sum(part["cached_tokens"] for part in parts) == 10
    assert sum(part["cost"] for part in parts) == pytest.approx(total["cost"])
