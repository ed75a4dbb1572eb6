"""Our client as a program to be measured: consume, publish or latency.

Only what `liftbridge_aio` shows to everybody is used. Beside the flags that all programs have:
`--uvloop`, `--path lane|plain`, and for reading `--api iterate|batches`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from benchmarks.peers import measuring
from benchmarks.peers.measuring import Outcome, Settings
from benchmarks.peers.ours_latency import latency
from benchmarks.peers.ours_publish import publish
from benchmarks.peers.ours_read import consume, consume_batches
from liftbridge_aio import Client, ClientOptions

Measurement = Callable[[Client, Settings], Coroutine[None, None, Outcome]]

_MANY: Final = 16_384
"""The window where none is measured: the client's own."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Variant of our client."""

    uvloop: bool
    data_lane: bool

    def run(self, measurement: Measurement, settings: Settings, window: int) -> Outcome:
        """Measure once, in an event loop and with a client of its own."""
        options = ClientOptions(max_in_flight=window, data_lane=self.data_lane)

        async def connected() -> Outcome:
            async with Client(*settings.servers, options=options) as client:
                return await measurement(client, settings)

        with asyncio.Runner(loop_factory=self._loop_factory()) as runner:
            return runner.run(connected())

    def _loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        if not self.uvloop:
            return None
        import uvloop  # noqa: PLC0415 - not everybody has it

        return uvloop.new_event_loop


def main(words: list[str] | None = None) -> None:
    """Do what the words say and print one line of JSON."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--path", choices=("lane", "plain"), default="lane")
    parser.add_argument("--api", choices=("iterate", "batches"), default="iterate")
    own, common = parser.parse_known_args(words)
    variant = Variant(own.uvloop, own.path == "lane")
    reading = consume_batches if own.api == "batches" else consume
    measuring.main(
        "ours",
        "liftbridge-aio",
        {
            "consume": lambda settings: variant.run(reading, settings, _MANY),
            "publish": lambda settings: variant.run(publish, settings, settings.window),
            "latency": lambda settings: variant.run(latency, settings, _MANY),
        },
        common,
    )


if __name__ == "__main__":
    main()
