"""Append to a ledger whose entries must be neither lost nor doubled.

With optimistic concurrency control the log stores an entry only at the offset that it expects, so
an entry may be sent again after an unknown outcome, and of two writers only one wins.
"""

from __future__ import annotations

import asyncio

from liftbridge_aio import Client, IncorrectOffset, Retry, StreamOptions

STREAM = "ledger"


async def append(client: Client, entry: bytes) -> int:
    """Append an entry behind whatever is there, and return its offset."""
    while True:
        state = await client.fetch_partition_metadata(STREAM, 0)
        offset = state.newest_offset + 1
        try:
            await client.publish(STREAM, entry, expected_offset=offset, retry=Retry(attempts=5))
        except IncorrectOffset:
            continue  # another writer was faster: look again
        return offset


async def main() -> None:
    """Append from three writers at once, and read what was stored."""
    async with Client.from_env() as client:
        options = StreamOptions(optimistic_concurrency_control=True)
        await client.create_stream(STREAM, options=options, exist_ok=True)
        offsets = await asyncio.gather(
            *(append(client, b"entry of writer %d" % writer) for writer in range(3))
        )
        print("stored at", sorted(offsets))
        async for message in client.read(STREAM):
            print(message.offset, message.value.decode())


asyncio.run(main())
