"""python-liftbridge: `python -m benchmarks.peers.python_liftbridge consume|publish|latency …`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from python_liftbridge import Lift, Message, Stream

from benchmarks.peers.measuring import Delivered, Outcome, Settings, Unsupported, main
from benchmarks.peers.threads import consume, latency_one_by_one, publish_one_by_one

ACK_TIMEOUT: Final = 5.0


class Client:
    """The client as its README shows it, with the one thing added that acks need."""

    def __init__(self, settings: Settings) -> None:
        self._stream = settings.stream
        self._lift: Any = Lift(ip_address=settings.servers[0])
        # A server waits for the ack of a call with a deadline only, and the client sets none.
        self._lift.stub.Publish = partial(self._lift.stub.Publish, timeout=ACK_TIMEOUT)

    def publish(self, partition: int, value: bytes, policy: str) -> bool:
        """Publish one message and wait for its answer."""
        message = Message(value=value.decode(), stream=self._stream, partition=partition)
        answer = self._lift.publish(getattr(message, f"ack_policy_{policy}")())
        # Errors of the call are printed by the client, which then returns nothing.
        return answer is not None and (policy == "none" or answer.HasField("ack"))

    def read(self, partition: int, start: str) -> Iterator[Delivered]:
        """The messages of a partition."""
        if partition:
            raise Unsupported("python-liftbridge subscribes to partition 0 only")
        stream = Stream(subject=self._stream, name=self._stream)
        stream = getattr(stream, f"start_at_{start}_received")()
        # The first is empty and says that the subscription stands.
        return islice(self._lift.subscribe(stream), 1, None)


def publish(settings: Settings) -> Outcome:
    """Publish one at a time, which is all that the client can."""
    if settings.window > 1 and settings.ack_policy != "none":
        raise Unsupported("python-liftbridge publishes one at a time")
    return publish_one_by_one(Client(settings), settings)


if __name__ == "__main__":
    main(
        "python-liftbridge",
        "python-liftbridge",
        {
            "consume": lambda settings: consume(Client(settings), settings),
            "publish": publish,
            "latency": lambda settings: latency_one_by_one(Client(settings), settings),
        },
    )
