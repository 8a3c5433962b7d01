"""Prints the description of the HTTP interface, `/api/v1/openapi.json`, of a server without channels."""

import json
import sys
import tempfile

from sessionary.clock import RandomIds, SystemClock
from sessionary.store.open import open_store
from sessionary.web import openapi
from sessionary.web.app import create_app
from sessionary.web.context import WebContext


def main() -> None:
    """Print the document."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/sessionary.db"
        store = open_store(url, create=True, clock=SystemClock(), ids=RandomIds())
        try:
            json.dump(openapi.describe(create_app(WebContext(store))), sys.stdout, indent=1)
        finally:
            store.close()


if __name__ == "__main__":
    main()
