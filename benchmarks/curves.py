"""Draws how figures grow, as SVG with nothing but text. Pure.

Each panel has both axes in powers of ten, so that what grows linearly has the slope of the dashed
line. Colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .chart import STYLE, escaped, svg_text

_COLUMNS: Final = 3
_WIDTH: Final = 330
_PLOT: Final = (60, 52, 240, 150)
"""Left, top, width and height of the plot in a panel."""
_HEIGHT: Final = 250
_MARGIN: Final = 24
_LINE: Final = 16
_CAPTION_COLUMNS: Final = 140

_OWN_STYLE: Final = """
.axis { stroke: #9aa4af; stroke-width: 1; fill: none; }
.linear { stroke: #9aa4af; stroke-width: 1; stroke-dasharray: 4 4; fill: none; }
.curve { stroke: #1f6feb; stroke-width: 2; fill: none; }
"""


@dataclass(frozen=True, slots=True)
class Curve:
    """A panel: one figure against one size.

    Attributes:
        title: What grows.
        along: What it grows with.
        points: Sizes and figures, all above 0, by size.
    """

    title: str
    along: str
    points: Sequence[tuple[float, float]]


def draw(curves: Sequence[Curve], caption: str) -> str:
    """The picture as the text of an SVG file, three panels in a row."""
    lines = textwrap.wrap(caption, _CAPTION_COLUMNS)
    rows = math.ceil(len(curves) / _COLUMNS)
    width = _COLUMNS * _WIDTH + 2 * _MARGIN
    height = rows * _HEIGHT + len(lines) * _LINE + 2 * _MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" role="img">'
        ),
        f"<title>{escaped(', '.join(dict.fromkeys(each.title for each in curves)))}</title>",
        f"<style>{STYLE}{_OWN_STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
    ]
    for number, curve in enumerate(curves):
        row, column = divmod(number, _COLUMNS)
        parts.extend(_panel(curve, _MARGIN + column * _WIDTH, _MARGIN + row * _HEIGHT))
    top = height - _MARGIN - len(lines) * _LINE
    for number, line in enumerate(lines, 1):
        parts.append(svg_text(_MARGIN, top + number * _LINE, line, "text quiet"))
    return "\n".join([*parts, "</svg>", ""])


def _panel(curve: Curve, x: float, y: float) -> Iterator[str]:
    left, top, width, height = x + _PLOT[0], y + _PLOT[1], _PLOT[2], _PLOT[3]
    sizes, figures = zip(*((math.log10(a), math.log10(b)) for a, b in curve.points), strict=True)
    low, high = math.floor(min(figures)), math.ceil(max(figures))
    high = max(high, low + 1)
    first, last = min(sizes), max(*sizes, min(sizes) + 1)

    def place(size: float, figure: float) -> str:
        across = left + width * (size - first) / (last - first)
        down = top + height * (high - figure) / (high - low)
        return f"{across:.1f} {down:.1f}"

    yield svg_text(x, y + 12, curve.title, "text head")
    yield svg_text(x, y + 29, f"by {curve.along}", "text quiet")
    yield f'<path class="axis" d="M{left} {top}v{height}h{width}"/>'
    for power in range(low, high + 1):
        down = top + height * (high - power) / (high - low)
        yield svg_text(left - 8, down + 4, short(10.0**power), "text quiet", anchor="end")
    end = min(last, first + high - figures[0])
    yield (
        f'<path class="linear" d="M{place(first, figures[0])}'
        f'L{place(end, figures[0] + end - first)}"/>'
    )
    joined = "L".join(place(*each) for each in zip(sizes, figures, strict=True))
    yield f'<path class="curve" d="M{joined}"/>'
    for (size, figure), (size_at, at) in zip(
        curve.points, zip(sizes, figures, strict=True), strict=True
    ):
        across, down = place(size_at, at).split()
        yield f'<circle class="ours" cx="{across}" cy="{down}" r="4"/>'
        yield svg_text(float(across), float(down) - 8, short(figure), "text quiet", anchor="middle")
        yield svg_text(float(across), top + height + 16, short(size), "text quiet", anchor="middle")


def short(number: float) -> str:
    """A number as people read it, three digits or so."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if number >= size:
            return f"{number / (1e3 if letter == ' k' else size):.3g}{letter}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
