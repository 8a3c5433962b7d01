"""Settings of the recording proxy: the table `[proxy]`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from sessionary.config import Config
from sessionary.config.server import read_table
from sessionary.config.setting import Setting, ValueKind
from sessionary.errors import BadInput

# The segment of a path that names an upstream; not like one of ours, and not like a token.
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
_VERSION = re.compile(r"/v\d+$")
_HIGHEST_PORT = 65_535
DEFAULT_PORT = 8750
_GIGABYTE = 1024**3
_DAY = 86_400


def _upstream_url(text: str) -> str:
    found = urlsplit(text)
    is_clean = not (found.query or found.fragment or "@" in found.netloc or found.username)
    if found.scheme not in ("http", "https") or not found.hostname or not is_clean:
        raise ValueError(text)
    if not text.isascii() or any(char <= " " for char in text) or (found.port == 0):
        raise ValueError(text)
    # Clients send the version themselves; people write it, because their other tools want it in the address.
    return _VERSION.sub("", text.rstrip("/"))


UPSTREAM_URL = ValueKind(
    "the address of an API such as https://api.openai.com, without a key in it",
    _upstream_url,
    short="address",
    schema={"type": "string", "format": "uri"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTable:
    """A table `[proxy.upstreams.NAME]`: an API that requests are passed on to."""

    url: Annotated[str, UPSTREAM_URL, Setting("its address", example="https://openrouter.ai/api")]
    provider: Annotated[
        str | None,
        Setting("whose prices count, if its address does not tell", example="openai"),
    ] = None


# They need not be configured.
KNOWN_UPSTREAMS = {
    "openai": UpstreamTable(url="https://api.openai.com"),
    "anthropic": UpstreamTable(url="https://api.anthropic.com"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The table `[proxy]`."""

    port: Annotated[
        int | None,
        Setting(
            "`serve` runs the proxy too, on this port", gt=0, le=_HIGHEST_PORT, example=DEFAULT_PORT
        ),
    ] = None
    host: Annotated[str, Setting("where that port listens")] = "127.0.0.1"
    exposed: Annotated[
        bool, Setting("true: other machines may connect; every request needs a token then")
    ] = False
    needs_token: Annotated[
        bool, Setting("true: every request needs a token, also from this machine")
    ] = False
    allowed_hosts: Annotated[
        frozenset[str], Setting("host names of the proxy, besides loopback")
    ] = frozenset()
    hold_seconds: Annotated[
        float,
        Setting("how long the end of a response waits to be durable", gt=0, le=60),
    ] = 1.5
    copy_bytes: Annotated[
        int,
        Setting("of longer bodies only the beginning is recorded", ge=65_536, le=_GIGABYTE),
    ] = 32 * 1024 * 1024
    memory_bytes: Annotated[
        int, Setting("all copies of bodies that pass", ge=65_536, le=16 * _GIGABYTE)
    ] = 256 * 1024 * 1024
    idle_seconds: Annotated[
        float, Setting("an upstream that sends nothing for this long is given up", gt=0, le=_DAY)
    ] = 600.0
    connections: Annotated[int, Setting("open connections of clients", gt=0, le=100_000)] = 512
    upstreams: Annotated[
        Mapping[str, UpstreamTable], Setting("APIs besides OpenAI's and Anthropic's, by name")
    ] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse names that could not be a part of an address."""
        for name in self.upstreams:
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} cannot be the name of an upstream; use small letters, digits, dots and dashes."
                )


def read_proxy(config: Config) -> ProxySettings:
    """Read `[proxy]`."""
    return read_table(ProxySettings, config, "proxy", {})


def parse_upstream(text: str) -> tuple[str | None, UpstreamTable]:
    """Read `NAME=URL`, or `URL`, whose paths need no name in front."""
    name, equals, url = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        name, url = "", text
    try:
        return name or None, UpstreamTable(url=_upstream_url(url))
    except ValueError as error:
        # Not repeated: it may have a key in it.
        raise BadInput(f"An upstream is {UPSTREAM_URL.wanted}; write URL or NAME=URL.") from error
