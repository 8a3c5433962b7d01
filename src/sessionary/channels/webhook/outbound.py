"""From a delivery to the body of a call-back. Pure."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from sessionary.channels.enclosures import Enclosure
from sessionary.model import message as parts_of
from sessionary.model.turn import Delivery


def body_of(delivery: Delivery, files: Sequence[Enclosure | str] = ()) -> bytes:
    """What the program gets; the same delivery has the same id each time it is tried."""
    missing = [each for each in files if isinstance(each, str)]
    said = [parts_of.text_of(delivery.parts), *missing]
    told: dict[str, Any] = {
        "delivery_id": delivery.id,
        "session_id": delivery.session_id,
        "chat_id": delivery.channel.chat_id,
        "thread_id": delivery.channel.thread_id,
        "text": "\n\n".join(each for each in said if each),
        "attempt": delivery.attempts,
        "maybe_twice": delivery.maybe_twice,
    }
    if sent := [each for each in files if isinstance(each, Enclosure)]:
        told["files"] = [_file(each) for each in sent]
    # Half a character, which UTF-8 cannot hold, is escaped like all others.
    return json.dumps(told, ensure_ascii=True).encode()


def _file(file: Enclosure) -> dict[str, Any]:
    data = base64.b64encode(file.data).decode()
    return {"name": file.name, "media_type": file.media_type, "size": len(file.data), "data": data}
