"""How notifications are encrypted and signed: against the example of RFC 8291, and as a browser would read them."""

import os

import pytest
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec

from sessionary.channels.push import encryption
from sessionary.channels.push.encryption import to_bytes, to_text
from tests.support.fake_push import decrypt, read_authorization

# The example of RFC 8291, appendix A.
TEXT = "V2hlbiBJIGdyb3cgdXAsIEkgd2FudCB0byBiZSBhIHdhdGVybWVsb24"
OURS = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
THEIRS = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
THEIR_PRIVATE = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
SECRET = "BTBZMqHH6r4Tts7J_aSIgg"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
MESSAGE = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
    "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def test_the_example_of_rfc_8291_is_encrypted_byte_by_byte() -> None:
    made = encryption.encrypt(
        to_bytes(TEXT),
        p256dh=THEIRS,
        auth=SECRET,
        key=encryption.read_key(OURS),
        salt=to_bytes(SALT),
    )

    assert to_text(made) == MESSAGE


def test_the_browser_of_the_example_reads_it() -> None:
    key = encryption.read_key(THEIR_PRIVATE)

    read = decrypt(to_bytes(MESSAGE), key=key, secret=to_bytes(SECRET))

    assert read == b"When I grow up, I want to be a watermelon"


def test_only_the_browser_with_the_keys_can_read_a_message() -> None:
    key, other, secret = encryption.make_key(), encryption.make_key(), os.urandom(16)
    made = encryption.encrypt(
        b"hello",
        p256dh=to_text(encryption.public_bytes(key)),
        auth=to_text(secret),
        key=encryption.make_key(),
        salt=os.urandom(16),
    )

    assert decrypt(made, key=key, secret=secret) == b"hello"
    with pytest.raises(InvalidTag):
        decrypt(made, key=other, secret=secret)


def test_a_signature_names_the_push_service_the_contact_and_its_end() -> None:
    key = encryption.make_key()

    header = encryption.authorization(
        key, audience="https://push.example.org", contact="mailto:me@example.org", at=1_000_000
    )

    claims, public_key = read_authorization(header)
    assert claims == {
        "aud": "https://push.example.org",
        "exp": 1_000_000 + encryption.SIGNATURE_SECONDS,
        "sub": "mailto:me@example.org",
    }
    assert claims["exp"] - 1_000_000 <= 24 * 3600
    assert to_bytes(public_key) == encryption.public_bytes(key)


def test_a_signature_of_another_key_does_not_verify() -> None:
    header = encryption.authorization(
        encryption.make_key(), audience="https://push.example.org", contact=None, at=0
    )
    other = to_text(encryption.public_bytes(encryption.make_key()))
    forged = f"{header.rpartition('k=')[0]}k={other}"

    with pytest.raises(InvalidSignature):
        read_authorization(forged)


def test_a_key_is_the_same_after_it_was_kept() -> None:
    key = encryption.make_key()

    kept = encryption.read_key(encryption.key_text(key))

    assert isinstance(kept, ec.EllipticCurvePrivateKey)
    assert encryption.public_bytes(kept) == encryption.public_bytes(key)


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [
        ("", SECRET),
        ("AAAA", SECRET),
        (to_text(b"\x04" + bytes(64)), SECRET),
        ("not base64!", SECRET),
        (THEIRS, ""),
        (THEIRS, to_text(bytes(15))),
        (THEIRS, "ß"),
    ],
)
def test_what_no_browser_can_have_as_keys_is_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason is good
        encryption.check_browser_keys(p256dh, auth)


def test_the_keys_of_a_browser_are_accepted() -> None:
    encryption.check_browser_keys(THEIRS, SECRET)
