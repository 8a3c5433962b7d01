"""What people type into a search box. Every string is a legal query."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from sessionary.model import tokenizer
from sessionary.model.tokenizer import Word

ROLES = ("user", "assistant", "system", "tool")
MOST_TERMS = 32
MOST_WORDS = 64
LONGEST_QUERY = 4096
# A shorter word is the beginning of too many others to be worth looking for as one.
SHORTEST_BEGINNING = 2

_FILTER = re.compile(
    r'(role|source|from|in|before|after|session|tool):(?:"([^"]+)"|(\S+))', re.IGNORECASE
)
_QUOTED_FILTER = re.compile(
    r'(?<!\S)(?:role|source|from|in|before|after|session|tool):"[^"]+"(?!\S)', re.IGNORECASE
)
_DATE = re.compile(r"^(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?$")
_AGO = re.compile(r"^(\d{1,5})([hdwmy])$")
_HOURS = {"h": 1, "d": 24, "w": 168, "m": 730, "y": 8766}


class Term(Struct, frozen=True):
    """One thing to look for: a word, a phrase, or the beginning of a word."""

    text: str
    words: tuple[Word, ...]
    prefix: bool = False
    # The word with the signs behind it (`c++`), as the index stores it.
    with_signs: str | None = None

    @property
    def is_phrase(self) -> bool:
        """Whether it is several words that must follow each other."""
        return len(self.words) > 1

    @property
    def is_open_ended(self) -> bool:
        """Whether the last word may continue in the text."""
        return self.prefix or self.words[-1].is_prefix


class Filters(Struct, frozen=True):
    """Where to look."""

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    before: datetime | None = None
    after: datetime | None = None


class Query(Struct, frozen=True):
    """A parsed query: one term of each group must match, and no unwanted term may."""

    text: str
    groups: tuple[tuple[Term, ...], ...] = ()
    unwanted: tuple[Term, ...] = ()
    filters: Filters = field(default_factory=Filters)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look for: no word, and no filter either."""
        return not self.groups and self.filters == Filters()

    @property
    def has_operators(self) -> bool:
        """Whether something in it was read as more than plain words."""
        return (
            bool(self.unwanted)
            or self.filters != Filters()
            or any(len(group) > 1 for group in self.groups)
        )

    def relaxed(self) -> "Query":
        """The same with any of the words instead of all."""
        everything = tuple(term for group in self.groups for term in group)
        return replace(self, groups=(everything,) if everything else ())

    def as_beginnings(self) -> "Query":
        """The same with every single word also matching longer words that begin with it."""
        groups = tuple(tuple(map(_as_beginning, group)) for group in self.groups)
        return replace(self, groups=groups)

    def describe(self) -> str:
        """The query in words."""
        parts = [" or ".join(_describe(term) for term in group) for group in self.groups]
        parts += [f"not {_describe(term)}" for term in self.unwanted]
        parts += _describe_filters(self.filters)
        return ", ".join(parts) if parts else "nothing to look for"


def parse(text: str, *, now: datetime | None = None) -> Query:
    """Parse a query. What is no operator is a word; no text is an error."""
    text = _cut_to_limit(text)
    filters, rest = _split_filters(_pieces(text), now=now)
    groups: list[tuple[Term, ...]] = []
    unwanted: list[Term] = []
    joins = negates = False
    for place, (piece, quoted) in enumerate(rest[: MOST_TERMS * 2]):
        if not quoted and place + 1 < len(rest):
            if piece == "NOT":
                negates = True
                continue
            if groups and piece in ("AND", "OR"):
                joins = piece == "OR"
                continue
        minus = not quoted and len(piece) > 1 and piece[0] == "-" and piece[1] not in "-0123456789"
        term = _term(piece[1:] if minus else piece, quoted=quoted)
        negative, negates = minus or negates, False
        if term is None:
            continue
        if negative:
            unwanted.append(term)
        elif joins:
            groups[-1] = (*groups[-1], term)
        else:
            groups.append((term,))
        joins = False
    if not groups:
        groups, unwanted = [(term,) for term in unwanted or _punctuation_terms(rest)], []
    return Query(text, tuple(groups[:MOST_TERMS]), tuple(unwanted[:MOST_TERMS]), filters)


