"""NATS subjects: validity, matching, queue groups."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.cluster.subjects import (
    SubjectTable,
    is_subscribable,
    is_valid_subject,
    partition_subject,
    subject_matches,
)

TOKENS = st.sampled_from(["a", "b", "1"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, *rest]),
    st.lists(st.one_of(TOKENS, st.just("*")), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)


def as_regex(pattern: str) -> str:
    """An independent implementation of the rules."""
    escaped = re.escape(pattern).replace(r"\*", "[^.]+")
    return re.sub(r"(^|\\\.)>$", r"\1.+", escaped)


@given(PATTERNS, SUBJECTS)
def test_patterns_match_by_the_rules_of_nats(pattern: str, subject: str) -> None:
    assert subject_matches(pattern, subject) == bool(re.fullmatch(as_regex(pattern), subject))


@pytest.mark.parametrize(
    ("pattern", "subject", "covered"),
    [
        ("foo", "foo", True),
        ("foo", "foo.1", False),
        ("foo.*", "foo.1", True),
        ("foo.*", "foo", False),
        ("foo.*", "foo.1.2", False),
        ("foo.>", "foo", False),
        ("foo.>", "foo.1.2", True),
        (">", "foo.1", True),
        ("foo.>.1", "foo.x.1", False),  # NATS has no such subscription
        ("fo*", "foo", False),  # a wildcard is a whole token
        ("foo.*", "foo.*", True),  # in a published subject wildcards are plain tokens
    ],
)
def test_known_pairs(pattern: str, subject: str, covered: bool) -> None:
    assert subject_matches(pattern, subject) is covered


@pytest.mark.parametrize(
    ("subject", "valid"),
    [("a", True), ("a.*.>", True), ("", False), (".", False), ("a..b", False), ("a b", False)],
)
def test_streams_have_valid_subjects_only(subject: str, valid: bool) -> None:
    assert is_valid_subject(subject) is valid


def test_the_rest_wildcard_must_be_last() -> None:
    assert is_subscribable("a.>")
    assert not is_subscribable(partition_subject("a.>", 1))


@given(st.lists(st.tuples(PATTERNS | SUBJECTS, st.sampled_from(["", "g", "h"]))), SUBJECTS)
def test_every_subscriber_and_one_of_each_queue_group_receive_a_message(
    listeners: list[tuple[str, str]], subject: str
) -> None:
    table: SubjectTable[tuple[int, str]] = SubjectTable()
    receivers = []
    for number, (pattern, group) in enumerate(listeners):
        receiver = (number, group)
        receivers.append((receiver, pattern))
        table.add(pattern, group, receiver)

    got = table.receivers(subject, lambda members: members - 1)

    covered = [receiver for receiver, pattern in receivers if subject_matches(pattern, subject)]
    assert [one for one in got if not one[1]] == [one for one in covered if not one[1]]
    for group in ("g", "h"):
        members = [one for one in covered if one[1] == group]
        assert [one for one in got if one[1] == group] == members[-1:]
    assert got == sorted(got)


def test_a_removed_subscriber_receives_nothing() -> None:
    table: SubjectTable[object] = SubjectTable()
    stays, leaves = object(), object()
    for subject in ("a", "*"):
        table.add(subject, "", stays)
        table.add(subject, "", leaves)

    for subject in ("a", "*", "never added"):
        table.remove(subject, leaves)

    assert table.receivers("a", lambda _: 0) == [stays, stays]
