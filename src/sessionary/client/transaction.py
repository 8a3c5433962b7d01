# Generated from async_transaction.py by tools/make_sync_client.py: change that file, and run the tool.
"""Several operations on any sessions, committed together."""

from typing import TYPE_CHECKING, Self

from sessionary.client.operations import OperationList
from sessionary.client.sync_runtime import finish

if TYPE_CHECKING:
    from sessionary.client.client import Sessionary


class Transaction(OperationList):
    """Collects operations and commits them at the end of the block: all of them or none.

    Each method returns a `Deferred`, whose `result()` is there after the block. If the block or an operation raises,
    nothing is written.
    """

    def __init__(self, client: "Sessionary") -> None:
        super().__init__(client.app)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and self._operations:
            self._settle(finish(self._app.store.write(self._run_all)))
