"""Several operations on any sessions, committed together."""

from typing import TYPE_CHECKING, Self

from sessionary.client.async_runtime import finish
from sessionary.client.operations import OperationList

if TYPE_CHECKING:
    from sessionary.client.async_client import AsyncSessionary


class AsyncTransaction(OperationList):
    """Collects operations and commits them at the end of the block: all of them or none.

    Each method returns a `Deferred`, whose `result()` is there after the block. If the block or an operation raises,
    nothing is written.
    """

    def __init__(self, client: "AsyncSessionary") -> None:
        super().__init__(client.app)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and self._operations:
            self._settle(await finish(self._app.store.write(self._run_all)))
