"""Our publisher over NATS as a program to be measured: publish, and nothing else.

Beside the flags that all programs have: `--nats URL`, and `--no-reply-subject`, which leaves out
the reply subject by which NATS says that nobody listens.
"""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.peers import measuring
from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch
from liftbridge_aio import AckPolicy, LiftbridgeError
from liftbridge_aio.nats import NatsPublisher, NatsPublisherOptions


async def publish(publisher: NatsPublisher, settings: Settings) -> Outcome:
    """Publish, and wait for every ack; the publisher keeps the window."""
    await _windowed(publisher, settings, WARM_UP)
    watch = Watch()
    failed = await _windowed(publisher, settings, settings.messages)
    outcome = watch.stop(settings.messages)
    outcome.errors = int(failed)
    return outcome


async def _windowed(publisher: NatsPublisher, settings: Settings, messages: int) -> bool:
    """Publish and wait for what is on its way; whether anything failed."""
    subject, value = settings.stream, settings.value
    policy = AckPolicy[settings.ack_policy.upper()]
    for _ in range(messages):
        await publisher.submit(subject, value, ack_policy=policy)
    try:
        await publisher.flush()
    except LiftbridgeError:
        return True
    return False


def main(words: list[str] | None = None) -> None:
    """Do what the words say and print one line of JSON."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--nats", required=True)
    parser.add_argument("--no-reply-subject", action="store_true")
    own, common = parser.parse_known_args(words)

    async def connected(settings: Settings) -> Outcome:
        options = NatsPublisherOptions(
            max_in_flight=settings.window, detect_nobody=not own.no_reply_subject
        )
        async with NatsPublisher(own.nats, options=options) as publisher:
            return await publish(publisher, settings)

    measuring.main(
        "ours-nats",
        "liftbridge-aio",
        {"publish": lambda settings: asyncio.run(connected(settings))},
        common,
    )


if __name__ == "__main__":
    main()
