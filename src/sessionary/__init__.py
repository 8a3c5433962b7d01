"""Sessionary: the session layer for AI agents.

from sessionary import Sessionary

with Sessionary() as s:
    chat = s.session("alice")
    chat.append("user", "hello")
"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from sessionary.version import __version__ as __version__

NOT_ON_WINDOWS = "Sessionary runs on Linux and macOS. On Windows, use it in WSL (`wsl --install`)."

if TYPE_CHECKING:
    from sessionary.client.public.asynchronous import *
    from sessionary.client.public.blocking import *
    from sessionary.client.public.errors import *
    from sessionary.client.public.more import *
    from sessionary.client.public.slow import *

    __all__: list[str]
else:  # hidden from type checkers, which would take every name for one that is here

    def __getattr__(name: str) -> object:
        """Load the public names on first use: the command line starts fast, and a program loads what it uses."""
        if name == "open":
            return _deprecated_open()
        if name == "__all__":
            return _all_names()
        # Every public name begins with a capital letter, and no module does.
        if name[:1].isupper():
            for module in _public_modules(asynchronous_first=name.startswith("Async")):
                if name in _names(module):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        raise AttributeError(f"module 'sessionary' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_all_names()})


def _all_names() -> list[str]:
    return sorted(name for module in _public_modules() for name in _names(module))


def _public_modules(*, asynchronous_first: bool = False) -> Iterator[ModuleType]:
    """Load the modules that list the public names, one after the other: what takes long comes last."""
    from sessionary.client.public import errors

    yield errors
    if sys.platform == "win32":
        raise errors.StoreUnavailable(NOT_ON_WINDOWS)
    if asynchronous_first:
        from sessionary.client.public import asynchronous

        yield asynchronous
    from sessionary.client.public import blocking

    yield blocking
    if not asynchronous_first:
        from sessionary.client.public import asynchronous

        yield asynchronous
    from sessionary.client.public import more

    yield more
    from sessionary.client.public import slow

    yield slow


def _names(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if name[:1].isupper()]


def _deprecated_open() -> object:
    import warnings  # only the old name needs it

    from sessionary.client.client import Sessionary

    warnings.warn(
        "sessionary.open is deprecated: use sessionary.Sessionary, or sessionary.AsyncSessionary.",
        DeprecationWarning,
        stacklevel=3,
    )
    return Sessionary
