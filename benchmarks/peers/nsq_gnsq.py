"""gnsq, on gevent: `python -m benchmarks.peers.nsq_gnsq consume|publish …`."""

from __future__ import annotations

import gevent.monkey

gevent.monkey.patch_all()

from typing import Any  # noqa: E402 - gevent comes first

import gevent.event  # noqa: E402
import gevent.pool  # noqa: E402
import gnsq  # noqa: E402

from benchmarks.peers.measuring import WARM_UP, Outcome, Settings, Watch, main  # noqa: E402
from benchmarks.peers.nsq_consumer import CHANNEL, MAX_IN_FLIGHT  # noqa: E402


def publish(settings: Settings) -> Outcome:
    """Publish by as many greenlets as the window has room for."""
    producer = gnsq.Producer(list(settings.servers))
    producer.start()
    _publish(producer, settings, WARM_UP)
    watch = Watch()
    _publish(producer, settings, settings.messages)
    return watch.stop(settings.messages)


def _publish(producer: Any, settings: Settings, messages: int) -> None:
    left = messages

    def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            producer.publish(settings.stream, settings.value)

    pool = gevent.pool.Group()
    for _ in range(min(settings.window, messages)):
        pool.spawn(work)
    pool.join()


def consume(settings: Settings) -> Outcome:
    """Consume and finish."""
    received = 0
    done = gevent.event.Event()
    consumer = gnsq.Consumer(
        settings.stream, CHANNEL, list(settings.servers), max_in_flight=MAX_IN_FLIGHT
    )

    @consumer.on_message.connect  # type: ignore[untyped-decorator]
    def handle(*_: Any, **__: Any) -> None:
        nonlocal received
        received += 1
        if received == settings.expected:
            done.set()

    watch = Watch()
    consumer.start(block=False)
    done.wait()
    return watch.stop(settings.expected)


if __name__ == "__main__":
    main("gnsq", "gnsq", {"consume": consume, "publish": publish})
