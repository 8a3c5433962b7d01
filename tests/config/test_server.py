"""The table [web]: read with care, its example true, its secret kept."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from sessionary import config
from sessionary.actions import credentials
from sessionary.config.server import Limits, WebSettings, read_push, read_web
from sessionary.errors import BadInput
from tests.project.code import ROOT

EXAMPLE = ROOT / "sessionary.example.toml"
HASH = credentials.hash_password("correct horse battery", bytes(16))


def loaded(folder: Path, text: str, **environ: str) -> WebSettings:
    (folder / config.FILE).write_text(text, encoding="utf-8")
    return read_web(config.load(home=str(folder)), environ)


def test_the_example_says_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, EXAMPLE.read_text(encoding="utf-8")) == WebSettings()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        f"""
        [web]
        allowed_hosts = ["h.example"]
        trusted_proxies = ["127.0.0.1", "10.0.0.0/8", "::1"]
        password_hash = "{HASH}"
        webhook_host = "0.0.0.0"
        webhook_port = 8742
        """,
    )

    assert found.allowed_hosts == {"h.example"}
    assert found.trusted_proxies == tuple(map(ip_network, ("127.0.0.1", "10.0.0.0/8", "::1")))
    assert found.password_hash is not None
    assert found.password_hash.reveal() == HASH
    assert (found.webhook_host, found.webhook_port) == ("0.0.0.0", 8742)
    assert HASH not in repr(found)


def test_the_hash_may_stand_in_a_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "hash").write_text(f"{HASH}\n")

    by_file = loaded(tmp_path, f"[web]\npassword_hash_file = '{tmp_path}/hash'")
    by_variable = loaded(tmp_path, "[web]\npassword_hash_env = 'H'", H=HASH)

    for found in (by_file, by_variable):
        assert found.password_hash is not None
        assert found.password_hash.reveal() == HASH


def test_the_limits_of_the_server_can_be_set(tmp_path: Path) -> None:
    found = loaded(tmp_path, "[web.limits]\nconnections = 9\nbody_seconds = 0.5")

    assert (found.limits.connections, found.limits.body_seconds) == (9, 0.5)
    assert found.limits.streams == Limits().streams


def test_a_limit_that_would_close_the_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        loaded(tmp_path, "[web.limits]\nbody_bytes = 10")

    assert "[web.limits]: body_bytes must be a whole number from 65536 up, not 10." in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("allowed_host = []", "Did you mean 'allowed_hosts'?"),
        ("trusted_proxies = ['proxy.example']", "10.0.0.0/8, but number 1 is 'proxy.example'"),
        (
            "trusted_proxies = ['10.0.0.1/8']",
            "an address or a network such as 127.0.0.1 or 10.0.0.0/8, but",
        ),
        ("trusted_proxies = '127.0.0.1'", "must be a list; each value is an address or a network"),
        ("password_hash = 'correct horse battery'", "sessionary password hash"),
        ("password_hash_env = 'NONE'", "variable NONE is not set"),
        ("webhook_port = 70000", "at most 65_535, not 70000"),
        ("webhook_port = 0", "a whole number above 0"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        loaded(tmp_path, f"[web]\n{text}")

    assert says in str(caught.value)
    assert "correct horse" not in str(caught.value)


def test_push_services_are_named_by_their_addresses(tmp_path: Path) -> None:
    (tmp_path / config.FILE).write_text(
        '[push]\ncontact = "mailto:me@example.org"\n'
        'services = ["https://push.example.org/", "http://127.0.0.1:8123"]\n'
    )

    found = read_push(config.load(home=str(tmp_path)))

    assert found.contact == "mailto:me@example.org"
    assert found.services == ("https://push.example.org", "http://127.0.0.1:8123")


@pytest.mark.parametrize(
    "text",
    [
        'services = ["push.example.org"]',
        'services = ["http://push.example.org"]',
        'services = ["https://push.example.org/path"]',
        'services = ["https://me@push.example.org"]',
        'contact = "me@example.org"',
        'services = "*"',
    ],
)
def test_what_is_no_address_of_a_push_service_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / config.FILE).write_text(f"[push]\n{text}\n")

    with pytest.raises(BadInput, match="push"):
        read_push(config.load(home=str(tmp_path)))
