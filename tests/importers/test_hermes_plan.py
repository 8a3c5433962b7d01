"""Two records of one conversation become one."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sessionary.importers.hermes.conversation import aligned, merged

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
few = st.lists(st.sampled_from("abcd"), max_size=12)


def both(a: list[str], b: list[str]) -> list[str]:
    pairs = aligned(a, b)
    return [x or y or "" for x, y in merged(a, b, pairs, time_of=lambda _: None)]


@given(few, few)
def test_each_record_is_in_the_whole_in_its_own_order(a: list[str], b: list[str]) -> None:
    whole = both(a, b)

    for part in (a, b):
        rest = iter(whole)
        assert all(each in rest for each in part)
    assert len(whole) <= len(a) + len(b)


@given(few, st.data())
def test_a_record_that_lacks_some_lines_adds_none(a: list[str], data: st.DataObject) -> None:
    kept = [each for each in a if data.draw(st.booleans())]

    assert len(both(a, kept)) <= len(a) + len(kept)
    assert both(a, a) == a
    assert both(a, []) == a == both([], a)


def test_a_line_that_comes_often_is_matched_where_it_stands() -> None:
    assert both(list("ayby"), list("aby")) == list("ayby")
    assert both(list("ab"), list("axb")) == list("axb")
    assert both(list("aybyc"), list("abyc")) == list("aybyc")


def test_what_each_has_alone_is_put_in_order_of_time() -> None:
    times = {name: NOON + timedelta(seconds=n) for n, name in enumerate("apbqc")}

    found = merged(list("abc"), list("apqc"), aligned("abc", "apqc"), time_of=times.__getitem__)

    assert [x or y for x, y in found] == list("apbqc")


def test_long_records_are_merged_in_short_time() -> None:
    a = [str(n % 7) for n in range(20_000)]
    b = [each for n, each in enumerate(a) if n % 5]

    assert len(both(a, b)) >= len(a)
