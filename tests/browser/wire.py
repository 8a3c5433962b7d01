"""The wire between a browser and the server, which a test can cut and mend."""

import socket
import threading
from contextlib import suppress


class Wire:
    """Carries bytes between a port of its own and a server's; cut, it lets nobody through."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                _end(each)
            self._open.clear()

    def mend(self) -> None:
        """Let people through again."""
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        """End for good."""
        self.cut()
        _end(self._listening)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    _end(near)
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        with self._lock:
            self._open -= {one, other}
        _end(one)
        _end(other)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