def narrowed(query: Query, more: Filters) -> Query:
    """The same query with these filters instead of its own, where they are given."""
    given = {name: getattr(more, name) for name in Filters.__struct_fields__}
    wanted = {name: value for name, value in given.items() if value}
    return replace(query, filters=replace(query.filters, **wanted)) if wanted else query


def literal(query: Query) -> Query | None:
    """The whole text as one phrase, if parts of it were read as operators: it may be a quotation."""
    term = _term(query.text, quoted=True) if query.has_operators else None
    return None if term is None else Query(query.text, ((term,),))


def _cut_to_limit(text: str) -> str:
    """At most LONGEST_QUERY characters; a longer text is cut between words."""
    if len(text) <= LONGEST_QUERY:
        return text
    whole = text[: LONGEST_QUERY + 1].rsplit(maxsplit=1)[0]
    return whole if len(whole) <= LONGEST_QUERY else text[:LONGEST_QUERY]


def _punctuation_terms(rest: list[tuple[str, bool]]) -> list[Term]:
    """Punctuation, when there is nothing else to look for."""
    found = dict.fromkeys(sign for piece, _ in rest for sign in tokenizer.punctuation(piece))
    return [Term(tokenizer.display_form(sign), (Word(sign),)) for sign in found]


def _term(piece: str, *, quoted: bool) -> Term | None:
    prefix = not quoted and len(piece) > 1 and piece.endswith("*") and not piece.endswith("**")
    found = tokenizer.query_words(piece)[:MOST_WORDS]
    if not found:
        return None
    signed = tokenizer.words_with_signs(piece) if not quoted and len(found) == 1 else []
    text = piece.rstrip("*") if prefix else piece
    return Term(text, tuple(found), prefix, signed[0] if signed else None)


def _as_beginning(term: Term) -> Term:
    if (
        term.is_phrase
        or term.with_signs is not None
        or len(term.words[0].text) < SHORTEST_BEGINNING
    ):
        return term
    return replace(term, prefix=True)


def _pieces(text: str) -> list[tuple[str, bool]]:
    """Split at white space; what is in quotation marks stays together. Marks may be nested."""
    named = _QUOTED_FILTER.search(text)
    if named is not None:
        before, after = text[: named.start()], text[named.end() :]
        return [*_pieces(before), (named[0], False), *_pieces(after)]
    spans = _quoted(text)
    pieces: list[tuple[str, bool]] = []
    at = 0
    for first, last in spans:
        pieces += [(word, False) for word in text[at:first].split()]
        pieces.append((text[first + 1 : last], True))
        at = last + 1
    return pieces + [(word, False) for word in text[at:].split()]


def _quoted(text: str) -> list[tuple[int, int]]:
    """Where quotations begin and end. Marks that do not pair make one long quotation."""
    marks = [place for place, char in enumerate(text) if char == '"']
    opens = [
        place for place in marks if _is_edge(text, place - 1) and not _is_edge(text, place + 1)
    ]
    if not opens:
        return []
    spans: list[tuple[int, int]] = []
    depth = first = 0
    for place in marks:
        left, right = _is_edge(text, place - 1), _is_edge(text, place + 1)
        if left and not right:
            first = place if depth == 0 else first
            depth += 1
        elif right and not left:
            depth -= 1
            if depth < 0:
                return [(opens[0], marks[-1])] if marks[-1] > opens[0] else []
            if depth == 0:
                spans.append((first, place))
    if depth:
        return [(opens[0], marks[-1] if marks[-1] > opens[0] else len(text))]
    return spans


def _is_edge(text: str, place: int) -> bool:
    return place < 0 or place >= len(text) or text[place].isspace()


