"""What Discord's messages mean, and how ours are cut: tables for the pure modules."""

import dataclasses

import pytest

from sessionary.channels.base import utf16_units
from sessionary.channels.discord import inbound
from sessionary.channels.discord.adapter import LONGEST, nonce, target
from sessionary.channels.discord.inbound import (
    DiscordBot,
    DiscordMessage,
    DiscordOptions,
    DiscordPlace,
)
from sessionary.engine.outbox import split_text
from sessionary.model.source import Channel, key_for

ME = DiscordBot("1", frozenset({"2"}))
DIRECT = DiscordMessage(
    message_id="9", place=DiscordPlace("50"), text="hello", author_id="7", author_name="Ada"
)
GUILD = DiscordPlace("60", "general", "All sorts", guild_id="70", guild_name="Sessionary")
IN_CHANNEL = dataclasses.replace(DIRECT, place=GUILD)
IN_THREAD = dataclasses.replace(
    DIRECT, place=dataclasses.replace(GUILD, channel_id="61", parent_id="60")
)


@pytest.mark.parametrize(
    ("received", "key"),
    [
        (DIRECT, "main/discord/dm/chat=50"),
        (IN_CHANNEL, "main/discord/channel/chat=60/person=7"),
        (IN_THREAD, "main/discord/thread/chat=60/thread=61"),
    ],
)
def test_each_place_is_a_conversation_of_its_own(received: DiscordMessage, key: str) -> None:
    assert str(key_for(inbound.source_of(received))) == key


@pytest.mark.parametrize(
    ("change", "rules", "is_addressed"),
    [
        ({}, DiscordOptions(), False),
        ({"place": DiscordPlace("50")}, DiscordOptions(), True),
        ({"mentions": frozenset({"1"})}, DiscordOptions(), True),
        ({"mentions": frozenset({"2"})}, DiscordOptions(), True),
        ({"mentions": frozenset({"8"})}, DiscordOptions(), False),
        ({"replies_to": "1"}, DiscordOptions(), True),
        ({"replies_to": "8"}, DiscordOptions(), False),
        ({"is_command": True}, DiscordOptions(), True),
        ({}, DiscordOptions(always=True), True),
        ({}, DiscordOptions(always_in=frozenset({"60"})), True),
        ({}, DiscordOptions(always_in=frozenset({"61"})), False),
        ({"place": IN_THREAD.place}, DiscordOptions(always_in=frozenset({"60"})), True),
    ],
)
def test_a_message_is_addressed_to_the_agent_by_these_rules(
    change: dict[str, object], rules: DiscordOptions, is_addressed: bool
) -> None:
    received = dataclasses.replace(IN_CHANNEL, **change)  # type: ignore[arg-type]

    assert inbound.is_addressed(received, ME, rules) is is_addressed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<@1> hello", "hello"),
        ("<@!1>, hello", "hello"),
        ("<@&2> /new work", "/new work"),
        ("hello <@1>", "hello <@1>"),
        ("<@12> hello", "<@12> hello"),
        ("  two spaces", "  two spaces"),
        ("", ""),
    ],
)
def test_the_mention_at_the_beginning_is_removed_from_the_text(text: str, words: str) -> None:
    received = dataclasses.replace(IN_CHANNEL, text=text)

    assert inbound.words_of(received, ME) == words


def test_messages_of_bots_are_ignored() -> None:
    assert inbound.is_ignored(dataclasses.replace(DIRECT, author_is_bot=True), ME)
    assert inbound.is_ignored(dataclasses.replace(DIRECT, author_id="1"), ME)
    assert not inbound.is_ignored(DIRECT, ME)


def test_pieces_are_short_enough_as_discord_counts() -> None:
    pieces = split_text("👩‍👩‍👧‍👦" * 900, LONGEST, measure=utf16_units)

    assert all(len(each.encode("utf-16-le")) // 2 <= LONGEST for each in pieces)
    assert "".join(pieces) == "👩‍👩‍👧‍👦" * 900


def test_a_piece_has_the_same_nonce_in_every_try_and_no_other_has_it() -> None:
    first, again = ([nonce("delivery-1", index) for index in range(3)] for _ in range(2))

    assert first == again
    assert len(set(first)) == 3
    assert all(len(each) <= 25 for each in first)


def test_a_thread_is_written_to_by_its_own_id() -> None:
    assert target(Channel("discord", "60")) == "60"
    assert target(Channel("discord", "60", "61")) == "61"
