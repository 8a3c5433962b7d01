"""`sessionary deliveries`: what could not be delivered is seen, and gets another way out."""

from typing import Any

import pytest

from sessionary import Sessionary
from sessionary.actions import outbox
from sessionary.model.message import Text
from sessionary.model.source import Channel, Source
from tests.cli.conftest import Program


def abandoned(sessionary: Program, text: str = "hello", chat: str = "gone") -> str:
    with Sessionary(home=str(sessionary.home), create=True) as client:
        given: dict[str, Any] = {"profile": client.profile, "moment": client.moment()}
        id = client.store.write(
            outbox.enqueue, Channel("telegram", chat), (Text(text),), **given
        ).result()
        client.store.write(outbox.abandon, id, reason="blocked by the user").result()
    return id


@pytest.fixture
def telegram(sessionary: Program) -> Program:
    """A program with a Telegram channel, and a chat there that has talked with the agent."""
    sessionary.home.mkdir()
    (sessionary.home / "sessionary.toml").write_text("[channels.telegram]\ntoken_env = 'T'\n")
    with Sessionary(home=str(sessionary.home), create=True) as client:
        client.session(Source("telegram", "42", user_id="7")).append("user", "hi")
    return sessionary


def test_what_was_abandoned_is_listed_shown_and_redirected(telegram: Program) -> None:
    id = abandoned(telegram)

    listed = telegram("deliveries", "list", "--state", "abandoned")
    as_json = telegram("deliveries", "list", "--channel", "telegram:gone", "--json").json
    shown = telegram("deliveries", "show", id[:-2])
    made = telegram("deliveries", "redirect", id, "telegram:42", "--json").json

    assert "blocked by the user" in listed.out
    assert [each["id"] for each in as_json["items"]] == [id]
    assert as_json["next"] is None
    assert "telegram:gone" in shown.out
    assert shown.out.endswith("hello\n")
    assert (made["state"], made["channel"]) == ("waiting", "telegram:42")
    old = telegram("deliveries", "show", id, "--json").json
    assert (old["state"], old["redirected_to"]) == ("redirected", made["id"])
    assert telegram("deliveries", "list", "--state", "abandoned").line == (
        "No deliveries are abandoned."
    )


def test_a_delivery_is_retried_and_given_up(telegram: Program) -> None:
    id = abandoned(telegram)

    assert "is sent next" in telegram("deliveries", "retry", id).out
    assert telegram("deliveries", "show", id, "--json").json["state"] == "waiting"
    given_up = telegram("deliveries", "abandon", id, "--reason", "told by phone", "--json").json
    assert (given_up["state"], given_up["reason"]) == ("abandoned", "told by phone")


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("show", "nothing"), 3, "There is no delivery nothing."),
        (("retry", "nothing"), 3, "There is no delivery"),
        (("redirect", "ID", "telegram:1"), 1, "no home channel; nothing was changed"),
        (("redirect", "ID", "slack:1"), 1, "no channel 'slack'"),
        (("redirect", "ID", "nonsense"), 1, "platform:chat"),
        (("list", "--state", "lost"), 2, "lost"),
        (("list", "--cursor", "x"), 1, "cursor"),
    ],
)
def test_a_refusal_is_one_line(
    telegram: Program, args: tuple[str, ...], code: int, says: str
) -> None:
    id = abandoned(telegram)

    answer = telegram("deliveries", *(id if each == "ID" else each for each in args))

    assert answer.code == code, answer.err
    assert says in answer.line


def test_the_doctor_names_the_command(telegram: Program) -> None:
    abandoned(telegram)

    assert "sessionary deliveries list --state abandoned" in telegram("doctor").out


def test_a_beginning_that_two_deliveries_have_is_ambiguous(telegram: Program) -> None:
    ids = [abandoned(telegram), abandoned(telegram)]
    common = next(n for n in range(99) if ids[0][n] != ids[1][n])

    if common >= 4:
        answer = telegram("deliveries", "show", ids[0][:common])
        assert answer.code == 4
        assert all(id in answer.line for id in ids)
