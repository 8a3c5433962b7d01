"""A mailbox: IMAP with IDLE, on top of the standard library."""

import asyncio
import contextlib
import imaplib
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from sessionary.config.secret import Secret
from sessionary.errors import NotAllowed, RetryLater

COMMAND_SECONDS = 30.0
BEGINNING_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_MAX_LINE = 1_000_000
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_TEMPORARY = re.compile(r"\[(?:UNAVAILABLE|INUSE|LIMIT|SERVERBUG|CONTACTADMIN)\]", re.I)

P = ParamSpec("P")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MailServer:
    """The address of a server, and how the connection is encrypted."""

    host: str
    port: int
    security: str = "tls"


@dataclass(frozen=True, slots=True)
class MailAccount:
    """A mailbox, and its servers."""

    address: str
    user: str
    password: Secret
    imap: MailServer
    smtp: MailServer
    folder: str = "INBOX"


class Mailbox:
    """A mailbox whose connection has a thread of its own. Cancelling a command breaks the connection."""

    def __init__(self, account: MailAccount) -> None:
        self._account = account
        self._connection: ImapConnection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessionary-imap")

    async def open(self) -> int:
        """Log in; return how many mails the folder has."""
        return await self._in_thread(self._open)

    def _open(self) -> int:
        self._connection = ImapConnection(self._account.imap, self._account.folder)
        return self._connection.log_in(self._account.user, self._account.password.reveal())

    async def do(
        self,
        command: "Callable[Concatenate[ImapConnection, P], Result]",
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Result:
        """Run a command of the connection, such as `ImapConnection.unseen`."""
        connection = self._connection
        if connection is None:
            raise RetryLater("The mailbox is not open.", after=1)
        return await self._in_thread(lambda: command(connection, *args, **kwargs))

    async def close(self) -> None:
        """Close the connection and end the thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()
            connection.close()
        self._thread.shutdown(wait=False)

    async def _in_thread(self, do: Callable[[], Result]) -> Result:
        future = asyncio.get_running_loop().run_in_executor(self._thread, do)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._connection is not None:
                self._connection.cut()
            # Wait for the thread: it must not act on what comes after.
            await asyncio.gather(future, return_exceptions=True)
            raise


@dataclass(frozen=True, slots=True)
class FetchedMail:
    """A mail as the server has it; if it is too large, only its beginning."""

    raw: bytes
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether the server has more of it."""
        return len(self.raw) < self.size


class ImapConnection:
    """A connection to one folder. Its methods block; every failure is raised as one of our errors."""

    def __init__(self, server: MailServer, folder: str) -> None:
        self._server = server
        self._folder = folder
        self._imap = _translate_errors(lambda: _BufferedImap(server))
        self.can_idle = False

    def log_in(self, user: str, password: str) -> int:
        """Log in and open the folder; return how many mails it has."""
        if self._server.security == "starttls":
            context = ssl.create_default_context()
            _translate_errors(lambda: self._imap.starttls(context))
        _translate_errors(lambda: self._log_in(user, password))
        self.can_idle = "IDLE" in self._capabilities()
        kind, answer = _translate_errors(lambda: self._imap.select(_quoted(self._folder)))
        if kind != "OK":
            raise NotAllowed(f"The mail server has no folder {self._folder!r}: {_text_of(answer)}.")
        return int(answer[0] or 0)

    def unseen(self) -> list[int]:
        """Return the UIDs of unseen mails, the oldest first."""
        return self._search("UNSEEN")

    def headers(self, root: str, most: int) -> list[bytes]:
        """Return the headers of the latest mails of a thread, the oldest first."""
        value = _quoted(root)
        uids = self._search(f"OR HEADER Message-ID {value} HEADER References {value}")
        found = (self._literal(uid, "BODY.PEEK[HEADER]") for uid in uids[-most:])
        return [header for header in found if header is not None]

    def fetch(self, uid: int, largest: int) -> FetchedMail | None:
        """Return a mail and leave it unseen; None if it is gone."""
        size = self._size(uid)
        if size is None:
            return None
        what = "BODY.PEEK[]" if size <= largest else f"BODY.PEEK[]<0.{BEGINNING_BYTES}>"
        raw = self._literal(uid, what)
        # Servers count line ends differently: a mail that was fetched whole is whole.
        return None if raw is None else FetchedMail(raw, size if size > largest else len(raw))

    def mark_seen(self, uid: int) -> None:
        """Mark a mail as seen."""
        self._do("STORE", str(uid), "+FLAGS.SILENT", r"(\Seen)")

    def wait(self, *, idle_seconds: float, poll_seconds: float) -> None:
        """Wait until the server reports that the folder has changed, or it is time to poll."""
        if self.can_idle:
            _translate_errors(lambda: self._imap.idle_until(idle_seconds))
        else:
            _translate_errors(lambda: self._imap.wait_for_line(poll_seconds))
            _translate_errors(self._imap.noop)

    def cut(self) -> None:
        """Break the connection, from any thread: a wait on it ends."""
        self._imap.cut()

    def close(self) -> None:
        """Close the connection; nothing may be waiting on it."""
        self._imap.shutdown()

    def _log_in(self, user: str, password: str) -> None:
        try:
            self._imap.log_in(user, password)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            if _TEMPORARY.search(str(error)):
                raise RetryLater(f"The mail server lets nobody in now: {error}", 30) from error
            raise NotAllowed(
                f"The mail server {self._server.host} refuses the password of {user}. "
                "Nothing is lost; correct it and start again."
            ) from error

    def _capabilities(self) -> str:
        _, answer = _translate_errors(self._imap.capability)
        return b" ".join(each for each in answer if isinstance(each, bytes)).decode().upper()

    def _search(self, what: str) -> list[int]:
        found = self._do("SEARCH", what)
        numbers = b" ".join(each for each in found if isinstance(each, bytes)).split()
        return sorted(int(number) for number in numbers)

    def _size(self, uid: int) -> int | None:
        for line in self._do("FETCH", str(uid), "(RFC822.SIZE)"):
            match = _SIZE.search(line if isinstance(line, bytes) else b"")
            if match:
                return int(match[1])
        return None

    def _literal(self, uid: int, what: str) -> bytes | None:
        for piece in self._do("FETCH", str(uid), f"({what})"):
            if isinstance(piece, tuple):
                return bytes(piece[1])
        return None

    def _do(self, command: str, *words: str) -> "list[bytes | tuple[bytes, bytes] | None]":
        kind, answer = _translate_errors(lambda: self._imap.uid(command, *words))
        if kind != "OK":
            raise RetryLater(f"The mail server refuses {command}: {_text_of(answer)}.", after=30)
        return list(answer)


class _BufferedImap(imaplib.IMAP4):
    """The library's client with a buffer of our own, so that we can wait for a line without reading it."""

    def __init__(self, server: MailServer) -> None:
        self._where = server
        self._unread = bytearray()
        self._idles = 0
        super().__init__(server.host, server.port, COMMAND_SECONDS)

    def open(self, host: str = "", port: int = 143, timeout: float | None = None) -> None:
        """Connect."""
        self.host, self.port = host, port
        plain = socket.create_connection((host, port), timeout)
        if self._where.security == "tls":
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(plain, server_hostname=host)
        else:
            self.sock = plain
        # The library wants one; reading uses our buffer.
        self.file = self._file = self.sock.makefile("rb")

    def log_in(self, user: str, password: str) -> None:
        """Log in; LOGIN allows only ASCII."""
        if (user + password).isascii():
            self.login(user, password)
        else:
            self.authenticate("PLAIN", lambda _: f"\0{user}\0{password}".encode())

    def read(self, size: int) -> bytes:
        """Return this many bytes."""
        while len(self._unread) < size:
            self._more()
        return self._take(size)

    def readline(self) -> bytes:
        """Return one line with its end."""
        looked = 0
        while (end := self._unread.find(b"\n", looked)) < 0:
            looked = len(self._unread)
            if looked > _MAX_LINE:
                raise self.abort("the server sends a line without end")
            self._more()
        return self._take(end + 1)

    def cut(self) -> None:
        """Break the connection, so that a wait on it ends."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        """Close the connection."""
        self.cut()
        self.file.close()
        self.sock.close()

    def wait_for_line(self, seconds: float) -> bool:
        """Return whether something came within this time."""
        if self._unread or (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()):
            return True
        return bool(select.select([self.sock], [], [], max(0.0, seconds))[0])

    def idle_until(self, seconds: float) -> None:
        """Stay in IDLE until the folder changes or the time is over."""
        self._idles += 1
        tag = b"IDLE%d" % self._idles
        self.send(tag + b" IDLE\r\n")
        deadline = time.monotonic() + seconds
        is_idle, changed = False, False
        while not (is_idle and changed) and self.wait_for_line(deadline - time.monotonic()):
            line = self.readline()
            if line.startswith((tag, b"* BYE")):
                raise self.abort(f"the server ends IDLE: {line[:80]!r}")
            is_idle = is_idle or line.startswith(b"+")
            changed = changed or b" EXISTS" in line or b" RECENT" in line
        self.send(b"DONE\r\n")
        while not self.readline().startswith(tag):
            pass

    def _more(self) -> None:
        data = self.sock.recv(_CHUNK)
        if not data:
            raise self.abort("the server closed the connection")
        self._unread += data

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data


def _translate_errors(do: Callable[[], Result]) -> Result:
    """Run a command; raise its failure as one of our errors."""
    try:
        return do()
    except ssl.SSLCertVerificationError as error:
        raise NotAllowed(
            f"The mail server's certificate is not valid: {error.verify_message}."
        ) from error
    except (OSError, ValueError, imaplib.IMAP4.error) as error:
        raise RetryLater(f"The mail server cannot be reached: {error}", after=1) from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text_of(answer: Sequence[object]) -> str:
    return " ".join(each.decode(errors="replace") for each in answer if isinstance(each, bytes))
