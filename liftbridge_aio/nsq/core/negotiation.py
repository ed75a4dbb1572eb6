"""The features on which a client and an nsqd agree at IDENTIFY. Pure."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Any, Final

from liftbridge_aio.nsq.errors import ProtocolError
from liftbridge_aio.nsq.options import ConnectionOptions
from liftbridge_aio.options import Duration, seconds

from .protocol import OK

_MAX_RDY: Final = 2500
"""Limit of nsqd if it does not say ("Building Client Libraries", Producer Max RDY Count)."""


class Upgrade(enum.Enum):
    """A layer below the frames, confirmed by an OK inside it."""

    TLS = "tls"
    DEFLATE = "deflate"
    SNAPPY = "snappy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The features that nsqd has granted; durations in seconds."""

    version: str = ""
    max_rdy: int = _MAX_RDY
    msg_timeout: float | None = None
    """After that long without an answer, a message is delivered again."""
    tls: bool = False
    deflate: bool = False
    snappy: bool = False
    auth_required: bool = False

    @property
    def upgrades(self) -> list[Upgrade]:
        """The upgrades that follow, in order."""
        granted = {
            Upgrade.TLS: self.tls,
            Upgrade.SNAPPY: self.snappy,
            Upgrade.DEFLATE: self.deflate,
        }
        return [upgrade for upgrade, is_granted in granted.items() if is_granted]


def settings(options: ConnectionOptions, hostname: str) -> bytes:
    """Encode the settings of IDENTIFY: in JSON, durations in milliseconds."""
    wanted: dict[str, Any] = {
        "client_id": options.client_id or hostname.partition(".")[0],
        "hostname": hostname,
        "user_agent": options.user_agent,
        "feature_negotiation": True,
        "heartbeat_interval": _milliseconds(options.heartbeat_interval),
        "tls_v1": options.tls is not None,
        "deflate": bool(options.deflate_level),
        "snappy": options.snappy,
    }
    if options.deflate_level:
        wanted["deflate_level"] = options.deflate_level
    if options.output_buffer_bytes is not None:
        wanted["output_buffer_size"] = options.output_buffer_bytes or -1
    if options.output_buffer_timeout is not None:
        wanted["output_buffer_timeout"] = _milliseconds(options.output_buffer_timeout) or -1
    if options.sample_rate:
        wanted["sample_rate"] = options.sample_rate
    if options.msg_timeout is not None:
        wanted["msg_timeout"] = _milliseconds(options.msg_timeout)
    return json.dumps(wanted).encode()


def parse_granted(answer: bytes) -> Granted:
    """Parse the answer to IDENTIFY.

    Raises:
        ProtocolError: it is not an nsqd's.
    """
    if answer == OK:  # an nsqd that does not negotiate
        return Granted()
    try:
        found = json.loads(answer)
        return Granted(
            version=str(found.get("version", "")),
            max_rdy=int(found.get("max_rdy_count", _MAX_RDY)),
            msg_timeout=int(found["msg_timeout"]) / 1000 if found.get("msg_timeout") else None,
            tls=bool(found.get("tls_v1")),
            deflate=bool(found.get("deflate")),
            snappy=bool(found.get("snappy")),
            auth_required=bool(found.get("auth_required")),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise ProtocolError(f"the answer to IDENTIFY is {answer[:64]!r}") from error


def _milliseconds(duration: Duration) -> int:
    return round(seconds(duration) * 1000)
