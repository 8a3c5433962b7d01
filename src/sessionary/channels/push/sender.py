"""Sends notifications to browsers. What is written in the outbox is read again when it is sent."""

import asyncio
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from sessionary.actions import push
from sessionary.actions.push import PushRequest
from sessionary.channels import callback
from sessionary.clock import Clock
from sessionary.config.server import PushTable
from sessionary.engine.ports import Sent
from sessionary.errors import BadInput, RetryLater, StoreUnavailable, Unreachable
from sessionary.model.push import (
    LONGEST_ENDPOINT,
    PLATFORM,
    NewSubscription,
    PushSubscription,
)
from sessionary.model.turn import Delivery
from sessionary.store.database import Store

# The push services of Chrome, Firefox, Safari and Edge.
SERVICES = (
    "fcm.googleapis.com",
    "*.push.services.mozilla.com",
    "*.push.apple.com",
    "*.notify.windows.com",
)
_GONE = (404, 410)
_BUSY = (408, 425, 429)
_WAIT_SECONDS = 30.0
_TOPIC_LENGTH = 32
_THREADS = 4
# A name that every program reads alike.
_HOST = re.compile(r"[a-z0-9.-]+")
log = logging.getLogger(__name__)


class PushSender:
    """Tells browsers of questions, by the push service that each of them uses."""

    platform = PLATFORM

    def __init__(self, store: Store, settings: PushTable, *, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._key: str | None = None
        # Its own: a push service that does not answer must not keep others from their threads.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sessionary-push")

    # What the web server calls.

    async def public_key(self) -> str:
        """Return the key that a browser subscribes with; the first caller on a store makes it."""
        return await asyncio.to_thread(_public_text, await self._read_key())

    async def check_subscription(self, new: NewSubscription) -> None:
        """Raise `BadInput` unless the subscription is one of a push service that may be called."""
        if not self._is_allowed(new.endpoint):
            raise BadInput(
                f"{new.endpoint[:100]!a} is no address of a push service that is known here; "
                "[push] services can name others. Nothing was changed."
            )
        try:
            await asyncio.to_thread(_check_keys, new)
        except ValueError as error:
            raise BadInput("These are no keys of a browser; nothing was changed.") from error

    def _is_allowed(self, endpoint: str) -> bool:
        """Whether an address is one of a push service: another one would be called in a browser's name."""
        try:
            found = urlsplit(endpoint)
            origin = f"{found.scheme}://{found.netloc}"
            if len(endpoint) > LONGEST_ENDPOINT or not endpoint.isascii() or not found.path:
                return False
            if origin in self._settings.services:
                return True
            host = found.hostname or ""
            is_known = any(fnmatchcase(host, each) for each in SERVICES)
            is_plain = _HOST.fullmatch(host) is not None and not any(map(str.isspace, endpoint))
            return origin == f"https://{host}" and is_known and is_plain
        except ValueError:
            return False

    # What the outbox calls.

    async def send(self, delivery: Delivery) -> Sent:
        """Show a notification in a browser, or replace the one that it shows."""
        now = self._clock.now()
        request = await self._store.read(push.read_request, delivery, now=now)
        kept = await self._read_key()
        try:
            status, wait = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._post, request, kept
            )
        except RetryLater as error:
            await self._note_failure(request.subscription, str(error))
            raise RetryLater(str(error), after=_WAIT_SECONDS) from error
        await self._check_answer(delivery, request.subscription, status, wait)
        return Sent(delivery.id)

    def _post(self, request: PushRequest, key: str) -> tuple[int, float | None]:
        from sessionary.channels.push import encryption  # as in `_make_key`

        to, now = request.subscription, self._clock.now()
        if not self._is_allowed(to.endpoint):
            raise Unreachable("[push] services does not name its push service any more.")
        data = {**request.data, "language": to.language}
        body = encryption.encrypt(
            json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"),
            p256dh=to.p256dh,
            auth=to.auth,
            key=encryption.make_key(),
            salt=os.urandom(encryption.SALT_BYTES),
        )
        where = urlsplit(to.endpoint)
        contact = self._settings.contact or to.origin
        headers = {
            "Authorization": encryption.authorization(
                encryption.read_key(key),
                audience=f"{where.scheme}://{where.netloc}",
                contact=contact if contact.startswith(("mailto:", "https://")) else None,
                at=int(now.timestamp()),
            ),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(max(1, int((request.expires_at - now).total_seconds()))),
            "Urgency": "high" if request.is_urgent else "normal",
        }
        if request.topic is not None:
            # A hash: the push service learns nothing, and the length is the longest that is allowed.
            digest = hashlib.sha256(request.topic.encode()).hexdigest()
            headers["Topic"] = digest[:_TOPIC_LENGTH]
        return callback.post(to.endpoint, headers, body)

    async def _check_answer(
        self, delivery: Delivery, to: PushSubscription, status: int, wait: float | None
    ) -> None:
        host = urlsplit(to.endpoint).hostname or ""
        if 200 <= status < 300:
            await self._record(push.note_success, to.id, at=self._clock.now())
            return
        problem = f"{host} answered {status}"
        if status in _GONE:
            log.info("%s is not subscribed any more: %s", to.label, problem)
            await self._store.write(push.forget, to.id, profile=to.profile)
            raise Unreachable(
                f"{problem}: this browser is not subscribed any more, and was removed.",
                str(delivery.channel),
            )
        await self._note_failure(to, problem)
        if status in _BUSY or status >= 500:
            raise RetryLater(problem, after=_WAIT_SECONDS if wait is None else wait)
        raise Unreachable(problem, str(delivery.channel))

    async def _note_failure(self, to: PushSubscription, problem: str) -> None:
        await self._record(push.note_failure, to.id, problem=problem)

    async def _record(self, action: Callable[..., None], id: str, **facts: object) -> None:
        """Note what became of a notification; if the store is away, that is not worth sending it again."""
        try:
            await self._store.write(action, id, **facts)
        except (RetryLater, StoreUnavailable) as error:
            log.warning("The outcome of a notification is not noted: %s", error)

    async def _read_key(self) -> str:
        """Return the private key of the store; of several processes that make one, the first counts."""
        if self._key is None:
            kept = await self._store.read(push.get_key)
            if kept is None:
                kept = await self._store.write(push.keep_key, await asyncio.to_thread(_make_key))
            self._key = kept
        return self._key

    async def close(self) -> None:
        """End the threads; what they are sending is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


# These run in threads: each loads `cryptography`, an extra that takes 50 ms of CPU.


def _make_key() -> str:
    from sessionary.channels.push import encryption

    return encryption.key_text(encryption.make_key())


def _public_text(key: str) -> str:
    from sessionary.channels.push import encryption

    return encryption.to_text(encryption.public_bytes(encryption.read_key(key)))


def _check_keys(new: NewSubscription) -> None:
    from sessionary.channels.push import encryption

    encryption.check_browser_keys(new.p256dh, new.auth)
