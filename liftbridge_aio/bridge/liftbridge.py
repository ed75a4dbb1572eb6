"""Liftbridge as the system at one end of a bridge, or at both."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from liftbridge_aio.errors import InvalidRequest

from .ends import Plan, Target
from .exact_target import ExactTarget
from .stream_source import StreamSource
from .streams import TLS_SCHEME
from .systems import Address, System
from .window_target import WindowTarget


def _target(plan: Plan) -> Target:
    return ExactTarget(plan) if plan.source.system.is_numbered else WindowTarget(plan)


def _check_target(address: Address) -> None:
    [stream] = address.names
    if set(stream) & set("*>"):
        raise InvalidRequest(f"a target is a stream without wildcards in its name, not {stream!r}")


LIFTBRIDGE: Final = System(
    scheme="liftbridge",
    example="liftbridge://host:9292/stream",
    identity="liftbridge/{}",
    message="the message of partition {}, offset {}",
    source=StreamSource,
    target=_target,
    check_target=_check_target,
    is_numbered=True,
    is_liftbridge=True,
)
LIFTBRIDGE_TLS: Final = replace(
    LIFTBRIDGE, scheme=TLS_SCHEME, example="liftbridge+tls://host:9292/stream?ca=ca.pem"
)
