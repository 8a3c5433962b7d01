"""From a delivery to the body of a call-back. Pure."""

import json

from hansard.model import part as parts_of
from hansard.model.delivery import Delivery


def body_of(delivery: Delivery) -> bytes:
    """What the program gets; the same delivery has the same id each time it is tried."""
    told = {
        "delivery_id": delivery.id,
        "session_id": delivery.session_id,
        "chat_id": delivery.channel.chat_id,
        "thread_id": delivery.channel.thread_id,
        "text": parts_of.text_of(delivery.parts),
        "attempt": delivery.attempts,
        "maybe_twice": delivery.maybe_twice,
    }
    # Half a character, which UTF-8 cannot hold, is escaped like all others.
    return json.dumps(told, ensure_ascii=True).encode()
