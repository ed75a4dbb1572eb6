"""The picture of how groups grow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from .curves import Curve, draw
from .scale import AXES, Size
from .scale_memory import KINDS

Figures = Mapping[str, Any]

_FIGURES: Final[dict[str, Callable[[Figures], float]]] = {
    "Seconds until all is read, at the start": lambda each: each["start"]["seconds"],
    "Seconds until a dead member is replaced": lambda each: each["death"]["read_again"],
    "Calls at the start": lambda each: each["start"]["calls"],
    "Calls when a member joins": lambda each: each["join"]["calls"],
    "Bytes of metadata at the start": lambda each: each["start"]["metadata_bytes"],
    "Calls a second when idle": lambda each: each["idle"]["calls"] / each["idle"]["seconds"],
}


def scale_picture(document: Mapping[str, Any]) -> str:
    """The picture of a result file, as the text of an SVG file."""
    machine = document["machine"]
    caption = (
        f"{document['command']}. Simulated seconds; {Size().members} members,"
        f" {Size().partitions:,} partitions and {Size().brokers} brokers but for what the axis"
        f" shows. Both axes in powers of ten; dashed: linear. {document['date']},"
        f" {document['versions']['python']}; memory on {machine['system']}."
    )
    return draw(curves(document["scale"], document["scale_memory"]), caption)


def curves(points: Sequence[Figures], held: Sequence[Figures]) -> list[Curve]:
    """The panels of the picture; those with fewer than two points are left out."""
    found = []
    for title, figure in _FIGURES.items():
        for axis in AXES:
            others = asdict(Size())
            del others[axis]
            line = [
                (float(each[axis]), float(figure(each)))
                for each in sorted(points, key=lambda each: each[axis])
                if others.items() <= each.items()
            ]
            found.append(Curve(title, axis, line))
    for kind in KINDS:
        line = [(each["partitions"], each["held_bytes"]) for each in held if each["kind"] == kind]
        found.append(Curve(f"Bytes that one {kind} holds", "partitions", line))
    return [each for each in found if len(each.points) > 1]
