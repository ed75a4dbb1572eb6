"""The size of a message in a real server's segment file, equal to that of our records."""

from __future__ import annotations

from liftbridge_aio.broker.storage.core.record import record_size
from liftbridge_aio.model import Message
from support.raw import Wire
from support.servers.node import LiftbridgeNode


async def test_a_record_is_as_long_as_on_the_real_server(
    real_server: LiftbridgeNode, real_wire: Wire, stream_name: str
) -> None:
    await real_wire.create(stream_name, subject=stream_name)
    await real_wire.publish(stream_name, b"", b"value", b"x" * 300)
    await real_wire.publish(stream_name, b"value", key=b"key", headers={"näme": b"1", "b": b""})

    stored = await real_wire.read(stream_name)

    (segment,) = real_server.folder.glob(f"data/streams/{stream_name}/0/*.log")
    assert len(stored) == 4
    assert segment.stat().st_size == sum(
        record_size(Message("", 0, 0, one.key, one.value, 0, one.headers)) for one in stored
    )
    await real_wire.delete(stream_name)
