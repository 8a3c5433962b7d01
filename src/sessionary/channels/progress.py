"""How much of a delivery that takes several messages has been sent already."""

from collections import OrderedDict

MOST = 1000


class Progress:
    """Remembers the messages of deliveries that stopped half-way: the next try goes on there.

    It is in memory only; after a restart such a delivery begins anew, and is marked as perhaps
    sent twice.
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[str, list[str]] = OrderedDict()

    def sent(self, delivery_id: str) -> list[str]:
        """The platform's ids of what was sent; append to it after each message."""
        found = self._sent.setdefault(delivery_id, [])
        self._sent.move_to_end(delivery_id)
        while len(self._sent) > MOST:
            self._sent.popitem(last=False)
        return found

    def finish(self, delivery_id: str) -> None:
        """All of it was sent."""
        self._sent.pop(delivery_id, None)
