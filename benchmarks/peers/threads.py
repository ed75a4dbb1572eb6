"""The runs of a client that blocks, whichever it is."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from benchmarks.peers.measuring import (
    WARM_UP,
    CallEnded,
    Delivered,
    Outcome,
    Settings,
    Unsupported,
    Watch,
)
from benchmarks.peers.pacing import paced, stamp, stamped


class Reader(Protocol):
    """A connected client that reads."""

    def read(self, partition: int, start: str) -> Iterator[Delivered]:
        """The messages of a partition from the `earliest` or the `latest`."""


class Publisher(Protocol):
    """A connected client that publishes."""

    def publish(self, partition: int, value: bytes, policy: str) -> bool:
        """Publish one message and wait for its answer; whether that is no refusal."""


class StreamingPublisher(Publisher, Protocol):
    """A connected client that publishes without waiting for each answer."""

    def request(self, partition: int, value: bytes, policy: str) -> Any:
        """A message to publish; policies are `leader`, `all` and `none`."""

    def exchange(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Publish what comes; yields an answer to each message that asks for one."""


class ReadingPublisher(Reader, Publisher, Protocol):
    """A connected client that does both."""


class ReadingStreamingPublisher(Reader, StreamingPublisher, Protocol):
    """A connected client that does both without waiting for each answer."""


Acks: TypeAlias = tuple[list[int], int]
"""Nanoseconds to the ack of messages, and the number of refused ones."""


def consume(client: Reader, settings: Settings) -> Outcome:
    """Read all partitions at once until there are as many messages as expected."""
    received, errors = itertools.count(1), itertools.count()
    done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def read(partition: int) -> None:
        following = None
        for message in client.read(partition, "earliest"):
            if message.offset != following is not None or not message.value:
                next(errors)
            following = message.offset + 1
            if next(received) == settings.expected:
                done.put(None)
        raise CallEnded

    watch = Watch()
    for partition in range(settings.partitions):
        _in_thread(read, done, partition)
    _wait(done)
    outcome = watch.stop(settings.expected)
    outcome.errors = next(errors)
    return outcome


def _in_thread(work: Any, failed: queue.SimpleQueue[Exception | None], *arguments: int) -> None:
    """Run it until the process ends; the way in which it fails is told."""

    def run() -> None:
        try:
            work(*arguments)
        except Exception as failure:  # noqa: BLE001 - raised again by who waits
            failed.put(failure)

    threading.Thread(target=run, daemon=True).start()


def _wait(done: queue.SimpleQueue[Exception | None]) -> None:
    failure = done.get()
    if failure is not None:
        raise failure


def publish_one_by_one(client: Publisher, settings: Settings) -> Outcome:
    """Publish to all partitions in turn, each message when the one before is answered."""
    value, partitions, policy = settings.value, settings.partitions, settings.ack_policy
    for number in range(WARM_UP):
        client.publish(number % partitions, value, "leader")
    unacked, took, errors = settings.unacked, [], 0
    watch = Watch()
    for number in range(settings.messages):
        if number == unacked and policy == "none":
            policy = "leader"
        began = time.monotonic_ns()
        errors += not client.publish(number % partitions, value, policy)
        took.append(time.monotonic_ns() - began)
    outcome = watch.stop(settings.messages)
    outcome.errors = errors
    outcome.latencies["latency"] = took
    return outcome


def publish_window(client: StreamingPublisher, settings: Settings) -> Outcome:
    """Publish to all partitions in turn with a bound on the unanswered messages at a time."""
    value, partitions, unacked = settings.value, settings.partitions, settings.unacked
    acked = "leader" if unacked else settings.ack_policy
    Window(client, settings.window).publish(
        ((number % partitions, value, "leader") for number in range(WARM_UP)), WARM_UP
    )
    window = Window(client, settings.window)
    watch = Watch()
    window.publish(
        (
            (number % partitions, value, "none" if number < unacked else acked)
            for number in range(settings.messages)
        ),
        settings.messages - unacked,
    )
    outcome = watch.stop(settings.messages)
    outcome.errors = window.errors
    return outcome


class Window:
    """A bidirectional call with a bound on the messages that are unanswered at a time."""

    def __init__(self, client: StreamingPublisher, size: int) -> None:
        self.errors = 0
        self._client = client
        self._room = threading.Semaphore(size)
        self._all_answered = threading.Event()

    def publish(self, messages: Iterable[tuple[int, bytes, str]], answers: int) -> None:
        """Publish, and return with the last of so many answers.

        The end of the call is not waited for: the server sometimes takes 5 seconds for it.
        """
        release, remaining = self._room.release, answers
        for answer in self._client.exchange(self._requests(messages)):
            self.errors += answer.HasField("asyncError")
            release()
            remaining -= 1
            if not remaining:
                self._all_answered.set()
                return
        raise CallEnded

    def _requests(self, messages: Iterable[tuple[int, bytes, str]]) -> Iterator[Any]:
        request, acquire = self._client.request, self._room.acquire
        for partition, value, policy in messages:
            if policy != "none":
                acquire()
            yield request(partition, value, policy)
        # The call ends with this.
        self._all_answered.wait()


def latency_one_by_one(client: ReadingPublisher, settings: Settings) -> Outcome:
    """Publish at a fixed rate, each message when the one before is answered, while it is read."""

    def publish() -> Acks:
        acked, errors = [], 0
        for due in paced(settings.rate, settings.due):
            errors += not client.publish(0, stamped(due, settings.message_size), "leader")
            acked.append(time.monotonic_ns() - due)
        return acked, errors

    return _latency(client, settings, publish)


def latency(client: ReadingStreamingPublisher, settings: Settings) -> Outcome:
    """Publish at a fixed rate, however long answers take, while the same partition is read."""
    unanswered: deque[int] = deque()
    all_answered = threading.Event()
    too_slow: list[Unsupported] = []

    def requests() -> Iterator[Any]:
        try:
            for due in paced(settings.rate, settings.due):
                unanswered.append(due)
                yield client.request(0, stamped(due, settings.message_size), "leader")
        except Unsupported as reason:
            # The library that asks for requests would swallow it.
            too_slow.append(reason)
        else:
            all_answered.wait()

    def publish() -> Acks:
        acked: list[int] = []
        errors = 0
        for answer in client.exchange(requests()):
            # One partition answers in order.
            acked.append(time.monotonic_ns() - unanswered.popleft())
            errors += answer.HasField("asyncError")
            if len(acked) == settings.due:
                all_answered.set()
                return acked, errors
        raise too_slow[0] if too_slow else CallEnded

    return _latency(client, settings, publish)


def _latency(client: ReadingPublisher, settings: Settings, publish: Callable[[], Acks]) -> Outcome:
    for _ in range(WARM_UP):
        client.publish(0, stamped(0, settings.message_size), "leader")
    delivered: list[int] = []
    reading: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def read(partition: int) -> None:
        # The last message of the warm-up says that the subscription stands.
        for message in client.read(partition, "latest"):
            now = time.monotonic_ns()
            if due := stamp(message.value):
                delivered.append(now - due)
            if not due or len(delivered) == settings.due:
                reading.put(None)
        raise CallEnded

    _in_thread(read, reading, 0)
    _wait(reading)
    watch = Watch()
    acked, errors = publish()
    _wait(reading)
    outcome = watch.stop(settings.due)
    outcome.errors = errors
    outcome.latencies = {
        "latency": delivered,
        "ack_latency": acked,
        "delivery_latency": delivered,
    }
    return outcome
