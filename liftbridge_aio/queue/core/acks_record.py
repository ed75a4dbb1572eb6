"""The record in which the acks of a partition are stored, and its text."""

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
        owner: names the member that wrote it.
        last: the member wrote it when it released the partition, so nothing was in flight.
        snapshot: what is settled.
        acks: acks of transactions that the next owner of the partition writes.
        created: when the stream of the messages was created, as the offsets mean nothing in a
            later one of its name; 0 if an earlier version wrote the record.
    """

    group: str
    stream: str
    owner: str
    last: bool
    snapshot: Snapshot
    acks: tuple[AckIntent, ...] = ()
    created: int = 0

    def encode(self) -> bytes:
        """Return its text."""
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
        """Read the text of a record.

        Raises:
            MalformedData: it is none, or of a newer format.
        """
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
            raise MalformedData(f"these are no acks of a queue: {data[:100]!r}") from error
