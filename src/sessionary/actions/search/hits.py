"""A hit: one message that was found, as it is shown. All of a page is read at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sessionary.actions.search.index import SearchMatch
from sessionary.clock import from_micros
from sessionary.errors import Damaged
from sessionary.model import message
from sessionary.model import snippet as snippets
from sessionary.model.query import Query
from sessionary.model.search_text import SUMMARY, TITLE, searchable_text
from sessionary.model.session import SessionHead
from sessionary.store.database import REMEDY, Row, Tx
from sessionary.store.queries import pg_array_literal
from sessionary.store.tables import entries, sessions
from sessionary.store.tables.blobs import Unpacker

# What stands for words that were there when they were taken into the index.
UNREADABLE = "(this message is damaged and cannot be read: run `sessionary verify`)"
_TEXT = 4000
_NEIGHBOUR = 200
_NEAR = 3


@dataclass(frozen=True, slots=True)
class Hit:
    """One message that was found, with what stands around it in the same session."""

    session: SessionHead
    seq: int
    role: str
    snippet: str
    text: str
    at: datetime
    score: float
    before: str | None = None
    after: str | None = None
    in_session: int = 1

    @property
    def id(self) -> str:
        """The name of the entry."""
        return f"{self.session.id}-{self.seq}"


def hits(
    tx: Tx, page: Sequence[SearchMatch], query: Query, *, times: Callable[[SearchMatch], int]
) -> tuple[Hit, ...]:
    """What a page of matches shows; `times` says how many each one's session has."""
    making = _Making(tx, page, query)
    return tuple(making.hit(match, times(match)) for match in page)


class _Making:
    """The heads and the words that the hits of one page are made from."""

    def __init__(self, tx: Tx, page: Sequence[SearchMatch], query: Query) -> None:
        self._tx = tx
        self._query = query
        self._unpacker = Unpacker(tx)
        self._heads = sessions.by_numbers(tx, {match.session_no for match in page})
        self._rows = _around(tx, [match.entry_no for match in page if match.seq])

    def hit(self, match: SearchMatch, times: int) -> Hit:
        head = self._heads[match.session_no]
        at, score = from_micros(match.at), round(match.score, 6)
        if match.seq == 0:
            title = head.title or ""
            shown = snippets.snippet(title, self._query)
            return Hit(head, 0, TITLE, shown, title, at, score, in_session=times)
        near = self._rows[match.entry_no]
        if match.entry_no not in near:
            raise Damaged(
                f"Entry {match.seq} of session {head.id} is missing from the log: "
                f"the store is damaged. {REMEDY}"
            )
        role, body = near[match.entry_no]
        data = entries.readable(self._tx, match.entry_no, body, self._unpacker)
        text = "" if data is None else searchable_text(role, data, match.area)
        return Hit(
            session=head,
            seq=match.seq,
            role=role or SUMMARY,
            snippet=UNREADABLE if data is None else snippets.snippet(text, self._query),
            text=text[:_TEXT],
            at=at,
            score=score,
            before=self._said(near, range(match.entry_no - 1, match.entry_no - _NEAR - 1, -1)),
            after=self._said(near, range(match.entry_no + 1, match.entry_no + _NEAR + 1)),
            in_session=times,
        )

    def _said(self, near: Mapping[int, Row], numbers: Iterable[int]) -> str | None:
        """The first words of the nearest message that has any."""
        for number in numbers:
            if number not in near:
                continue
            data = entries.readable(self._tx, number, near[number][1], self._unpacker) or {}
            text = message.text_of(tuple(map(message.from_json, data.get("parts", ()))))
            if text:
                return text[:_NEIGHBOUR]
        return None


def _around(tx: Tx, numbers: Sequence[int]) -> dict[int, dict[int, Row]]:
    """For each entry the role and the body of it and of what people and agents said near it."""
    found: dict[int, dict[int, Row]] = {number: {} for number in numbers}
    for number, other, *said in tx.all(
        "read_around", numbers=pg_array_literal(numbers), distance=_NEAR
    ):
        found[number][other] = tuple(said)
    return found
