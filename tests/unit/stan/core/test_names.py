from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.stan.core.names import (
    channel_problem,
    client_id_problem,
    durable_problem,
    reply_problem,
)


@pytest.mark.parametrize("name", ["a", "A-1_b", "0"])
def test_good_ids(name: str) -> None:
    assert client_id_problem(name) is None


@pytest.mark.parametrize("name", ["", "a.b", "a b", "é", "a\n"])
def test_bad_ids(name: str) -> None:
    assert client_id_problem(name)


@pytest.mark.parametrize("name", ["a", "a.b", "ä.ß", "a\\b", "a-b_c:d", "a$1"])
def test_good_channels(name: str) -> None:
    assert channel_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty parts"),
        (".", "empty parts"),
        ("a.", "empty parts"),
        ("a..b", "empty parts"),
        ("a.*", r"'\*'"),
        (">", "'>'"),
        ("a/b", "'/'"),
        ("a b", "blanks"),
        ("a\r\nPUB x", "blanks"),
        ("a\x00", "control"),
    ],
)
def test_bad_channels(name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        raise ValueError(channel_problem(name))


@given(st.text())
def test_a_good_channel_is_one_word_on_the_wire_of_nats(name: str) -> None:
    if channel_problem(name) is None:
        assert name.split() == [name]
        assert not set("\r\n\t \0") & set(name)
    if reply_problem(name) is None:
        assert name.split() == [name]


def test_durables() -> None:
    assert durable_problem("a:b", "") is None
    assert durable_problem("a", "b:c") is None
    assert durable_problem("a:b", "c")
