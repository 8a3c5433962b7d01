"""Wrong passwords, counted for each address, so that one who guesses locks out nobody else."""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sessionary.actions import credentials
from sessionary.web.problems import RequestRefused

# Guesses of one address, and of all, that may wait for their answer at once.
MOST_OF_ADDRESS = 2
MOST_WAITING = 32
MOST_ADDRESSES = 10_000
FORGOTTEN_AFTER = timedelta(days=1)
OTHER_WAY = "on the server's machine `sessionary password link` makes a link that lets a browser in"


@dataclass(frozen=True, slots=True)
class _Record:
    wrong: int
    at: datetime
    locked_until: datetime


class LoginAttempts:
    """What this server knows about who tries passwords. It forgets at its end.

    The store counts the wrong passwords of all addresses together, for guesses from many places.
    That count locks out only strangers: not this machine, and not an address that logged in before.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._trusted: OrderedDict[str, None] = OrderedDict()
        self._waiting: list[str] = []
        self._one_at_a_time = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the right to have one password compared, which takes long on purpose."""
        if self._waiting.count(address) >= MOST_OF_ADDRESS or len(self._waiting) >= MOST_WAITING:
            raise RequestRefused(
                429, f"Too many passwords are being tried at once; {OTHER_WAY}.", after=1
            )
        self._waiting.append(address)
        try:
            async with self._one_at_a_time:
                yield
        finally:
            self._waiting.remove(address)

    def check(self, address: str, *, now: datetime) -> None:
        """Refuse a guess of an address that has guessed wrong too often."""
        record = self._records.get(address)
        if record is not None and now < record.locked_until:
            wait = (record.locked_until - now).total_seconds()
            raise RequestRefused(
                429,
                f"Too many wrong passwords from this address; try again in {wait:.0f} s. "
                f"Or: {OTHER_WAY}.",
                after=wait,
            )

    def note(self, address: str, *, right: bool, now: datetime) -> None:
        """Count a guess; each wrong one after the fifth locks the address twice as long."""
        before = self._records.pop(address, None)
        if right:
            self.trust(address)
            return
        is_recent = before is not None and now - before.at < FORGOTTEN_AFTER
        wrong = 1 + (before.wrong if before is not None and is_recent else 0)
        self._records[address] = _Record(wrong, now, now + credentials.lock_after(wrong))
        while len(self._records) > MOST_ADDRESSES:
            self._records.popitem(last=False)

    def trust(self, address: str) -> None:
        """Someone logged in from there."""
        self._trusted[address] = None
        self._trusted.move_to_end(address)
        while len(self._trusted) > MOST_ADDRESSES:
            self._trusted.popitem(last=False)

    def is_stranger(self, address: str) -> bool:
        """Whether nobody is known to have logged in from there, and it is another machine."""
        try:
            is_local = ipaddress.ip_address(address).is_loopback
        except ValueError:  # a socket in the file system
            is_local = True
        return not is_local and address not in self._trusted
