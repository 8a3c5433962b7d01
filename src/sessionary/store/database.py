"""The port to a database: a transaction is a function."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from sessionary.errors import Damaged
from sessionary.store.result import Pending

if TYPE_CHECKING:
    from sessionary.model.query import Query
    from sessionary.store.search.indexer import IndexState

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]
Listener = Callable[[Sequence[Any]], None]


class Tx(Protocol):
    """What an action may do in its transaction. It never commits nor waits for the network.

    A query that only the other database has (a lock, say) is skipped: no row, no change.
    """

    def one(self, name: str, /, **params: Any) -> Row | None:
        """The first row of a named query, or None."""

    def all(self, name: str, /, **params: Any) -> list[Row]:
        """Every row of a named query."""

    def run(self, name: str, /, **params: Any) -> int:
        """Run a named statement; the number of rows it changed."""

    def many(self, name: str, rows: Iterable[Mapping[str, Any] | Row], /) -> int:
        """Run a named statement once per row; the number of rows it changed.

        A row that is a tuple has its values in the order in which the statement names them.
        """

    def script(self, text: str) -> None:
        """Run several statements without parameters: only migrations need that."""

    def match(
        self,
        query: "Query",
        facets: Sequence[Sequence[str]],
        *,
        without: Sequence[str] = (),
        between: tuple[int, int] | None = None,
        below: int | None = None,
    ) -> list[dict[str, Any]]:
        """The parameters by which the index of this database is asked, one set after the other.

        Of each group of facets a document has one, and none of those that it must be without.
        `is_sure` says whether all of them are from between the two times.
        """

    def after_commit(self, event: Any) -> None:
        """Publish an event once, and only if, this transaction is committed."""


KEPT_CHANGING = "Others kept changing the same record; nothing was written. Try again."


CROSSED_FORK = "An open store cannot cross a fork; open it again in the child process."


class RaceLost(Exception):
    """Another transaction was first. The store runs the function again on fresh data."""


class Store(Protocol):
    """A database, open. Functions of a transaction go in, answers come out."""

    url: str

    @property
    def damage(self) -> Damaged | None:
        """The first structural damage that was met; while there is one, writes are refused."""

    def note_damage(self, error: Damaged) -> None:
        """Take note of damage that a check found."""

    def write(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action in a transaction; the answer comes after the commit is durable."""

    def read(
        self, action: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Pending[T]:
        """Run an action that only reads, on one consistent snapshot."""

    def search(
        self,
        action: Callable[Concatenate[Tx, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pending[T]:
        """Run an action that reads log and index, which has seen every append that returned."""

    def catch_up(self, seconds: float | None = None) -> Pending["IndexState"]:
        """Feed the index for so long, or until it is complete; how far it has come."""

    def rebuild_index(self) -> Pending[None]:
        """Forget the index; it is made again from the log, by whoever asks it next."""

    def index_in_background(self) -> None:
        """From now on feed the index as the log grows, not only when someone searches."""

    def scrub(self) -> None:
        """Leave no copy of what was deleted beside the database, as far as that is in our hands."""

    def shrink(self) -> None:
        """Give back the room that deleted content took, where the database does not by itself."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call back with the events of every commit of this store object; returns how to stop."""

    def close(self) -> None:
        """Finish what was begun and let go of the database."""
