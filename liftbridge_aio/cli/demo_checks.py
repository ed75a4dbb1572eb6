"""Check what the demo acked and delivered. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from liftbridge_aio.model import Ack, Message


@dataclass(frozen=True, slots=True)
class Check:
    """A statement, and if it held."""

    statement: str
    held: bool
    detail: str


def check_offsets(delivered: Mapping[int, Sequence[Message]]) -> Check:
    """Check that each partition delivered the offsets 0 to n-1, each once and in order."""
    wrong = [
        partition
        for partition, messages in delivered.items()
        if [message.offset for message in messages] != list(range(len(messages)))
    ]
    total = sum(map(len, delivered.values()))
    return Check(
        "each partition delivered the offsets 0 … n-1, each once and in order",
        not wrong,
        f"{total:,} messages" if not wrong else f"not so in partitions {wrong}",
    )


def check_acked(acked: Mapping[bytes, Ack], messages: Collection[Message]) -> Check:
    """Check that each acked message was delivered once, with partition and offset of its ack."""
    places: dict[bytes, list[tuple[int, int]]] = {}
    for message in messages:
        places.setdefault(message.value, []).append((message.partition, message.offset))
    wrong = sum(places.get(value) != [(ack.partition, ack.offset)] for value, ack in acked.items())
    return Check(
        "each acked message was delivered exactly once, where its ack says",
        not wrong,
        f"{len(acked):,} messages" if not wrong else f"not so for {wrong:,} of {len(acked):,}",
    )


def check_unknown(unknown: Collection[bytes], messages: Collection[Message]) -> Check:
    """Check that each message with unknown outcome was delivered at most once."""
    seen = Counter(message.value for message in messages)
    stored = sum(seen[value] == 1 for value in unknown)
    repeated = sum(seen[value] > 1 for value in unknown)
    return Check(
        "each message with unknown outcome was delivered at most once",
        not repeated,
        f"{len(unknown):,} messages: {stored:,} were stored, {len(unknown) - stored:,} were not"
        if not repeated
        else f"{repeated:,} of {len(unknown):,} came more than once",
    )


def check_order(published: Sequence[bytes], delivered: Mapping[int, Sequence[Message]]) -> Check:
    """Check that each partition delivered the published messages in order, and no others."""
    position = {value: number for number, value in enumerate(published)}
    strangers = 0
    disordered = []
    for partition, messages in delivered.items():
        known = [position[message.value] for message in messages if message.value in position]
        strangers += len(messages) - len(known)
        if known != sorted(known):
            disordered.append(partition)
    held = not strangers and not disordered
    return Check(
        "messages were delivered in the order of publishing, and no others",
        held,
        "" if held else f"{strangers:,} unknown messages, out of order in partitions {disordered}",
    )


def check_resumed(offset: int | None, expected: int, resumed: Sequence[int], end: int) -> Check:
    """Check that the cursor was stored, and that reading after it gave exactly the later offsets.

    Args:
        offset: of the fetched cursor.
        expected: the offset that was stored.
        resumed: the offsets that were read after it.
        end: the offset after the last one of the partition.
    """
    held = offset == expected and list(resumed) == list(range(expected + 1, end))
    return Check(
        "the cursor was stored, and reading resumed right after it",
        held,
        f"at offset {expected:,}, {len(resumed):,} messages after it"
        if held
        else f"stored {expected}, got {offset}, then {len(resumed)} messages",
    )


def check_exactly_once(published: Sequence[bytes], read: Sequence[bytes]) -> Check:
    """Check that with expected offsets and retries, each message is stored once."""
    held = list(published) == list(read)
    return Check(
        "with expected_offset and retry=, every message is stored exactly once",
        held,
        f"{len(read):,} messages"
        if held
        else f"{len(published):,} were published, {len(read):,} are stored",
    )
