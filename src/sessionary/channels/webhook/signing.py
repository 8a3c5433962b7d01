"""Signatures over the raw body, and over its time where that is signed too. Pure."""

import hashlib
import hmac
from collections.abc import Mapping

from sessionary.channels.webhook.settings import WebhookSettings

_MOST_DIGITS = 15


def sign(settings: WebhookSettings, body: bytes, at: float) -> dict[str, str]:
    """The headers that prove a request to whoever knows the secret."""
    stamp = str(int(at))
    headers = {settings.signature_header: settings.signature_prefix + _mac(settings, body, stamp)}
    if settings.signs_time:
        headers[settings.timestamp_header] = stamp
    return headers


def problem(
    settings: WebhookSettings, headers: Mapping[str, str], body: bytes, now: float
) -> str | None:
    """Why a request is not believed; None when it is rightly signed and fresh."""
    lower = {name.lower(): value for name, value in headers.items()}
    given = lower.get(settings.signature_header)
    if given is None:
        return "it is not signed"
    stamp = lower.get(settings.timestamp_header, "") if settings.signs_time else ""
    if settings.signs_time and not (stamp.isdecimal() and len(stamp) <= _MOST_DIGITS):
        return "its time is missing"
    wanted = settings.signature_prefix + _mac(settings, body, stamp)
    if not hmac.compare_digest(given.strip().encode(), wanted.encode()):
        return "its signature is wrong"
    if settings.signs_time and abs(now - int(stamp)) > settings.window_seconds:
        return "it is too old or from the future"
    return None


def _mac(settings: WebhookSettings, body: bytes, stamp: str) -> str:
    signed = f"{stamp}.".encode() + body if settings.signs_time else body
    return hmac.new(settings.secret.reveal().encode(), signed, hashlib.sha256).hexdigest()
