"""The record that stores the acks of a partition, and its encoding."""

from __future__ import annotations

import json
from dataclasses import dataclass

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.transactions.core.transaction import AckIntent
from liftbridge_aio.transactions.core.visibility import AckEntry

from .ack_window import Snapshot

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class AcksRecord:
    """The messages of one partition that a member of a queue has settled.

    Attributes:
        group: the id of the group.
        stream: the stream of the messages.
        owner: identifies the writer.
        last: True if the writer released the partition with it, so nothing was in flight.
        snapshot: the settled messages.
        acks: acks of open transactions, which the next owner of the partition writes.
        created: the creation time of the message stream; offsets do not apply to a later stream of
            the same name. 0 if an earlier release wrote the record.
    """

    group: str
    stream: str
    owner: str
    last: bool
    snapshot: Snapshot
    acks: tuple[AckIntent, ...] = ()
    created: int = 0

    def encode(self) -> bytes:
        """Return the record as JSON."""
        snapshot = self.snapshot
        content = {
            "format": _FORMAT,
            "group": self.group,
            "stream": self.stream,
            "owner": self.owner,
            "last": self.last,
            "next": snapshot.next_offset,
            "unsettled": list(snapshot.unsettled.items()),
            "positions": list(snapshot.positions.items()),
            "settled": sorted(snapshot.settled),
            "leased": dict(snapshot.leased),
            "created": self.created,
            "acks": [
                [stream, partition, entry.producer.hex(), *entry[1:]]
                for stream, partition, entry in self.acks
            ],
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> AcksRecord:
        """Decode a record; raise `MalformedData` for anything else, and for a newer format."""
        try:
            content = json.loads(data)
            if content["format"] != _FORMAT:
                raise MalformedData(
                    f"the acks of a queue have format {content['format']}, not {_FORMAT}"
                )
            snapshot = Snapshot(
                int(content["next"]),
                {int(offset): int(attempts) for offset, attempts in content["unsettled"]},
                {int(offset): int(position) for offset, position in content["positions"]},
                frozenset(map(int, content["settled"])),
                {str(name): int(count) for name, count in content.get("leased", {}).items()},
            )
            return cls(
                str(content["group"]),
                str(content["stream"]),
                str(content["owner"]),
                bool(content["last"]),
                snapshot,
                tuple(
                    AckIntent(stream, partition, AckEntry(bytes.fromhex(producer), *rest))
                    for stream, partition, producer, *rest in content["acks"]
                ),
                int(content.get("created", 0)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, MalformedData):
                raise
            raise MalformedData(f"not a record of a queue's acks: {data[:100]!r}") from error
