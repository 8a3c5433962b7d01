"""The workbench as files: built by `web/`, read once, served compressed."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from sessionary.web.openapi import PUBLIC
from sessionary.web.pages import not_built
from sessionary.web.routing import api_router

DIST = Path(__file__).parent.parent / "dist"
_SHELL = "index.html"
# Every page of the workbench is the same shell; the browser reads the address.
PAGES = (
    "/",
    "/s/{session_id}",
    "/search",
    "/live",
    "/questions",
    "/usage",
    "/import",
    "/settings",
    "/api",
)
# What has the same name in every version.
FILES = ("icon.svg", "login.css", "manifest.webmanifest", "sw.js")
METHODS = ["GET", "HEAD"]
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A built file: its bytes, and the same bytes compressed."""

    media_type: str
    plain: bytes
    packed: dict[str, bytes]


class WebBundle:
    """All built files by their path. What is not among them is not served."""

    def __init__(self, files: dict[str, BuiltFile]) -> None:
        self._files = files

    @classmethod
    def read(cls, folder: Path = DIST) -> "WebBundle":
        """Read what was built; a checkout that was not set up has nothing."""
        found = {}
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix in _TYPES:
                packed = {
                    name: packed.read_bytes()
                    for name, suffix in _ENCODINGS
                    if (packed := path.with_name(path.name + suffix)).is_file()
                }
                name = path.relative_to(folder).as_posix()
                found[name] = BuiltFile(_TYPES[path.suffix], path.read_bytes(), packed)
        return cls(found)

    def answer(self, name: str, accepts: str) -> Response | None:
        """The file in the smallest form that the browser takes."""
        file = self._files.get(name)
        if file is None:
            return None
        keep = _FOR_EVER if name.startswith("assets/") else _ASK_AGAIN
        headers = {"Cache-Control": keep, "Vary": "Accept-Encoding"}
        wanted = {each.split(";")[0].strip() for each in accepts.lower().split(",")}
        for encoding, _ in _ENCODINGS:
            if encoding in wanted and encoding in file.packed:
                headers["Content-Encoding"] = encoding
                return Response(file.packed[encoding], headers=headers, media_type=file.media_type)
        return Response(file.plain, headers=headers, media_type=file.media_type)


@cache
def built() -> WebBundle:
    """What this installation has."""
    return WebBundle.read()


def router_for(bundle: WebBundle) -> APIRouter:
    """The workbench's pages and files; they hold nothing of the record and are open to all."""
    router = api_router(include_in_schema=False)

    async def shell(request: Request) -> Response:
        """The workbench, whatever its page."""
        found = bundle.answer(_SHELL, request.headers.get("accept-encoding", ""))
        return found or HTMLResponse(not_built(), 503)

    async def file(request: Request) -> Response:
        """A built file."""
        name = request.url.path.removeprefix("/")
        found = bundle.answer(name, request.headers.get("accept-encoding", ""))
        return found or Response("There is no such file.\n", 404, media_type="text/plain")

    for path in PAGES:
        for address in {path, f"{path.rstrip('/')}/"}:
            router.add_api_route(address, shell, methods=METHODS, openapi_extra=PUBLIC)
    for path in (*(f"/{name}" for name in FILES), "/assets/{name}"):
        router.add_api_route(path, file, methods=METHODS, openapi_extra=PUBLIC)
    return router
