"""Every documented request field has a row: nothing that a client may send is ignored by accident."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params
from openai.types.chat import completion_create_params
from openai.types.responses import input_token_count_params, response_create_params

from zllm_ref.protocols.anthropic_messages.fields import FIELDS as MESSAGES
from zllm_ref.protocols.field_table import FieldTable, Support, as_markdown
from zllm_ref.protocols.openai_chat.fields import FIELDS as CHAT
from zllm_ref.protocols.openai_responses.fields import FIELDS as RESPONSES

SDK_TYPES = [
    (CHAT, completion_create_params.CompletionCreateParamsBase),
    (RESPONSES, response_create_params.ResponseCreateParamsBase),
    (RESPONSES, input_token_count_params.InputTokenCountParams),
    (MESSAGES, message_create_params.MessageCreateParamsBase),
    (MESSAGES, message_count_tokens_params.MessageCountTokensParams),
    (MESSAGES, beta_params.MessageCreateParamsBase),
]


@pytest.mark.parametrize(("table", "documented"), SDK_TYPES)
def test_every_field_that_the_sdk_documents_is_decided(table: FieldTable, documented: type) -> None:
    missing = set(typing.get_type_hints(documented)) - set(table.by_name())

    assert missing == set()


@pytest.mark.parametrize("table", [CHAT, RESPONSES, MESSAGES])
def test_whatever_is_not_used_says_why(table: FieldTable) -> None:
    names = [field.name for field in table.fields]

    assert len(names) == len(set(names))
    for field in table.fields:
        assert bool(field.because) == (field.support is not Support.USED), field.name
        assert bool(field.kinds) == (field.support is Support.NO_EFFECT), field.name


def test_the_documentation_lists_the_tables_as_they_are() -> None:
    """Regenerate with `python -m tests.protocols.test_fields > docs/request-fields.md`."""
    page = Path(__file__).parents[2] / "docs" / "request-fields.md"

    assert page.read_text(encoding="utf-8") == rendered()


def rendered() -> str:
    intro = (
        "# Request fields\n\nWhat becomes of every documented field. *used*: read and checked. *no effect*: its type is\n"
        "checked, it is accepted, and the last column says why it changes nothing. *refused*: a 400 that names the field.\n"
        "Null counts as absent. Generated from the tables in `zllm_ref/protocols/*/fields.py`, and checked.\n"
    )
    titles = (("Chat Completions", CHAT), ("Responses", RESPONSES), ("Messages", MESSAGES))
    return intro + "".join(f"\n## {title}\n\n{as_markdown(table)}" for title, table in titles)


if __name__ == "__main__":
    print(rendered(), end="")
