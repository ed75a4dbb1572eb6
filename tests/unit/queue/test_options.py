"""`QueueOptions` are one value for many queues and processes."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from liftbridge_aio.queue import DeadLetter, Exponential, Probing, QueueOptions, RetryStreams


def test_options_reach_another_process_as_they_are() -> None:
    options = QueueOptions(
        retry=Exponential(1, max=60),
        dead_letter=DeadLetter("orders.dead"),
        retry_streams=RetryStreams((60, 600)),
        backoff=Probing(max=10),
        nats=["nats://127.0.0.1:4222"],
    )
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own


def test_shared_options_do_not_change() -> None:
    servers = ["nats://127.0.0.1:4222"]
    options = QueueOptions(nats=servers)
    servers.append("nats://127.0.0.1:4223")
    assert options.nats == ("nats://127.0.0.1:4222",)
    with pytest.raises(FrozenInstanceError):
        options.ack_wait = 1.0  # type: ignore[misc]
