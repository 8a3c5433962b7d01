"""`sessionary channels`: what there is, and what is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from tests.cli.conftest import Program
from tests.support.fake_telegram import TOKEN, FakeTelegram


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    """A fake that serves in a thread of its own: the program has its own loop."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(FakeTelegram()) as fake,
    ):
        yield fake


def configure(sessionary: Program, fake: FakeTelegram, secret: Path) -> None:
    secret.write_text(TOKEN)
    sessionary.home.mkdir(exist_ok=True)
    (sessionary.home / "sessionary.toml").write_text(
        "[channels.telegram]\n"
        f'token_file = "{secret}"\n'
        f'base_url = "{fake.base_url.removesuffix("/bot")}"\n'
    )


def test_every_channel_is_listed(sessionary: Program) -> None:
    listed = sessionary("channels", "list", "--json").json["items"]

    assert {"telegram", "webhook"} <= {item["name"] for item in listed}
    assert not any(item["configured"] for item in listed)


def test_a_check_says_who_the_bot_is_and_that_nobody_may_use_it(
    sessionary: Program, telegram: FakeTelegram, tmp_path: Path
) -> None:
    configure(sessionary, telegram, tmp_path / "token")

    answer = sessionary("channels", "check", "telegram")

    assert answer.code == 0, answer.err
    assert "@clerk_bot (4242)" in answer.out
    assert "sessionary access allow telegram" in answer.out


def test_a_token_that_is_refused_is_one_line_that_says_what_to_do(
    sessionary: Program, telegram: FakeTelegram, tmp_path: Path
) -> None:
    configure(sessionary, telegram, tmp_path / "token")
    telegram.revoke()

    answer = sessionary("channels", "check", "telegram")

    assert answer.code == 1
    assert "@BotFather" in answer.line
    assert TOKEN not in answer.err


def test_when_nobody_answers_one_line_says_what_to_look_at(
    sessionary: Program, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    sessionary.home.mkdir()
    (sessionary.home / "sessionary.toml").write_text(
        f'[channels.telegram]\ntoken_file = "{tmp_path / "token"}"\nbase_url = "http://127.0.0.1:9"\n'
    )

    answer = sessionary("channels", "check", "telegram")

    assert answer.code == 1
    assert "cannot be reached. Check the network and [channels.telegram]" in answer.line


@pytest.mark.parametrize(
    ("name", "words"), [("pigeon", "Installed: api"), ("telegram", "docs/channels/telegram.md")]
)
def test_a_channel_that_is_not_there_is_explained(
    sessionary: Program, name: str, words: str
) -> None:
    answer = sessionary("channels", "check", name)

    assert answer.code == 1
    assert words in answer.line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[channels.telegrm]\n", "no channel 'telegrm'"),
        ('[channels.telegram]\ntokn_file = "x"\n', "[channels.telegram]"),
        ('[channels.telegram]\ntoken_file = "/nowhere/token"\n', "/nowhere/token"),
        ('database = "mysql://x"\n', "Unknown database 'mysql'"),
    ],
)
def test_a_check_of_the_configuration_looks_at_every_channel_and_secret(
    sessionary: Program, text: str, expected: str
) -> None:
    sessionary.home.mkdir()
    (sessionary.home / "sessionary.toml").write_text(text)

    answer = sessionary("config", "check")

    assert answer.code == 1
    assert expected in answer.line


def test_a_check_of_the_configuration_calls_nobody(sessionary: Program, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    sessionary.home.mkdir()
    (sessionary.home / "sessionary.toml").write_text(
        f'[channels.telegram]\ntoken_file = "{tmp_path / "token"}"\nbase_url = "http://127.0.0.1:9"\n'
    )

    assert "valid" in sessionary("config", "check").out
