"""Draws results as SVG, with nothing but text. Pure.

Every panel is a case; every bar a client's median, with a whisker from least to most. Colours
follow the reader's light or dark setting.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 760
_MARGIN: Final = 24
_LABELS: Final = 170
"""Left end of bars."""
_BARS: Final = 320
"""Length of the longest bar."""
_ROW: Final = 24
_BAR: Final = 14
_HEAD: Final = 44
_LINE: Final = 16
_CAPTION_COLUMNS: Final = 108

STYLE: Final = """
.ground { fill: #ffffff; }
.text { fill: #1f2328; font: 13px system-ui, sans-serif; }
.head { font-weight: 600; font-size: 14px; }
.quiet { fill: #59636e; font-size: 12px; }
.bar { fill: #9aa4af; }
.ours { fill: #1f6feb; }
.whisker { stroke: #1f2328; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117; }
  .text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .bar { fill: #59636e; }
  .ours { fill: #4493f8; }
  .whisker { stroke: #e6edf3; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A client in a panel.

    Attributes:
        label: Its name.
        least: The shortest of its rounds.
        median: The length of the bar.
        most: The longest.
        text: What stands at the end of the bar.
        ours: True to draw it in our colour.
    """

    label: str
    least: float
    median: float
    most: float
    text: str
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A case.

    Attributes:
        title: What it is about.
        unit: What the bars show, and whether more is better.
        bars: From top to bottom.
    """

    title: str
    unit: str
    bars: Sequence[Bar]


def draw(panels: Sequence[Panel], caption: Sequence[str]) -> str:
    """The chart as the text of an SVG file.

    Args:
        panels: From top to bottom; those without bars are left out.
        caption: Lines below them: where the figures come from.
    """
    shown = [panel for panel in panels if panel.bars]
    lines = [part for line in caption for part in textwrap.wrap(line, _CAPTION_COLUMNS) or [""]]
    height = sum(_height(panel) for panel in shown) + _LINE * len(lines) + 2 * _MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img">'
        ),
        f"<title>{escaped(', '.join(panel.title for panel in shown))}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    top = _MARGIN
    for panel in shown:
        parts.extend(_panel(panel, top))
        top += _height(panel)
    for line in lines:
        top += _LINE
        parts.append(svg_text(_MARGIN, top - 4, line, "text quiet"))
    return "\n".join([*parts, "</svg>", ""])


def _height(panel: Panel) -> int:
    return _HEAD + _ROW * len(panel.bars) + _LINE


def _panel(panel: Panel, top: int) -> Iterator[str]:
    yield svg_text(_MARGIN, top + 12, panel.title, "text head")
    yield svg_text(_MARGIN, top + 29, panel.unit, "text quiet")
    longest = max(bar.most for bar in panel.bars)
    scale = _BARS / longest if longest > 0 else 0.0
    for number, bar in enumerate(panel.bars):
        yield from _bar(bar, top + _HEAD + number * _ROW, scale)


def _bar(bar: Bar, top: int, scale: float) -> Iterable[str]:
    middle = top + _BAR / 2
    left, right = (_LABELS + value * scale for value in (bar.least, bar.most))
    kind = "ours" if bar.ours else "bar"
    label_kind = "text head" if bar.ours else "text"
    yield svg_text(_LABELS - 8, top + 11, bar.label, label_kind, anchor="end")
    yield (
        f'<rect class="{kind}" x="{_LABELS}" y="{top}"'
        f' width="{max(bar.median * scale, 1):.1f}" height="{_BAR}" rx="2"/>'
    )
    if right - left >= 1:
        yield (
            f'<path class="whisker" d="M{left:.1f} {middle:g}H{right:.1f}'
            f'M{left:.1f} {middle - 3:g}v6M{right:.1f} {middle - 3:g}v6"/>'
        )
    yield svg_text(max(right, _LABELS + 1) + 8, top + 11, bar.text, "text")


def svg_text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    """A piece of text as an element of SVG."""
    place = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{kind}" {place} text-anchor="{anchor}">{escaped(text)}</text>'


def escaped(text: str) -> str:
    """Text as XML has it."""
    return html.escape(text, quote=False)
