"""Ranking of brokers whose publish session may carry a partition.

Any broker takes a publish for any partition. A partition should keep its session though, because
order holds only within one, and all sessions should get their share. Rendezvous hashing gives
both: each broker has a rank of its own for each partition, and when a broker comes or goes, only
the partitions that rank it first move.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def choose_broker(stream: str, partition: int, broker_ids: Iterable[str]) -> list[str]:
    """Rank the brokers for a partition: the first is to be used, the others if it fails.

    The ranking depends on the arguments alone, not on the order of `broker_ids` or the process.
    """

    def weight(broker_id: str) -> tuple[bytes, str]:
        name = f"{broker_id}|{stream}|{partition}".encode()
        return blake2b(name, digest_size=8).digest(), broker_id

    return sorted(broker_ids, key=weight, reverse=True)
