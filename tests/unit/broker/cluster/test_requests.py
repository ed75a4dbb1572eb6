"""Streams that are refused, by themselves or because of existing ones."""

from __future__ import annotations

import pytest

from liftbridge_aio.broker.cluster.requests import (
    MAX_PARTITIONS,
    StreamRequest,
    check_stream_request,
)
from liftbridge_aio.broker.errors import BrokerError, Code
from support.broker.pure_brokers import SingleBroker, stream


def create(broker: SingleBroker, request: StreamRequest, encryption_key_bytes: int = 0) -> None:
    check_stream_request(request, encryption_key_bytes=encryption_key_bytes)
    broker.create(request)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (stream("s", "a.>", partitions=2), "Subject is invalid"),
        (stream("s", partitions=-1), "Invalid partitions -1"),
        (stream("s", partitions=MAX_PARTITIONS + 1), f"Invalid partitions {MAX_PARTITIONS + 1}"),
        (stream("s", cleaner_interval=-1), "Invalid cleaner_interval -1"),
    ],
)
def test_what_a_real_server_does_not_survive_is_refused(request_: StreamRequest, text: str) -> None:
    broker = SingleBroker(stream("taken"))

    with pytest.raises(BrokerError) as refused:
        create(broker, request_)

    assert (refused.value.code, refused.value.text) == (Code.INVALID_ARGUMENT, text)
    assert [one.name for one in broker.me.streams] == ["taken"]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (stream("a b", "s"), "a stream name must not contain blanks"),
        (stream("a\0b", "s"), "a stream name must not contain blanks"),
        (
            stream("a..b", "s"),
            "a stream name must not have empty parts before, between or after its",
        ),
        (stream(".", "s"), "a stream name must not have empty parts before, between or after its"),
        (stream(">", "s"), "'>' is not a valid stream name"),
        (stream("ü" * 128, "s"), "a stream name may have at most 255 bytes"),
        (stream("s", "a\vb"), "a subject must not contain blanks"),
        (stream("s", "a\0b"), "a subject must not contain blanks"),
        (StreamRequest(name="s", subject="s", group="a b"), "the name of a group must not contain"),
    ],
)
def test_names_that_crash_a_real_server_are_refused(request_: StreamRequest, text: str) -> None:
    broker = SingleBroker()

    with pytest.raises(BrokerError) as refused:
        create(broker, request_)

    assert refused.value.code is Code.INVALID_ARGUMENT
    assert refused.value.text.startswith(text)
    assert not broker.me.streams


@pytest.mark.parametrize("name", ["a/b", "a*", "*", "ü", "a.b", "a.>", "x" * 255])
def test_names_that_a_real_server_survives_are_accepted(name: str) -> None:
    broker = SingleBroker()
    create(broker, StreamRequest(name=name, subject="s", group="a.*/ü>"))

    assert len(broker.send(name)) == 1


@pytest.mark.parametrize("key_bytes", [16, 32])
def test_a_proper_key_allows_encryption(key_bytes: int) -> None:
    broker = SingleBroker()

    create(broker, stream("s", encryption=True), encryption_key_bytes=key_bytes)

    assert broker.me.stream("s") is not None
