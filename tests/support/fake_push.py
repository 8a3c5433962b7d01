"""A push service on loopback, and browsers that are subscribed to it: it reads what it gets as a browser would."""

import collections
import json
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sessionary.channels.push.encryption import (
    make_key,
    public_bytes,
    to_bytes,
    to_text,
)
from sessionary.model.push import NewSubscription
from tests.support.http_server import HttpServer, Request, Response

CURVE = ec.SECP256R1()


class FakeBrowser:
    """A browser with keys of its own."""

    def __init__(self, endpoint: str, *, secret: bytes = b"0123456789abcdef") -> None:
        self.endpoint = endpoint
        self._key = make_key()
        self._secret = secret
        self.p256dh = to_text(public_bytes(self._key))
        self.auth = to_text(secret)

    def subscription(self, language: str = "en", label: str = "Firefox, Linux") -> NewSubscription:
        """What it tells the server."""
        return NewSubscription(
            endpoint=self.endpoint,
            p256dh=self.p256dh,
            auth=self.auth,
            label=label,
            language=language,
            origin="https://agents.example.org",
        )

    def body(self, **more: Any) -> dict[str, Any]:
        """The same as a request over HTTP."""
        keys = {"p256dh": self.p256dh, "auth": self.auth}
        return {"endpoint": self.endpoint, "keys": keys, **more}

    def decrypt(self, body: bytes) -> bytes:
        """Read a message; see RFC 8188 and RFC 8291."""
        return decrypt(body, key=self._key, secret=self._secret)


def decrypt(body: bytes, *, key: ec.EllipticCurvePrivateKey, secret: bytes) -> bytes:
    """Return the text of a message of one record, for the browser with this key and secret."""
    salt, record_bytes, length = body[:16], int.from_bytes(body[16:20]), body[20]
    theirs, text = body[21 : 21 + length], body[21 + length :]
    assert len(text) <= record_bytes
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, theirs))
    info = b"WebPush: info\0" + public_bytes(key) + theirs
    input_key = HKDF(SHA256(), length=32, salt=secret, info=info).derive(shared)

    def derive(what: bytes, size: int) -> bytes:
        return HKDF(SHA256(), length=size, salt=salt, info=what).derive(input_key)

    content_key = derive(b"Content-Encoding: aes128gcm\0", 16)
    padded = AESGCM(content_key).decrypt(derive(b"Content-Encoding: nonce\0", 12), text, None)
    content, delimiter, padding = padded.rpartition(b"\x02")
    assert delimiter
    assert not padding.strip(b"\0")
    return content


def read_authorization(header: str) -> tuple[dict[str, Any], str]:
    """Return the claims and the public key of a header, after checking its signature."""
    scheme, _, rest = header.partition(" ")
    assert scheme == "vapid"
    fields = dict(each.strip().split("=", 1) for each in rest.split(","))
    signed, _, signature = fields["t"].rpartition(".")
    head, claims = (json.loads(to_bytes(each)) for each in signed.split("."))
    assert head == {"typ": "JWT", "alg": "ES256"}
    raw = to_bytes(signature)
    assert len(raw) == 64
    public = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, to_bytes(fields["k"]))
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    public.verify(der, signed.encode(), ec.ECDSA(SHA256()))
    return claims, fields["k"]


@dataclass(frozen=True, slots=True)
class Pushed:
    """A message that came, and what a browser read in it."""

    browser: FakeBrowser
    data: dict[str, Any]
    headers: dict[str, str]
    claims: dict[str, Any]
    public_key: str


class FakePushService(HttpServer):
    """Takes messages for its browsers; errors can be ordered."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.browsers: dict[str, FakeBrowser] = {}
        self.pushed: list[Pushed] = []
        self.requests = 0
        self._answers: collections.deque[Response] = collections.deque()

    def browser(self) -> FakeBrowser:
        """A new browser that is subscribed here."""
        path = f"/push/{len(self.browsers) + 1}"
        made = self.browsers[path] = FakeBrowser(f"{self.url}{path}")
        return made

    def answer_next(self, status: int, **headers: str) -> None:
        """Answer the next request like this, instead of taking its message."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._answers.append(Response(status, headers=named))

    def of(self, browser: FakeBrowser) -> list[dict[str, Any]]:
        """What a browser has read, in order."""
        return [each.data for each in self.pushed if each.browser is browser]

    async def _take(self, request: Request) -> Response:
        self.requests += 1
        if self._answers:
            return self._answers.popleft()
        browser = self.browsers.get(request.path)
        if browser is None:
            return Response(410)
        claims, public_key = read_authorization(request.headers["authorization"])
        assert claims["aud"] == self.url
        assert request.headers["content-encoding"] == "aes128gcm"
        assert len(request.body) <= 4096
        data = json.loads(browser.decrypt(request.body))
        self.pushed.append(Pushed(browser, data, dict(request.headers), claims, public_key))
        return Response(201)
