"""Detection of everything that clients must never do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import pytest

from chaos.alarms import listening
from chaos.journal import Place
from chaos.leftovers import network_objects
from chaos.load import Load
from chaos.queues import Step, out_of_order
from liftbridge_aio import AckPolicy
from liftbridge_aio.net.connection_pool import ConnectionPool

PLACE: Final = Place("all", 0, AckPolicy.ALL)
WITHIN: Final = 5.0


async def found(load: Load) -> str:
    """Wait until something is found."""
    async with asyncio.timeout(WITHIN):
        while not load.findings:  # noqa: ASYNC110 - findings are a list
            await asyncio.sleep(0.001)
    return load.findings[0].text


def _in_the_loop() -> None:
    nothing: list[int] = []
    asyncio.get_running_loop().call_soon(nothing.pop)


def _in_the_log() -> None:
    logging.getLogger("liftbridge_aio.net").error("a task failed")


@pytest.mark.parametrize("fail", [_in_the_loop, _in_the_log])
async def test_errors_that_nobody_takes_are_found(fail: Callable[[], None]) -> None:
    load = Load()
    with listening(load):
        fail()
        assert await found(load)
    assert not any(finding.excusable for finding in load.findings)


def test_objects_of_the_network_that_are_left_are_seen() -> None:
    before = network_objects()
    left = ConnectionPool.__new__(ConnectionPool)
    assert "ConnectionPool" in (network_objects() - before)
    del left
    assert not network_objects() - before


def test_the_judge_of_a_queue_sees_what_is_handed_out_too_soon() -> None:
    by_key = {b"a": [b"1", b"3"], b"b": [b"2"]}
    good = [Step(b"1", ended=False), Step(b"2", ended=False), Step(b"1", ended=True)]
    assert not out_of_order(by_key, [*good, Step(b"3", ended=False), Step(b"1", ended=False)])
    [wrong] = out_of_order(by_key, [*good[:2], Step(b"3", ended=False)])
    assert wrong == "b'3' was handed out before b'1' of its key was handled"
