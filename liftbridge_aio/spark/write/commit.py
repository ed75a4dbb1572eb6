"""Commit a batch, from the thread in which Spark asks for it, in any process of the driver."""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

from liftbridge_aio._client.client import Client
from liftbridge_aio.errors import (
    ConnectionFailed,
    LiftbridgeError,
    NoMetadataLeader,
    NotPartitionLeader,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
    TLSFailed,
)
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.connection import connection_to
from liftbridge_aio.spark.core.decision import Decision
from liftbridge_aio.spark.core.options import WriteOptions
from liftbridge_aio.spark.errors import NEW_QUERY_HINT, CommitFailed, SparkSourceError
from liftbridge_aio.spark.read.log_ends import log_states
from liftbridge_aio.transactions.errors import CommitInDoubt, ProducerFenced

from .decisions import Decisions

_RETRY_INTERVAL: Final = 0.2
"""Seconds between two attempts."""
_RETRYABLE: Final = (
    CommitInDoubt,
    ConnectionFailed,
    NoMetadataLeader,
    NotPartitionLeader,
    ProducerFenced,
    PublishNotSent,
    PublishOutcomeUnknown,
    RequestTimeout,
)
"""Errors after which the batch is committed again, which changes nothing that is done."""

_open: WeakKeyDictionary[Client, dict[tuple[str, UUID], Decisions]] = WeakKeyDictionary()
"""The decisions of the queries of this process: each commit would have to claim them anew."""


def commit_batch(
    options: WriteOptions, wanted: Decision, decision_stream: str | None, again: str
) -> Decision:
    """Make the rows of a batch visible, those of the same attempts however often it is called.

    Blocks the calling thread. While servers are unreachable it retries for publishTimeout seconds.

    Args:
        options: of the write.
        wanted: what is committed unless it was decided before.
        decision_stream: where the decision is stored. None: nobody will commit the batch again, so
            there is none.
        again: what to do after a failure.

    Returns:
        What is committed: another decision if an earlier run of the batch had decided.

    Raises:
        BatchSuperseded: a later batch is decided, and this one never was.
        CommitFailed: it is not committed, or not in all partitions.
    """
    limit = options.publish_timeout
    deadline = time.monotonic() + limit

    async def commit(client: Client) -> Decision:
        return await _commit(client, wanted, decision_stream)

    while True:
        left = max(deadline - time.monotonic(), 0)
        try:
            return connection_to(options.connection).run(commit, limit, left)
        except SparkSourceError:
            raise
        except LiftbridgeError as error:
            retryable = isinstance(error, _RETRYABLE) and not isinstance(error, TLSFailed)
            if not retryable or time.monotonic() + _RETRY_INTERVAL >= deadline:
                text = f"{wanted} is not committed, or not in all partitions: {error.message}"
                failed = CommitFailed(text, stream=error.stream, partition=error.partition)
                failed.hint = again
                raise failed from error
        time.sleep(_RETRY_INTERVAL)


async def _commit(client: Client, wanted: Decision, decision_stream: str | None) -> Decision:
    decided = wanted
    if decision_stream is not None:
        decided = await _decide(client, wanted, decision_stream)
    if decided is not wanted:
        await _check_streams(client, decided)
    async with client.producer() as producer:
        await producer.append_intents(decided.intents())
    return decided


async def _decide(client: Client, wanted: Decision, stream: str) -> Decision:
    mine = _open.setdefault(client, {})
    # Taken out meanwhile: after an error or a cancellation the log is claimed anew.
    decisions = mine.pop((stream, wanted.query), None)
    if decisions is None or decisions.passed(wanted):
        decisions = await Decisions.open(client, stream, wanted)
    decided = await decisions.decide(wanted)
    mine[stream, wanted.query] = decisions
    return decided


async def _check_streams(client: Client, decided: Decision) -> None:
    """Refuse to commit rows of streams that were created again since it was decided.

    Raises:
        CommitFailed: a stream ends before such a row.
    """
    begins = [begin for rows in decided.rows for begin in rows.begins]
    places = {StreamPartition(stream, partition) for stream, partition, _ in begins}
    states = await log_states(client, places)
    for stream, partition, begin in begins:
        if begin >= states[StreamPartition(stream, partition)].reach:
            text = f"{decided} has a row that its stream no longer has; was it created again?"
            failed = CommitFailed(text, stream=stream, partition=partition, offset=begin)
            failed.hint = NEW_QUERY_HINT
            raise failed
