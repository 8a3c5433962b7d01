"""IMAP with IDLE over the standard library, one connection. Its methods block: call in a thread."""

import contextlib
import imaplib
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sessionary.channels.email.server import Server
from sessionary.errors import NotAllowed, RetryLater

COMMAND_SECONDS = 30.0
BEGINNING_BYTES = 64 * 1024
_RECEIVED_AT_ONCE = 64 * 1024
_LONGEST_LINE = 1_000_000
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_CODE_THAT_PASSES = re.compile(r"\[(?:UNAVAILABLE|INUSE|LIMIT|SERVERBUG|CONTACTADMIN)\]", re.I)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A mail as the server holds it; of one that is too large only the beginning."""

    raw: bytes
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether there is more of it."""
        return len(self.raw) < self.size


class Connection:
    """A mailbox that is looked into. Every failure is an error of ours."""

    def __init__(self, server: Server, folder: str) -> None:
        self._server = server
        self._folder = folder
        self._wire = _translated(lambda: _Wire(server))
        self.can_idle = False

    def log_in(self, user: str, password: str) -> int:
        """Enter and open the folder; how many mails it holds."""
        if self._server.security == "starttls":
            context = ssl.create_default_context()
            _translated(lambda: self._wire.starttls(context))
        _translated(lambda: self._enter(user, password))
        self.can_idle = "IDLE" in self._capabilities()
        kind, answer = _translated(lambda: self._wire.select(_quoted(self._folder)))
        if kind != "OK":
            raise NotAllowed(f"The mail server has no folder {self._folder!r}: {_said(answer)}.")
        return int(answer[0] or 0)

    def unseen(self) -> list[int]:
        """The numbers of the mails that nobody has seen, the oldest first."""
        return self._search("UNSEEN")

    def answering(self, root: str) -> list[int]:
        """The mails of a thread."""
        value = _quoted(root)
        return self._search(f"OR HEADER Message-ID {value} HEADER References {value}")

    def fetch(self, uid: int, largest: int) -> Fetched | None:
        """A mail, left unseen; None when it is gone."""
        size = self._size(uid)
        if size is None:
            return None
        what = "BODY.PEEK[]" if size <= largest else f"BODY.PEEK[]<0.{BEGINNING_BYTES}>"
        raw = self._literal(uid, what)
        # Servers count line ends differently; what was asked for whole is whole.
        return None if raw is None else Fetched(raw, size if size > largest else len(raw))

    def head(self, uid: int) -> bytes | None:
        """The header of a mail."""
        return self._literal(uid, "BODY.PEEK[HEADER]")

    def mark_seen(self, uid: int) -> None:
        """Tell the server that a mail need not be offered again."""
        self._do("STORE", str(uid), "+FLAGS.SILENT", r"(\Seen)")

    def wait(self, seconds: float) -> None:
        """Wait until something happens in the folder, at most so long."""
        if self.can_idle:
            _translated(lambda: self._wire.idle_until(seconds))
        else:
            _translated(lambda: self._wire.wait_for_line(seconds))
            _translated(self._wire.noop)

    def cut(self) -> None:
        """Break the connection, from any thread: whoever waits on it is freed."""
        self._wire.cut()

    def close(self) -> None:
        """Let go of the connection; nobody may be waiting on it."""
        self._wire.shutdown()

    def _enter(self, user: str, password: str) -> None:
        try:
            self._wire.enter(user, password)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            if _CODE_THAT_PASSES.search(str(error)):
                raise RetryLater(f"The mail server lets nobody in now: {error}", 30) from error
            raise NotAllowed(
                f"The mail server {self._server.host} refuses the password of {user}. "
                "Nothing is lost; correct it and start again."
            ) from error

    def _capabilities(self) -> str:
        _, answer = _translated(self._wire.capability)
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
        kind, answer = _translated(lambda: self._wire.uid(command, *words))
        if kind != "OK":
            raise RetryLater(f"The mail server refuses {command}: {_said(answer)}.", after=30)
        return list(answer)


class _Wire(imaplib.IMAP4):
    """The library's client over a buffer of our own, so that we can wait without reading."""

    def __init__(self, server: Server) -> None:
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
        # The library asks for one; reading goes through our buffer.
        self.file = self._file = self.sock.makefile("rb")

    def enter(self, user: str, password: str) -> None:
        """Log in; what is not ASCII goes the other way round."""
        if (user + password).isascii():
            self.login(user, password)
        else:
            self.authenticate("PLAIN", lambda _: f"\0{user}\0{password}".encode())

    def read(self, size: int) -> bytes:
        """So many bytes."""
        while len(self._unread) < size:
            self._more()
        return self._taken(size)

    def readline(self) -> bytes:
        """One line with its end."""
        looked = 0
        while (end := self._unread.find(b"\n", looked)) < 0:
            looked = len(self._unread)
            if looked > _LONGEST_LINE:
                raise self.abort("the server sends a line without end")
            self._more()
        return self._taken(end + 1)

    def cut(self) -> None:
        """Break the connection, so that nobody is left waiting."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        """Let go of the connection."""
        self.cut()
        self.file.close()
        self.sock.close()

    def wait_for_line(self, seconds: float) -> bool:
        """Whether something came within this time."""
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
        data = self.sock.recv(_RECEIVED_AT_ONCE)
        if not data:
            raise self.abort("the server closed the connection")
        self._unread += data

    def _taken(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data


def _translated(do: Callable[[], Result]) -> Result:
    """Do something with a server; what can go wrong on the way passes."""
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


def _said(answer: Sequence[object]) -> str:
    return " ".join(each.decode(errors="replace") for each in answer if isinstance(each, bytes))
