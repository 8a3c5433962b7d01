"""A real Matrix homeserver for tests: Synapse in an environment of its own, on loopback."""

import base64
import hashlib
import hmac
import json
import os
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.environment import installed
from tests.support.external_server import ExternalServer, answers, port_of, reserved_port

WANTED = "matrix-synapse>=1.150,<2"
SERVER_NAME = "test"
START_SECONDS = 60.0
_SECRET = "only-for-tests"
_ANY = {"per_second": 10_000, "burst_count": 10_000}
_BOTH = {"local": _ANY, "remote": _ANY}


class Synapse:
    """A homeserver where accounts are made as they are wanted."""

    def __init__(self, tools: Path) -> None:
        python = installed(tools, "synapse", (WANTED,))
        self._reservation = reserved_port()
        self.port = port_of(self._reservation)
        self.url = f"http://127.0.0.1:{self.port}"
        home = Path(tempfile.mkdtemp(prefix="sessionary-matrix-")).resolve()
        seed = base64.b64encode(os.urandom(32)).decode().rstrip("=")
        (home / "signing.key").write_text(f"ed25519 a_test {seed}\n")
        (home / "homeserver.yaml").write_text(json.dumps(self._settings(home)))
        config = home / "homeserver.yaml"
        self._server = ExternalServer([python, "-m", "synapse.app.homeserver", "-c", config], home)
        self._server.wait_until(
            lambda: answers(self.port), seconds=START_SECONDS, what="Synapse, the Matrix server,"
        )

    def stop(self) -> None:
        """Stop the server and remove its directory."""
        self._server.stop()
        self._reservation.close()

    def register(self, name: str) -> tuple[str, str]:
        """Make an account; its id and its access token."""
        path = "/_synapse/admin/v1/register"
        nonce = self.call("GET", path)["nonce"]
        password = os.urandom(8).hex()
        given = "\0".join((nonce, name, password, "notadmin")).encode()
        mac = hmac.new(_SECRET.encode(), given, hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": password, "mac": mac, "admin": False}
        made = self.call("POST", path, body)
        return made["user_id"], made["access_token"]

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, token: str = ""
    ) -> dict[str, Any]:
        """Ask the server as anyone does."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            answered: dict[str, Any] = json.loads(answer.read())
            return answered

    def fetch(self, path: str, *, token: str) -> bytes:
        """The bytes at a path."""
        headers = {"Authorization": f"Bearer {token}"}
        asked = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def _settings(self, home: Path) -> dict[str, Any]:
        listener = {
            "port": self.port,
            "type": "http",
            "bind_addresses": ["127.0.0.1"],
            "resources": [{"names": ["client"]}],
        }
        return {
            "server_name": SERVER_NAME,
            "listeners": [listener],
            "database": {"name": "sqlite3", "args": {"database": str(home / "homeserver.db")}},
            "media_store_path": str(home / "media"),
            "signing_key_path": str(home / "signing.key"),
            "registration_shared_secret": _SECRET,
            "macaroon_secret_key": _SECRET,
            "form_secret": _SECRET,
            "trusted_key_servers": [],
            "report_stats": False,
            "bcrypt_rounds": 4,
            "presence": {"enabled": False},
            "rc_message": _ANY,
            "rc_registration": _ANY,
            "rc_login": {"address": _ANY, "account": _ANY, "failed_attempts": _ANY},
            "rc_joins": _BOTH,
            "rc_invites": {"per_room": _ANY, "per_user": _ANY, "per_issuer": _ANY},
            "rc_room_creation": _ANY,
        }
