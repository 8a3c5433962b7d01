"""What is written as a line is read again as it was."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionary.errors import BadInput
from sessionary.model import record
from sessionary.model.message import Compaction, Entry, Message, Retraction, Role, Text, Unknown
from sessionary.model.source import Person
from sessionary.model.usage import CostStatus, Usage

AT = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)

words = st.text(st.characters(), max_size=10) | st.sampled_from(["\ud800", "\x00", "\u2028"])
_FIRST, _LAST = (AT.replace(year=year, tzinfo=None) for year in (2, 9998))
times = st.datetimes(_FIRST, _LAST, timezones=st.just(UTC))
bodies = (
    st.builds(
        Message,
        st.sampled_from(Role),
        st.lists(st.builds(Text, words), max_size=3).map(tuple),
        person=st.none() | st.builds(Person, st.text("ab", min_size=1), name=st.none() | words),
        model=st.none() | words,
        token_count=st.none() | st.integers(),
        extra=st.dictionaries(words, words, max_size=2),
    )
    | st.builds(Compaction, words, st.integers(0, 4), st.booleans())
    | st.builds(Retraction, st.integers(0, 4), words)
)


@given(st.builds(Entry, st.just("s"), st.integers(5, 99), times, bodies, st.none() | st.just("t")))
def test_an_entry_comes_back_from_its_line(entry: Entry) -> None:
    text = record.write(record.entry_line(entry))
    line = record.read(text.encode())
    assert isinstance(line, record.EntryLine)
    assert record.write(line) == text
    back = Entry("s", line.seq, record.utc(line.at), record.body_of(line), line.turn_id)
    assert record.write(record.entry_line(back)) == text
    assert text.count("\n") == 1


def test_a_call_comes_back_from_its_line() -> None:
    for usage in (
        Usage("m", 1, 2, 3, 4, 5, 6, CostStatus.ESTIMATED, "p", call_id="c", at=AT),
        Usage(call_id="c", at=AT),
    ):
        line = record.read(record.write(record.usage_line("t", usage)).encode())
        assert isinstance(line, record.UsageLine)
        assert record.usage_of(line) == usage


def test_a_time_of_another_zone_is_the_same_time() -> None:
    assert record.utc(AT.astimezone(timezone(timedelta(hours=5)))) == AT
    edge = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    with pytest.raises(BadInput):
        record.utc(edge)


def test_a_line_says_only_what_there_is_to_say() -> None:
    entry = Entry("s", 1, AT, Message(Role.USER, (Unknown({"type": "x", "zero": 0}),)))
    assert record.write(record.entry_line(entry)) == (
        '{"line":"entry","seq":1,"at":"2026-01-01T12:30:15.123456Z","kind":"message",'
        '"role":"user","parts":[{"type":"x","zero":0}]}\n'
    )


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        record.read(text)


@given(
    st.recursive(
        st.none() | st.integers() | words, lambda v: st.lists(v) | st.dictionaries(words, v)
    )
)
def test_no_json_does_more_than_be_refused(value: object) -> None:
    try:
        text = msgspec.json.encode({"line": "session", "id": value})
    except UnicodeEncodeError:
        return
    with pytest.raises(BadInput):
        record.read(text)