def _split_filters(
    pieces: list[tuple[str, bool]], *, now: datetime | None
) -> tuple[Filters, list[tuple[str, bool]]]:
    found: dict[str, list[str]] = {
        name: [] for name in ("role", "source", "from", "in", "session", "tool")
    }
    before: datetime | None = None
    after: datetime | None = None
    rest: list[tuple[str, bool]] = []
    for piece, quoted in pieces:
        # Filters cannot be negated: behind NOT, as behind a minus, it is text.
        is_text = quoted or rest[-1:] == [("NOT", False)]
        match = None if is_text else _FILTER.fullmatch(piece)
        name, value = (match[1].lower(), match[2] or match[3]) if match else ("", "")
        moment = _moment(value, now=now) if name in ("before", "after") else None
        if name == "before" and moment is not None:
            before = moment
        elif name == "after" and moment is not None:
            after = moment
        elif name == "role" and value.lower() in ROLES:
            found["role"].append(value.lower())
        elif name in ("source", "from", "in", "session", "tool"):
            found[name].append(value)
        else:
            rest.append((piece, quoted))
    filters = Filters(
        roles=tuple(found["role"]),
        sources=tuple(found["source"]),
        people=tuple(found["from"]),
        projects=tuple(found["in"]),
        sessions=tuple(found["session"]),
        tools=tuple(found["tool"]),
        before=before,
        after=after,
    )
    return filters, rest


def _moment(value: str, *, now: datetime | None) -> datetime | None:
    """A date, a month, a time, or a while ago (`7d`); None when it is none of these."""
    ago = _AGO.match(value)
    if ago is not None and now is not None:
        try:
            return now - timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
        except OverflowError:
            return None
    date = _DATE.match(value)
    try:
        if date is not None:
            return datetime(int(date[1]), int(date[2] or 1), int(date[3] or 1), tzinfo=UTC)
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _describe(term: Term) -> str:
    if term.prefix:
        return f"{term.text}…"
    return f"“{term.text}”" if term.is_phrase else term.text


def _describe_filters(filters: Filters) -> list[str]:
    parts = []
    for name, values in (
        ("role", filters.roles),
        ("source", filters.sources),
        ("from", filters.people),
        ("project", filters.projects),
        ("session", filters.sessions),
        ("tool", filters.tools),
    ):
        if values:
            parts.append(f"{name} {' or '.join(values)}")
    if filters.after is not None:
        parts.append(f"after {filters.after:%Y-%m-%d %H:%M}")
    if filters.before is not None:
        parts.append(f"before {filters.before:%Y-%m-%d %H:%M}")
    return parts


def matches(query: Query, text: str) -> bool:
    """Whether a text has one term of each group, and no unwanted term."""
    found = [*tokenizer.words(text), *tokenizer.extras(text)]
    known = set(found)
    wanted = all(any(_term_matches(term, found, known) for term in group) for group in query.groups)
    return wanted and not any(_term_matches(term, found, known) for term in query.unwanted)


def _term_matches(term: Term, found: Sequence[str], known: set[str]) -> bool:
    if term.with_signs is not None and term.with_signs not in known:
        return False
    wanted = [word.text for word in term.words]
    if not known.issuperset(wanted[:-1]):
        return False
    if len(wanted) == 1:
        return _has_word(known, wanted[0], open_ended=term.is_open_ended)
    places = [at for at, word in enumerate(found) if word == wanted[0]]
    return any(_phrase_at(found, at, wanted, open_ended=term.is_open_ended) for at in places)


def _has_word(known: set[str], word: str, *, open_ended: bool) -> bool:
    return any(each.startswith(word) for each in known) if open_ended else word in known


def _phrase_at(found: Sequence[str], at: int, wanted: list[str], *, open_ended: bool) -> bool:
    last = at + len(wanted) - 1
    if last >= len(found) or found[at:last] != wanted[:-1]:
        return False
    return found[last].startswith(wanted[-1]) if open_ended else found[last] == wanted[-1]
