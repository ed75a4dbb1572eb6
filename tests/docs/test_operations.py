"""The configuration of a server on the page about operations starts one that groups can use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from liftbridge_aio import Client, StartAt
from support.markdown import ROOT, blocks
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

PAGE: Final = ROOT / "docs" / "operations.md"


async def test_the_configuration_starts_a_server_for_groups(
    server_binary: Path, tmp_path: Path
) -> None:
    [server] = blocks(PAGE, "yaml")
    [nats] = blocks(PAGE, "text")
    listen, for_nats = map(str, free_ports(2))
    for name, block in (("liftbridge.yaml", server), ("nats.conf", nats)):
        text = block.code.replace("9292", listen).replace("4222", for_nats)
        (tmp_path / name).write_text(text)
    process = ServerProcess((server_binary, "--config", "liftbridge.yaml"), tmp_path)
    process.start()
    try:
        client = Client(f"127.0.0.1:{listen}")
        await client.wait_ready(timeout=20)
        async with client:
            await client.create_stream("orders")
            await client.publish("orders", b"1 bread")
            async with client.group("billing", ["orders"], start=StartAt.earliest()) as group:
                assert (await anext(group)).value == b"1 bread"
            assert {"__cursors", "__activity"} <= set((await client.fetch_metadata()).streams)
    finally:
        process.stop()
