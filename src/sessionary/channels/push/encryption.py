"""How notifications are encrypted for a browser (RFC 8291) and signed for its push service (RFC 8292).

Needs the extra `push`. Chance and time are arguments.
"""

import base64
import binascii
import json

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SALT_BYTES = 16
SECRET_BYTES = 16
_KEY_BYTES, _NONCE_BYTES, _NUMBER_BYTES = 16, 12, 32
_CURVE = ec.SECP256R1()
# One record holds everything: a push service takes at most 4,096 bytes.
_RECORD_BYTES = 4096
_LAST_RECORD = b"\x02"
# How long a signature is good; RFC 8292 allows a day.
SIGNATURE_SECONDS = 12 * 3600


def to_text(data: bytes) -> str:
    """Return bytes in base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def to_bytes(text: str) -> bytes:
    """Undo `to_text`; raise ValueError for anything else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def make_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key pair."""
    return ec.generate_private_key(_CURVE)


def key_text(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a private key as it is kept."""
    return to_text(key.private_numbers().private_value.to_bytes(_NUMBER_BYTES))


def read_key(text: str) -> ec.EllipticCurvePrivateKey:
    """Return the key pair of a private key that `key_text` has written."""
    return ec.derive_private_key(int.from_bytes(to_bytes(text)), _CURVE)


def public_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key as a point on the curve, not compressed."""
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def check_browser_keys(p256dh: str, auth: str) -> None:
    """Raise ValueError unless a browser can have these keys."""
    ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, to_bytes(p256dh))
    if len(to_bytes(auth)) != SECRET_BYTES:
        raise ValueError("auth")


def encrypt(
    text: bytes, *, p256dh: str, auth: str, key: ec.EllipticCurvePrivateKey, salt: bytes
) -> bytes:
    """Return a text as only the browser with these keys can read it; `key` and `salt` are used once."""
    theirs = to_bytes(p256dh)
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, theirs))
    ours = public_bytes(key)
    secret = _derive(
        shared, to_bytes(auth), b"WebPush: info\0" + theirs + ours, length=_NUMBER_BYTES
    )
    content_key = _derive(secret, salt, b"Content-Encoding: aes128gcm\0", length=_KEY_BYTES)
    nonce = _derive(secret, salt, b"Content-Encoding: nonce\0", length=_NONCE_BYTES)
    head = salt + _RECORD_BYTES.to_bytes(4) + bytes([len(ours)]) + ours
    return head + AESGCM(content_key).encrypt(nonce, text + _LAST_RECORD, None)


def _derive(secret: bytes, salt: bytes, info: bytes, *, length: int) -> bytes:
    return HKDF(SHA256(), length=length, salt=salt, info=info).derive(secret)


def authorization(
    key: ec.EllipticCurvePrivateKey, *, audience: str, contact: str | None, at: int
) -> str:
    """Return the header `Authorization` for a push service, whose address begins with `audience`.

    `at` is the time in seconds. `contact` says how the operator of this server is reached.
    """
    claims = {"aud": audience, "exp": at + SIGNATURE_SECONDS}
    if contact is not None:
        claims["sub"] = contact
    signed = f"{_part({'typ': 'JWT', 'alg': 'ES256'})}.{_part(claims)}"
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(SHA256())))
    signature = to_text(r.to_bytes(_NUMBER_BYTES) + s.to_bytes(_NUMBER_BYTES))
    return f"vapid t={signed}.{signature}, k={to_text(public_bytes(key))}"


def _part(value: dict[str, object]) -> str:
    return to_text(json.dumps(value, separators=(",", ":")).encode())
