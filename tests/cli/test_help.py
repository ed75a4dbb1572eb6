"""The output of `--help`: every command is explained, and its examples can be parsed."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclopts import App, Argument, Token

from cli.conftest import Run
from liftbridge_aio.cli import app
from liftbridge_aio.cli.tail import tail
from support.servers.ports import free_ports

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


def examples(text: str) -> list[list[str]]:
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{PROGRAM} ")]


ALL = list(commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_examples_of_a_command_are_understood(words: tuple[str, ...]) -> None:
    command = functools.reduce(App.__getitem__, words, app).default_command
    assert command is not None
    found = examples(command.__doc__ or "")
    assert found
    aliases = {"cursors": "cursor", "describe": "show", "queues": "queue"}
    for example in found:
        assert example[: len(words)] == [aliases.get(word, word) for word in words]
        app.parse_args(example, exit_on_error=False, print_error=False)
    plain = [word for word in found[0] if word != "--json"]
    app.parse_args([*plain, "--json"], exit_on_error=False, print_error=False)


def test_help_shows_the_examples_and_every_noun(run: Run) -> None:
    shown = run("tail", "--help", servers="nowhere").out
    assert len(examples(shown)) == len(examples(tail.__doc__ or "")) > 2
    front = run("--help", servers="nowhere").out
    for words in ALL:
        assert words[0] in front


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_usage_names_the_arguments(run: Run, words: tuple[str, ...]) -> None:
    assert "ARGS" not in run(*words, "--help", servers="nowhere").out.splitlines()[0]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(run: Run, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    run("--install-completion", "--shell", shell, "--output", str(script), servers="nowhere")
    assert "doctor" in script.read_text()


INTEGERS = [
    pytest.param(argument, id=f"{' '.join(words)} {argument.name}")
    for words in ALL
    for argument in functools.reduce(App.__getitem__, words, app).assemble_argument_collection()
    if argument.hint in {int, int | None, tuple[int, ...]}
]


@pytest.mark.parametrize("argument", INTEGERS)
def test_a_fraction_is_refused_where_an_integer_is_meant(argument: Argument) -> None:
    # cyclopts would round it, to another partition or offset.
    with pytest.raises(ValueError, match=r"'1\.5' is not an integer"):
        argument.parameter.converter(argument.hint, [Token(value="1.5")])  # type: ignore[misc, operator]


def test_an_unknown_flag_of_publish_is_no_message(run: Run) -> None:
    for flag in ("--partion", "--nonsense", "-x"):
        assert run("publish", "orders", "x", flag, "2", servers="nowhere", code=2).out == ""
    bound = app.parse_args(["publish", "orders", "--", "--nonsense"])[1]
    assert bound.arguments["values"] == ("--nonsense",)


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_told(run: Run, flag: str) -> None:
    assert run(flag).out == f"{version('liftbridge-aio')}\n"


def test_without_a_server_it_is_said_how_to_name_one(run: Run) -> None:
    [port] = free_ports(1)
    said = run("streams", "list", servers=f"127.0.0.1:{port}", code=1).err
    assert said.startswith("error: no server answered")
    assert "--servers or LIFTBRIDGE_SERVERS name them" in said
