"""A delivery as the call-back that a program gets: pure, and signed."""

import hashlib
import hmac
from dataclasses import dataclass

from sessionary.model import codec
from sessionary.model import message as parts_of
from sessionary.model.turn import Delivery
from sessionary.model.view import time_text

SIGNATURE = "X-Sessionary-Signature"
TIMESTAMP = "X-Sessionary-Timestamp"
DELIVERY = "X-Sessionary-Delivery"


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the program: its headers and its body."""

    headers: dict[str, str]
    body: bytes


def call_for(delivery: Delivery, *, secret: bytes, at: int) -> Call:
    """The call-back of a delivery; the same delivery has the same id each time it is tried."""
    body = codec.encode(
        {
            "delivery_id": delivery.id,
            "session_id": delivery.session_id,
            "turn_id": delivery.turn_id,
            "profile": delivery.profile,
            "channel": str(delivery.channel),
            "chat_id": delivery.channel.chat_id,
            "thread_id": delivery.channel.thread_id,
            "text": parts_of.text_of(delivery.parts),
            "parts": [parts_of.to_json(part) for part in delivery.parts],
            "created_at": time_text(delivery.created_at),
            "attempt": delivery.attempts,
            "maybe_twice": delivery.maybe_twice,
        }
    ).encode("utf-8")
    headers = {
        "Content-Type": "application/json",
        TIMESTAMP: str(at),
        DELIVERY: delivery.id,
        SIGNATURE: signature(body, secret=secret, at=at),
    }
    return Call(headers, body)


def signature(body: bytes, *, secret: bytes, at: int) -> str:
    """What proves that a call is ours: over its time and its raw body."""
    mac = hmac.new(secret, str(at).encode() + b"." + body, hashlib.sha256)
    return f"sha256={mac.hexdigest()}"
