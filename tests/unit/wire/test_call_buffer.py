"""A buffered call is read whole, with credit for what was read, and held in one piece."""

from __future__ import annotations

import asyncio
import tracemalloc
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.wire.call_buffer import CallBuffer


class Credit:
    """Data that a buffer returned."""

    def __init__(self) -> None:
        self.given = 0
        self.buffer = CallBuffer(self._give)

    def _give(self, size: int) -> None:
        assert size > 0
        self.given += size


@given(
    frames=st.lists(st.tuples(st.binary(max_size=5), st.integers(0, 3)), max_size=20),
    sizes=st.lists(st.integers(0, 8), max_size=20),
    before=st.integers(0, 20),
)
def test_bytes_come_in_order_and_credit_goes_back(
    frames: list[tuple[bytes, int]], sizes: list[int], before: int
) -> None:
    """Padding spends credit, too."""
    sent = b"".join(data for data, _ in frames)
    wanted = [size for size, end in zip(sizes, accumulate(sizes), strict=True) if end <= len(sent)]

    async def scene() -> None:
        credit = Credit()
        buffer = credit.buffer
        for data, padding in frames[:before]:
            buffer.add(data, len(data) + padding)
        if sum(len(data) for data, _ in frames[:before]):
            # Nobody has read: only padding that came alone is given back.
            alone = sum(padding for data, padding in frames[:before] if not data)
            assert credit.given == alone
        reading = asyncio.create_task(read_all(buffer, wanted))
        for data, padding in frames[before:]:
            await asyncio.sleep(0)
            buffer.add(data, len(data) + padding)
        async with asyncio.timeout(5):
            assert await reading == sent[: sum(wanted)]
        unread = len(sent) - sum(wanted)
        spent = sum(len(data) + padding for data, padding in frames)
        assert credit.given + buffer.unacked_size() == spent
        assert credit.given <= spent
        assert buffer.unacked_size() == 0
        buffer.eof()
        assert await buffer.read(unread) == sent[sum(wanted) :]
        assert await buffer.read(1) == b""

    asyncio.run(scene())


async def read_all(buffer: CallBuffer, sizes: list[int]) -> bytes:
    return b"".join([await buffer.read(size) for size in sizes])


async def test_what_is_unread_holds_the_peer_back() -> None:
    credit = Credit()
    credit.buffer.add(bytes(50_000), 50_000)
    await credit.buffer.read(20_000)
    assert credit.given == 20_000
    await credit.buffer.read(5)  # is not worth a word
    assert credit.given == 20_000
    await credit.buffer.read(29_995)
    assert credit.given == 50_000
    assert credit.buffer.unacked_size() == 0


async def test_a_message_may_be_larger_than_what_the_peer_may_send_at_once() -> None:
    credit = Credit()
    reading = asyncio.create_task(credit.buffer.read(100))
    for sent in range(10, 101, 10):
        credit.buffer.add(bytes(10), 10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert credit.given == sent
    assert await reading == bytes(100)


async def test_an_end_within_bytes_that_are_waited_for() -> None:
    credit = Credit()
    credit.buffer.add(b"abc", 3)
    reading = asyncio.create_task(credit.buffer.read(5))
    await asyncio.sleep(0)
    credit.buffer.eof()
    with pytest.raises(AssertionError, match="2 of 5 bytes are missing"):
        await reading


async def test_a_cancelled_read_loses_nothing() -> None:
    credit = Credit()
    credit.buffer.add(b"abc", 3)
    reading = asyncio.create_task(credit.buffer.read(5))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    credit.buffer.add(b"de", 2)
    assert await credit.buffer.read(5) == b"abcde"


async def test_frames_of_a_byte_and_of_padding_alone_take_no_room() -> None:
    credit = Credit()
    reading = asyncio.create_task(credit.buffer.read(2**20))
    await asyncio.sleep(0)
    tracemalloc.start()
    try:
        for _ in range(50_000):
            credit.buffer.add(b"x", 1)
            credit.buffer.add(b"", 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        reading.cancel()
    assert peak < 2**18
    assert credit.given == 50_000
