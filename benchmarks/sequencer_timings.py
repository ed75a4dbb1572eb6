"""Times the pure core of transactions with pyperf; flags are those of pyperf."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pyperf

from liftbridge_aio.transactions.core.sequencer import COMMITS, Sequencer
from liftbridge_aio.transactions.core.uuid import Flags, build_uuid
from liftbridge_aio.transactions.core.visibility import AckEntry, Follower

MESSAGES: Final = 40_000
AT_A_TIME: Final = 100
"""Messages that one read brings, about."""
PRODUCERS: Final = (1, 100, 10_000)
_BASE: Final = 1 << 40
_DATA: Final = bytes(350)


def timed(function: Callable[[], object]) -> Callable[[int], float]:
    """Return a function that pyperf calls: processor time, as these take no other."""

    def run(loops: int) -> float:
        began = time.process_time()
        for _ in range(loops):
            function()
        return time.process_time() - began

    return run


def uuids_of(producers: int, flags: Flags) -> list[bytes]:
    """Return UUIDs of so many producers, in turn."""
    ids = [b"\1" + number.to_bytes(5, "big") for number in range(producers)]
    return [
        build_uuid(ids[number % producers], _BASE + 160 * number, flags)
        for number in range(MESSAGES)
    ]


def following(producers: int) -> Callable[[], object]:
    """Return what follows a log whose transactions are committed all in the end."""
    uuids = uuids_of(producers, Flags.CONTINUE)
    runs = [
        (uuids[start : start + AT_A_TIME], range(start, start + AT_A_TIME), [_DATA] * AT_A_TIME)
        for start in range(0, MESSAGES, AT_A_TIME)
    ]
    clock = _BASE + 160 * MESSAGES
    acks = [AckEntry(uuids[each][-6:], clock, each, _BASE - 1) for each in range(producers)]

    def follow() -> None:
        follower: Follower[bytes] = Follower(max_messages=MESSAGES, max_bytes=1 << 40, size_of=len)
        for run in runs:
            follower.feed_run(*run)
        for place, ack in enumerate(acks):
            follower.commit(ack, MESSAGES, place)

    return follow


def single_messages(producers: int) -> Callable[[], object]:
    """Return what follows a log of committed single messages."""
    uuids = uuids_of(producers, Flags.OUTSIDE)
    runs = [
        (uuids[start : start + AT_A_TIME], range(start, start + AT_A_TIME), [_DATA] * AT_A_TIME)
        for start in range(0, MESSAGES, AT_A_TIME)
    ]

    def follow() -> None:
        follower: Follower[bytes] = Follower(size_of=len)
        for run in runs:
            follower.feed_run(*run)

    return follow


def sequencing(producers: int) -> Callable[[], object]:
    """Return what queues the messages of such a log by Gazette's API, one by one."""
    uuids = uuids_of(producers, Flags.CONTINUE)
    clock = _BASE + 160 * MESSAGES
    uuids += [build_uuid(uuids[each][-6:], clock, Flags.ACK) for each in range(producers)]

    def sequence() -> None:
        sequencer: Sequencer[bytes] = Sequencer(max_messages=2 * MESSAGES, max_bytes=1 << 40)
        for offset, uuid in enumerate(uuids):
            outcome = sequencer.queue("journal", uuid, offset, offset + 1, _DATA, 350)
            if outcome in COMMITS:
                while sequencer.step() is not None:
                    pass

    return sequence


def main() -> None:
    """Time everything."""
    runner = pyperf.Runner()
    for producers in PRODUCERS:
        of = f"of {producers:,} producers in turn" if producers > 1 else "of one producer"
        for name, make in (
            (f"follow transactions {of}", following),
            (f"follow single messages {of}", single_messages),
            (f"queue and step through messages {of}", sequencing),
        ):
            runner.bench_time_func(name, timed(make(producers)), inner_loops=MESSAGES)


if __name__ == "__main__":
    main()
