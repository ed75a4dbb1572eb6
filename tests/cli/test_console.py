"""Checks of demos as the terminal shows them."""

from __future__ import annotations

import io

from liftbridge_aio.cli.console import Console, print_checks
from liftbridge_aio.cli.demo_checks import Check


def test_texts_are_shown_as_they_are() -> None:
    out = io.StringIO()
    gone = Check("none of [a, b] is lost", held=False, detail="[stream='a', partition=0] [/]")
    print_checks(Console(file=out, width=80), [gone])
    assert out.getvalue().splitlines() == [
        "✗ none of [a, b] is lost",
        "  [stream='a', partition=0] [/]",
        "",
    ]
