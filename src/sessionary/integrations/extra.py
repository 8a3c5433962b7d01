"""SDKs that are not there by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def wanted(extra: str, what: str) -> Iterator[None]:
    """Import an SDK in this block; without it there is one line that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{what} needs an extra: install sessionary[{extra}] ({error}).", name=error.name
        ) from None
