"""Generate the blocking client from the asynchronous one: `python tools/make_sync_client.py`.

Each `client/async_X.py` becomes `client/X.py`: `async` and `await` are dropped and names are replaced. What cannot be
translated word by word (how to wait, to open and to renew a lease) is in `async_runtime.py` and `sync_runtime.py`, both
written by hand. A test checks that the generated files are current.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "sessionary" / "client"
MODULES = ("changes", "client", "pages", "resources", "session", "transaction", "turn")
NOTICE = (
    "# Generated from {source} by tools/make_sync_client.py: change that file, and run the tool.\n"
)
NAMES = {
    "AsyncOpenStore": "BlockingOpenStore",
    "AsyncPaginator": "Page",
    "AsyncHitPaginator": "HitPage",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "async_paginator": "pages",
    "async_runtime": "sync_runtime",
    **{f"async_{name}": name for name in MODULES},
}
SENTENCES = {
    "An asynchronous client": "A blocking client",
    '"""The asynchronous client. The blocking one is generated from this file by `tools/make_sync_client.py`."""': (
        '"""The blocking client."""'
    ),
    "A store of sessions, for asynchronous programs.": "A store of sessions.",
    "Nothing is opened\n    before `async with AsyncSessionary() as s:` or `s = await AsyncSessionary.connect()`.": (
        "It is opened\n    at once; close it with `close()`, or use it in `with Sessionary() as s:`."
    ),
}
FIX = ["check", "--select", "I,F401,UP028", "--fix", "--unsafe-fixes", "--quiet"]
_WORD = re.compile(r"\b_?\w+\b")


def translate(text: str, *, source: str) -> str:
    """Return the blocking twin of an asynchronous module, not yet formatted."""
    for asynchronous, blocking in SENTENCES.items():
        text = text.replace(asynchronous, blocking)
    out: list[str] = []
    row, column = 1, 0
    drops_space = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.start[0] > row:
            column = 0
        gap = _between(text, (row, column), token.start)
        out.append("" if drops_space else gap)
        row, column = token.end
        drops_space = token.type == tokenize.NAME and token.string in ("async", "await")
        if not drops_space:
            out.append(_renamed(token))
    return NOTICE.format(source=source) + "".join(out)


def _between(text: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the white space between two tokens."""
    lines = text.splitlines(keepends=True)
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]] if start[0] <= len(lines) else ""
    return lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else ""


def _renamed(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return _blocking_name(token.string)
    if token.type in (tokenize.STRING, tokenize.COMMENT) or token.type == _FSTRING_MIDDLE:
        plain = token.string.replace("async with", "with").replace("async for", "for")
        plain = plain.replace("await ", "")
        return _WORD.sub(lambda word: _blocking_name(word[0]), plain)
    return token.string


_FSTRING_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", -1)


def _blocking_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    return re.sub(r"^(_?)Async(?=[A-Z])", r"\1", name)


def formatted(text: str) -> str:
    """Return the text as ruff formats it, with sorted imports."""
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(CLIENT.parents[2] / "pyproject.toml")]
    name = ["--stdin-filename", str(CLIENT / "client.py")]
    for command in (FIX, ["format", "--quiet"]):
        text = subprocess.run(
            [*ruff, *command, *config, *name, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def generated() -> dict[Path, str]:
    """Return the blocking modules as they should be."""
    return {
        CLIENT / f"{name}.py": formatted(
            translate(
                (CLIENT / f"async_{name}.py").read_text(encoding="utf-8"), source=f"async_{name}.py"
            )
        )
        for name in MODULES
    }


def main() -> None:
    """Write the blocking modules."""
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(CLIENT.parents[2]))


if __name__ == "__main__":
    main()
