"""Uses the package as it is installed from a wheel: the client, the embedded broker and commands.

A program for `nox -s wheel`, run with ``python -I`` so that only what is installed is found.
"""

from __future__ import annotations

import asyncio
import json
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import liftbridge_aio
from liftbridge_aio import Client
from liftbridge_aio.broker import EmbeddedBroker

COMMAND = Path(sysconfig.get_path("scripts"), "liftbridge-aio")


async def command(*words: str) -> Any:
    """Run a command of the package and return the JSON that it writes."""
    process = await asyncio.create_subprocess_exec(
        COMMAND, *words, "--json", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, words
    return json.loads(output)


async def main() -> None:
    """Publish with the client what the commands read, and the other way round."""
    async with EmbeddedBroker() as broker, Client(broker.address) as client:
        await command("streams", "create", "orders", "--servers", broker.address)
        await client.publish("orders", b"by the client")
        await command("publish", "orders", "by a command", "--servers", broker.address)
        messages = [each async for each in client.read("orders")]
        assert [each.value for each in messages] == [b"by the client", b"by a command"]
        assert "orders" in json.dumps(await command("metadata", "--servers", broker.address))


if __name__ == "__main__":
    installed = Path(liftbridge_aio.__file__).parent
    assert installed.is_relative_to(sysconfig.get_path("purelib")), installed
    assert (installed / "py.typed").exists()
    assert find_spec("pyspark") is None
    asyncio.run(main())
