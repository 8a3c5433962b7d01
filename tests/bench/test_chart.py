"""Pictures are well-formed and show their texts; goals show their figures."""

import itertools
import xml.etree.ElementTree as ET

import pytest

from benchmarks import chart
from benchmarks.chart import Bar
from benchmarks.goals import at_least, at_most, shown
from benchmarks.measure import Results, Sample

SVG = "{http://www.w3.org/2000/svg}"
GOT = Results({"ours": [Sample(300, 1.0, [0.004])], "floor": [Sample(700, 1.0, [0.001])]})


def test_bars_have_the_length_of_their_order_of_magnitude() -> None:
    drawn = chart.bars(
        "a <title> & more",
        "per second",
        {
            "a case": [
                Bar("slow", "peer", 10),
                Bar("mid", "floor", 100),
                Bar("fast", "product", 1000),
            ]
        },
    )

    tree = ET.fromstring(drawn)
    widths = [float(rect.get("width", 0)) for rect in tree.iter(f"{SVG}rect")][1:]
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert widths[0] < widths[1] < widths[2]
    assert widths[1] * 2 == pytest.approx(widths[2], rel=0.01)
    assert "a <title> & more; per second, logarithmic" in texts
    assert {"slow", "mid", "fast", "1,000"} <= set(texts)


def test_a_flat_curve_is_drawn_flat_and_names_do_not_cover_each_other() -> None:
    flat = [(1_000.0, 0.5), (1_000_000.0, 0.5)]
    drawn = chart.lines("growth", "ms", "sessions", {"list": flat, "open": flat, "find": flat})

    tree = ET.fromstring(drawn)
    for line in tree.iter(f"{SVG}polyline"):
        assert len({point.split(",")[1] for point in line.get("points", "").split()}) == 1
    names = [text for text in tree.iter(f"{SVG}text") if "name" in text.get("class", "")]
    places = sorted(float(text.get("y", 0)) for text in names)
    assert len(places) == 3
    assert all(below - above >= 12 for above, below in itertools.pairwise(places))


def test_a_goal_is_judged_and_says_its_figure() -> None:
    near = at_least(0.6, "of the floor", lambda got: got.ratio("ours", "floor"))
    quick = at_most(5, "ms", lambda got: got.p50("ours") * 1000, of="a list")

    assert (near.text, near.is_met(GOT), near.figure(GOT)) == (
        "at least 0.6 of the floor",
        False,
        "0.429",
    )
    assert (quick.text, quick.is_met(GOT), quick.figure(GOT)) == ("a list: at most 5 ms", True, "4")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (11.0, "11"), (0.4286, "0.429"), (67.71, "67.7"), (12345.6, "12,346")],
)
def test_a_figure_has_as_many_digits_as_mean_something(value: float, text: str) -> None:
    assert shown(value) == text
