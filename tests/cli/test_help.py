"""What `--help` says: every command is explained, and its examples are understood."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from cyclopts import App

from cli.conftest import Run
from liftbridge_aio.cli import app

PROGRAM = "liftbridge-aio"


def commands(noun: App = app, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, by the words that call it."""
    for name in noun:
        if name.startswith("-"):
            continue
        below = noun[name]
        if below.default_command is None:
            yield from commands(below, (*words, name))
        else:
            yield (*words, name)


def examples(help_text: str) -> list[list[str]]:
    lines = [line.strip() for line in help_text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{PROGRAM} ")]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_the_examples_of_a_command_are_understood(run: Run, words: tuple[str, ...]) -> None:
    shown = run(*words, "--help", servers="nowhere").out
    assert "--json" in shown
    found = examples(shown)
    assert found
    noun, *more = words
    aliases = {"cursors": "cursor", "describe": "show"}
    expected = [aliases.get(word, word) for word in (noun, *more)]
    for example in found:
        assert example[: len(words)] == expected
        app.parse_args(example, exit_on_error=False, print_error=False)


def test_the_front_help_names_every_noun(run: Run) -> None:
    shown = run("--help").out
    for words in commands():
        assert words[0] in shown
