from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.subscriptions import (
    Answer,
    Subscription,
    SubscriptionRefused,
    checked_webhook,
    parse_answer,
    parse_subscription,
)

TAILS = {"events/a": "5", "events/b": "7", "other": "9"}
PULL = {"type": "pull-wake", "pattern": "events/*", "wake_stream": "wake"}


def subscription(**fields: Any) -> Subscription:
    return parse_subscription("s", json.dumps(PULL | fields).encode())


def woken(now: float = 0.0) -> Subscription:
    return subscription().linked(TAILS).woken("w", "token", TAILS, now)


@contextmanager
def refused(code: str) -> Iterator[None]:
    """Expect an error with this code."""
    with pytest.raises(SubscriptionRefused) as raised:
        yield
    assert raised.value.code == code


@example("a/**", "a/./a")
@given(
    st.lists(st.sampled_from(["*", "**", "a", ".", "/"]), min_size=1, max_size=8).map("".join),
    st.lists(st.sampled_from("a./"), max_size=10).map("".join),
)
def test_patterns_match_as_regular_expressions_do(pattern: str, path: str) -> None:
    same = "".join(
        {"**": ".*", "*": "[^/]*"}.get(each, re.escape(each))
        for each in re.findall(r"\*\*|.", pattern)
    )
    found = subscription(pattern=pattern).matches(path)
    assert found == (re.fullmatch(same, path) is not None)


def test_a_pattern_of_many_wildcards_takes_no_longer() -> None:
    assert not subscription(pattern="*a" * 16 + "b").matches("a" * 20_000)
    with pytest.raises(SubscriptionRefused, match="at most 16"):
        subscription(pattern="*a" * 17)


def test_streams_that_come_later_are_pending_from_their_begin() -> None:
    known = subscription().linked(["events/a"], TAILS)
    assert known.pending(TAILS) == []
    assert known.linked(TAILS).pending(TAILS) == ["events/b"]


def test_a_wake_is_answered_once_by_whom_it_was_given_to() -> None:
    wake = woken()
    answer = Answer("w", 1, (("events/a", "5"), ("events/b", "7")), done=True)
    with refused("TOKEN_INVALID"):
        wake.check(answer, "another", 1.0)
    wake.check(answer, "token", 1.0)
    finished = wake.answered(answer, TAILS, 1.0)
    assert finished.pending(TAILS) == []
    with refused("FENCED"):
        finished.check(answer, "token", 1.0)
    with refused("FENCED"):
        wake.check(answer._replace(generation=2), "token", 1.0)


def test_a_wake_ends_with_its_lease() -> None:
    wake = woken(100.0)
    assert wake.is_open(129.9)
    assert not wake.is_open(130.0)
    with refused("FENCED"):
        wake.check(Answer("w", 1, (), done=False), "token", 130.0)
    again = wake.woken("x", None, TAILS, 130.0)
    assert (again.generation, again.failures) == (2, 1)
    assert again.is_open(130.0 + 59.0)  # each wake that nobody takes lasts twice as long


def test_an_answer_prolongs_the_lease_and_never_takes_acks_back() -> None:
    wake = woken(0.0)
    first = wake.answered(Answer("w", 1, (("events/a", "4"),), done=False), TAILS, 20.0)
    assert first.is_open(49.0)
    second = first.answered(Answer("w", 1, (("events/a", "2"),), done=False), TAILS, 20.0)
    assert second.links["events/a"].acked == "4"


@pytest.mark.parametrize(
    ("ack", "code"), [(("events/a", "6"), "INVALID_OFFSET"), (("other", "1"), "INVALID_REQUEST")]
)
def test_acks_beyond_what_is_there_are_refused(ack: tuple[str, str], code: str) -> None:
    with refused(code):
        woken().answered(Answer("w", 1, (ack,), done=False), TAILS, 1.0)


def test_a_wake_that_fails_is_tried_later_and_later() -> None:
    found, waits = subscription().linked(TAILS), []
    for _ in range(4):
        found = found.woken("w", "t", TAILS, 0.0).failed(0.0)
        waits.append(found.not_before)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert found.woken("w", "t", TAILS, 0.0).done().failures == 0


def test_what_came_after_the_wake_is_not_acknowledged_with_it() -> None:
    done = woken().done()
    assert done.pending(TAILS) == []
    assert done.pending(TAILS | {"events/a": "6"}) == ["events/a"]


def test_a_stream_that_is_named_and_matched_stays_when_it_is_removed() -> None:
    found = subscription().naming(["events/a", "other"], TAILS)
    assert set(found.without("other").links) == {"events/a"}
    assert found.without("events/a").links["events/a"].explicit is False


@given(st.data())
def test_what_is_registered_is_read_back(data: st.DataObject) -> None:
    found = woken() if data.draw(st.booleans()) else subscription(description="x", streams=["a"])
    assert Subscription.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "url",
    [
        *("http://10.0.0.1/hook", "https://10.0.0.1/hook", "https://169.254.169.254/latest"),
        *("https://[::1]/hook", "https://[fd00::1]/hook", "https://127.0.0.1/hook"),
        *("https://localhost/hook", "http://shop.example/hook", "ftp://shop.example/hook"),
        *("https://user@shop.example/hook", "https:///hook"),
        *("https://shop.example:port/hook", ""),
    ],
)
def test_webhooks_of_private_hosts_are_refused(url: str) -> None:
    with refused("WEBHOOK_URL_REJECTED"):
        checked_webhook(url)


@pytest.mark.parametrize(
    "url",
    ["https://shop.example/hook", "https://8.8.8.8/", "http://127.0.0.1:8/", "http://localhost/"],
)
def test_webhooks_of_public_hosts_and_of_this_machine_are_taken(url: str) -> None:
    assert checked_webhook(url) == url


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "push"},
        {"lease_ttl_ms": 999},
        {"lease_ttl_ms": 600_001},
        {"lease_ttl_ms": True},
        {"lease_ttl_ms": 1000.5},
        {"pattern": None},
        {"pattern": 7},
        {"wake_stream": None},
        {"streams": "events/a"},
        {"streams": [7]},
        {"type": "webhook"},
        {"type": "webhook", "webhook": "https://shop.example"},
        {"description": []},
    ],
)
def test_subscriptions_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with refused("INVALID_REQUEST"):
        subscription(**fields)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b"{}",
        b'{"wake_id": 1, "generation": 1}',
        b'{"wake_id": "w", "generation": "1"}',
        b'{"wake_id": "w", "generation": 1, "acks": {}}',
        b'{"wake_id": "w", "generation": 1, "acks": [{"stream": "a"}]}',
    ],
)
def test_answers_that_make_no_sense_are_refused(body: bytes) -> None:
    with refused("INVALID_REQUEST"):
        parse_answer(body)
