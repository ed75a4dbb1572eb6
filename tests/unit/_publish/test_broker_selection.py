from __future__ import annotations

import subprocess
import sys
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._publish.broker_selection import choose_broker

brokers = st.lists(st.text(max_size=8), unique=True, max_size=6)
partitions = st.integers(0, 2**31 - 1)


@given(st.text(), partitions, brokers, st.randoms(use_true_random=False))
def test_the_order_of_the_brokers_does_not_matter(
    stream: str, partition: int, broker_ids: list[str], random: Random
) -> None:
    shuffled = list(broker_ids)
    random.shuffle(shuffled)
    ranked = choose_broker(stream, partition, broker_ids)
    assert ranked == choose_broker(stream, partition, shuffled)
    assert sorted(ranked) == sorted(broker_ids)


@given(st.text(), partitions, brokers.filter(bool), st.data())
def test_a_broker_that_goes_leaves_the_ranks_of_the_others(
    stream: str, partition: int, broker_ids: list[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(broker_ids))
    ranked = choose_broker(stream, partition, broker_ids)
    rest = [broker_id for broker_id in broker_ids if broker_id != gone]
    assert choose_broker(stream, partition, rest) == [
        broker_id for broker_id in ranked if broker_id != gone
    ]


def test_partitions_spread_over_the_brokers() -> None:
    broker_ids = ["a", "b", "c", "d"]
    firsts = Counter(choose_broker("stream", partition, broker_ids)[0] for partition in range(4000))
    assert all(850 < firsts[broker_id] < 1150 for broker_id in broker_ids)


def test_streams_spread_over_the_brokers() -> None:
    broker_ids = ["server-1", "server-2", "server-3"]
    firsts = Counter(choose_broker(f"stream-{n}", 0, broker_ids)[0] for n in range(3000))
    assert all(850 < firsts[broker_id] < 1150 for broker_id in broker_ids)


def test_every_process_chooses_alike() -> None:
    code = (
        "from liftbridge_aio._publish.broker_selection import choose_broker\n"
        "print(*choose_broker('stream', 3, {'a', 'b', 'c', 'd', 'e'}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            check=True,
            timeout=30,
            text=True,
        ).stdout.split()[0]
        for seed in ("1", "2")
    }
    assert outputs == {choose_broker("stream", 3, list("abcde"))[0]}


def test_no_brokers_no_choice() -> None:
    assert choose_broker("stream", 0, []) == []
