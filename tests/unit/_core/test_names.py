"""Names that end a real server as a process are refused; names that it can bear are not."""

from __future__ import annotations

import pytest

from liftbridge_aio._core.names import group_problem, stream_name_problem, subject_problem

DEADLY_NAMES = ["", "a b", "a\tb", "a\nb", "a\0b", "a..b", ".a", "a.", "../b", ">", "ü" * 128]
DEADLY_SUBJECTS = ["", "a b", "a..b", ".a", "a.", ">.a", "a.>.b", "a\rb", ">"]


@pytest.mark.parametrize("name", DEADLY_NAMES)
def test_a_stream_name_that_ends_a_server_is_refused(name: str) -> None:
    assert stream_name_problem(name) is not None


@pytest.mark.parametrize("name", ["a", "a.b", "a/b", "a*", "ü", "a>", "x" * 255, "__cursors"])
def test_a_stream_name_that_a_server_bears_is_taken(name: str) -> None:
    assert stream_name_problem(name) is None


@pytest.mark.parametrize("subject", DEADLY_SUBJECTS)
def test_a_subject_that_harms_a_server_is_refused(subject: str) -> None:
    assert subject_problem(subject) is not None


@pytest.mark.parametrize("subject", ["a", "a.b", "a.*.b", "*", "a.>", "a>b", "ü.ß"])
def test_a_subject_with_proper_wildcards_is_taken(subject: str) -> None:
    assert subject_problem(subject) is None


@pytest.mark.parametrize(("group", "fine"), [("", True), ("workers", True), ("a b", False)])
def test_the_name_of_a_group_has_no_blanks(group: str, fine: bool) -> None:
    assert (group_problem(group) is None) is fine
