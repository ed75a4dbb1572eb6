"""What is asked of nsqd at IDENTIFY, and what its answer means."""

from __future__ import annotations

import json
import ssl
from typing import Any

import pytest

from liftbridge_aio.nsq import ConnectionOptions
from liftbridge_aio.nsq.core.negotiation import Granted, Upgrade, parse_granted, settings
from liftbridge_aio.nsq.errors import ProtocolError


def asked(**options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(settings(ConnectionOptions(**options), "web1.example.com"))
    return found


def test_the_defaults() -> None:
    assert asked() == {
        "client_id": "web1",
        "hostname": "web1.example.com",
        "user_agent": "liftbridge-aio",
        "feature_negotiation": True,
        "heartbeat_interval": 30_000,
        "tls_v1": False,
        "deflate": False,
        "snappy": False,
    }


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"client_id": "w1"}, {"client_id": "w1"}),
        ({"tls": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}, {"tls_v1": True}),
        ({"deflate_level": 3}, {"deflate": True, "deflate_level": 3}),
        ({"snappy": True}, {"snappy": True}),
        ({"output_buffer_bytes": 0}, {"output_buffer_size": -1}),
        ({"output_buffer_bytes": 64}, {"output_buffer_size": 64}),
        ({"output_buffer_timeout": 0}, {"output_buffer_timeout": -1}),
        ({"output_buffer_timeout": 0.025}, {"output_buffer_timeout": 25}),
        ({"sample_rate": 10}, {"sample_rate": 10}),
        ({"msg_timeout": 1.5}, {"msg_timeout": 1500}),
        ({"heartbeat_interval": 1}, {"heartbeat_interval": 1000}),
    ],
)
def test_each_option_is_asked_for(options: dict[str, Any], found: dict[str, Any]) -> None:
    assert found.items() <= asked(**options).items()


def test_what_nsqd_grants() -> None:
    answer = {
        "max_rdy_count": 100,
        "version": "1.3.0",
        "msg_timeout": 60_000,
        "tls_v1": True,
        "deflate": True,
        "snappy": False,
        "auth_required": True,
    }
    granted = parse_granted(json.dumps(answer).encode())
    assert granted == Granted(
        version="1.3.0",
        max_rdy=100,
        msg_timeout=60.0,
        tls=True,
        deflate=True,
        auth_required=True,
    )
    assert granted.upgrades == [Upgrade.TLS, Upgrade.DEFLATE]


def test_an_nsqd_that_does_not_negotiate_grants_2500() -> None:
    assert parse_granted(b"OK") == Granted(max_rdy=2500)


@pytest.mark.parametrize("answer", [b"", b"KO", b"[]", b'{"max_rdy_count": "many"}', b"\xff"])
def test_other_answers_are_refused(answer: bytes) -> None:
    with pytest.raises(ProtocolError, match="IDENTIFY"):
        parse_granted(answer)
