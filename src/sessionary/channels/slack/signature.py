"""Whether a request is Slack's: signed with our secret, and made just now. Pure."""

import hashlib
import hmac
from collections.abc import Mapping

WINDOW_SECONDS = 300
SIGNATURE = "x-slack-signature"
TIMESTAMP = "x-slack-request-timestamp"


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature that Slack puts on a body at a time."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def problem(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> str | None:
    """What is wrong with a request, or None. The body is the raw one, before any reading."""
    given = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = given.get(TIMESTAMP, ""), given.get(SIGNATURE, "")
    if not (timestamp.isascii() and timestamp.isdigit()) or not signature:
        return "it is not signed"
    wanted = sign(secret, timestamp, body)
    if not hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace")):
        return "its signature is wrong"
    if abs(now - int(timestamp)) > WINDOW_SECONDS:
        return "it is too old"
    return None
