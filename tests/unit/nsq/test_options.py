"""Options of the NSQ client are checked when they are created."""

from __future__ import annotations

from typing import Any

import pytest

from liftbridge_aio.errors import InvalidRequest, WrongType
from liftbridge_aio.nsq import ConsumerOptions
from liftbridge_aio.nsq.deliveries import _flow_settings


@pytest.mark.parametrize(
    "wrong",
    [
        *({"connect_timeout": 0}, {"heartbeat_interval": -1}, {"deflate_level": 10}),
        *({"deflate_level": 6, "snappy": True}, {"sample_rate": 100}, {"max_message_bytes": 0}),
        *({"output_buffer_bytes": -1}, {"msg_timeout": -1}, {"max_attempts": -1}),
        *({"requeue_delay": -1}, {"lookup_interval": 0}, {"lookup_jitter": 1.5}),
        *({"backoff_strategy": "linear"}, {"reconnect_wait": 0}, {"client_id": "\udcff"}),
        {"auth_secret": "\udcff"},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ConsumerOptions(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"tls": True}, {"snappy": 1}, {"probe_first": "yes"}, {"max_attempts": True}),
        *({"auth_secret": b"secret"}, {"client_id": 5}, {"lookup_jitter": "a lot"}),
    ],
    ids=str,
)
def test_values_of_a_wrong_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongType) as caught:
        ConsumerOptions(**wrong)
    assert "secret'" not in str(caught.value)


def test_exponential_backoff_doubles() -> None:
    settings = _flow_settings(ConsumerOptions(backoff_unit=0.5), 1)
    assert [settings.backoff(level) for level in (1, 2, 3, 7)] == [1, 2, 4, 64]


def test_full_jitter_takes_a_part_of_it() -> None:
    settings = _flow_settings(ConsumerOptions(backoff_strategy="full_jitter"), 1)
    found = [settings.backoff(3) for _ in range(100)]
    assert all(0 <= each <= 8 for each in found)
    assert len(set(found)) > 50
