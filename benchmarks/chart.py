"""Pictures of measurements as plain SVG: legible on light and dark, with nothing to install."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 205, 46, 46
_BAR, _LABELS = 17, 300
_STYLE = """
  svg { color-scheme: light dark; }
  .back { fill: #ffffff; }
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .quiet { fill: #59636e; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .line { fill: none; stroke-width: 2; }
  .product, .c0 { fill: #0b62c4; stroke: #0b62c4; } .floor { fill: #8c959f; }
  .peer, .c1 { fill: #bc4c00; stroke: #bc4c00; }
  .c2 { fill: #1a7f37; stroke: #1a7f37; } .c3 { fill: #8250df; stroke: #8250df; }
  .c4 { fill: #9a6700; stroke: #9a6700; } .c5 { fill: #bf3989; stroke: #bf3989; }
  .c6 { fill: #0f766e; stroke: #0f766e; } .c7 { fill: #57606a; stroke: #57606a; }
  .c8 { fill: #a40e26; stroke: #a40e26; } .c9 { fill: #3730a3; stroke: #3730a3; }
  .line.line { fill: none; } .name.name { stroke: none; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; }
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .product, .c0 { fill: #58a6ff; stroke: #58a6ff; } .floor { fill: #7d8590; }
    .peer, .c1 { fill: #f0883e; stroke: #f0883e; }
    .c2 { fill: #56d364; stroke: #56d364; } .c3 { fill: #bc8cff; stroke: #bc8cff; }
    .c4 { fill: #e3b341; stroke: #e3b341; } .c5 { fill: #f778ba; stroke: #f778ba; }
    .c6 { fill: #39c5bb; stroke: #39c5bb; } .c7 { fill: #adbac7; stroke: #adbac7; }
    .c8 { fill: #ff938a; stroke: #ff938a; } .c9 { fill: #a5b4fc; stroke: #a5b4fc; }
  }
"""
_COLOURS = 10


@dataclass(frozen=True, slots=True)
class Bar:
    """One contestant: its name, its kind, how much."""

    name: str
    kind: str
    value: float


def bars(title: str, unit: str, groups: Mapping[str, Sequence[Bar]]) -> str:
    """Bars from left to right on a logarithmic scale, a group under its heading."""
    found = [bar.value for group in groups.values() for bar in group if bar.value > 0]
    low = 10 ** math.floor(math.log10(min(found)))
    span = math.log10(max(found) * 1.05 / low)
    room = WIDTH - _LABELS - 80
    out: list[str] = []
    y = _TOP + 12
    for heading, group in groups.items():
        out.append(_text(12, y, heading, "quiet"))
        for bar in group:
            y += _BAR
            width = max(1.0, math.log10(max(bar.value, low) / low) / span * room)
            out.append(_text(_LABELS - 6, y, bar.name, anchor="end"))
            out.append(
                f'<rect class="{bar.kind}" x="{_LABELS}" y="{y - 10}" width="{width:.1f}" '
                f'height="12" stroke="none"/>'
            )
            out.append(_text(_LABELS + width + 5, y, figure(bar.value), "quiet"))
        y += _BAR + 11
    return _drawn(f"{title}; {unit}, logarithmic", y, out)


def lines(
    title: str, unit: str, x_unit: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """Curves on two logarithmic scales, each named at its end."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points if y > 0]
    left, right = math.log10(min(xs)), math.log10(max(xs))
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    height = 420
    plot = _Plot(left, max(right, left + 0.1), low, max(high, low + 1), height)
    out = [*_grid(plot)]
    places = _apart([plot.y(points[-1][1]) for points in series.values()])
    for number, (name, points) in enumerate(series.items()):
        colour = f"c{number % _COLOURS}"
        path = " ".join(f"{plot.x(x):.1f},{plot.y(y):.1f}" for x, y in points)
        out.append(f'<polyline class="line {colour}" points="{path}"/>')
        out += [
            f'<circle class="{colour}" cx="{plot.x(x):.1f}" cy="{plot.y(y):.1f}" r="3"/>'
            for x, y in points
        ]
        out.append(_text(WIDTH - _RIGHT + 10, places[number] + 4, name, f"name {colour}"))
    out.append(_text((_LEFT + WIDTH - _RIGHT) / 2, height - 10, x_unit, "quiet", anchor="middle"))
    return _drawn(f"{title}; {unit}", height, out)


def figure(value: float) -> str:
    """A number as people write it."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class _Plot:
    left: float
    right: float
    low: int
    high: int
    height: int

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.left) / (self.right - self.left)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (math.log10(max(value, 10**self.low)) - self.low) / (self.high - self.low)
        return self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM)


def _grid(plot: _Plot) -> Iterator[str]:
    end = WIDTH - _RIGHT
    for power in range(plot.low, plot.high + 1):
        y = plot.y(10.0**power)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 6, y + 4, f"{10.0**power:,g} ms", "quiet", anchor="end")
    for power in range(math.ceil(plot.left), math.floor(plot.right) + 1):
        x = plot.x(10.0**power)
        top, bottom = _TOP, plot.height - _BOTTOM
        yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
        yield _text(x, bottom + 16, f"{10**power:,}", "quiet", anchor="middle")


def _apart(wanted: Sequence[float]) -> list[float]:
    """Places for names that do not cover each other."""
    places = list(wanted)
    last = -math.inf
    for at in sorted(range(len(wanted)), key=lambda number: wanted[number]):
        places[at] = last = max(wanted[at], last + 14)
    return places


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "start") -> str:
    given = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{given}>{escape(text)}</text>'


def _drawn(title: str, height: int, inside: Sequence[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label="{escape(title)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
            _text(12, 24, title, "title"),
            *inside,
            "</svg>\n",
        ]
    )
