"""Keys and tokens are known by their form, and never shown whole."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.model.redact import MASK, masked, masked_json, secrets_in

# Written in pieces, so that no scanner takes this file for a leak.
SECRETS = {
    "Anthropic key": "sk-" + "ant-api03-" + "a1B2c3D4" * 8,
    "OpenAI key": "sk-" + "proj-" + "Zz9Yy8Xx" * 6,
    "GitHub token": "gh" + "p_" + "abcDEF123456" * 3,
    "GitLab token": "gl" + "pat-" + "x" * 20,
    "AWS access key": "AK" + "IA" + "ABCDEFGH12345678",
    "Google key": "AI" + "za" + "S" * 35,
    "Slack token": "xo" + "xb-" + "123456789012-abcdefABCDEF",
    "Telegram bot token": "123456789" + ":" + "AAE" + "x" * 32,
    "Stripe key": "sk" + "_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "Hugging Face token": "h" + "f_" + "q" * 34,
    "npm token": "np" + "m_" + "k" * 36,
    "JSON web token": "ey" + "J" + "a" * 20 + ".ey" + "J" + "b" * 20 + "." + "c" * 30,
}


@pytest.mark.parametrize(("kind", "secret"), SECRETS.items())
def test_a_secret_is_found_in_the_middle_of_a_sentence(kind: str, secret: str) -> None:
    text = f"please use {secret}, it is new"

    found = list(secrets_in(text))

    assert [(each.kind, text[each.start : each.end]) for each in found] == [(kind, secret)]
    assert secret not in found[0].shown
    assert masked(text) == f"please use {MASK}, it is new"


def test_a_private_key_goes_whole() -> None:
    head, tail = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"

    assert masked(f"here:\n{head}\nMIIE\nabc+/=\n{tail}\nbye") == f"here:\n{MASK}\nbye"


def test_what_stands_behind_a_telling_word_is_a_secret() -> None:
    assert masked('password = "correct-horse-battery"') == f'password = "{MASK}"'
    assert masked("API_KEY=abcdef0123456789") == "API_KEY=abcdef0123456789".replace(
        "abcdef0123456789", MASK
    )
    assert masked("postgresql://eva:hunter22@db/x") == f"postgresql://{MASK}@db/x"
    assert masked("Authorization: Bearer abcdefghijklmnopqrstuvwxyz") == (
        f"Authorization: Bearer {MASK}"
    )


@pytest.mark.parametrize(
    "plain",
    [
        "the token is missing",
        "sk-learn is a library",
        "commit 3f9a1c7e5b2d4f6a8c0e1d3b5a7f9c2e4d6b8a0f",
        "my password: short",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "https://example.org/a:b/c@d",
    ],
)
def test_what_is_no_secret_is_left_alone(plain: str) -> None:
    assert masked(plain) == plain


def test_every_text_of_a_value_is_masked() -> None:
    secret = SECRETS["GitHub token"]

    made = masked_json({"a": [secret, 1, None], secret: {"b": f"x {secret}"}})

    assert made == {"a": [MASK, 1, None], MASK: {"b": f"x {MASK}"}}


@given(st.text())
def test_nothing_is_left_to_mask_after_masking(text: str) -> None:
    assert masked(masked(text)) == masked(text)


HOSTILE = (
    "eyJ",
    "ey" + "Jaaaaaaaaaaaa.",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN A ",
    "-----BEGIN PRIVATE KEY-----\n" + "A" * 5000,
    "password:",
    "password ",
    "://a:",
    "SG.aaaaaaaaaaaaaaaaaaaa",
    "1",
    "M",
    "github_pat_",
    "sk-",
    "Bearer ",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_long_or_much_room(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    tracemalloc.start()
    try:
        # Of this thread: threads that other tests left behind do not count.
        began = time.thread_time()
        masked(text)
        took = time.thread_time() - began
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert took < 10
    assert peak < 50_000_000


def test_a_secret_that_reaches_out_of_another_goes_whole() -> None:
    token = SECRETS["JSON web token"] + "d" * 300

    assert "dd" not in masked(f"password=x.{token} and on")


def test_a_mention_of_a_key_hides_only_what_may_be_one() -> None:
    text = "it begins with -----BEGIN PRIVATE KEY-----, " + "and goes on. " * 10_000

    assert masked(text).endswith("and goes on. ")


def test_a_key_with_headers_goes_whole() -> None:
    head, tail = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    key = f"{head}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\nMIIEow\n{tail}"

    assert masked(f"a {key} b") == f"a {MASK} b"
