"""Daemons of NSQ, and topics of one test each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.servers.nsq_daemons import NsqDaemon

StartDaemon = Callable[..., NsqDaemon]
_topics = itertools.count(1)


@pytest.fixture(scope="session")
def nsqd(nsq_programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqDaemon]:  # noqa: ARG001
    """An nsqd for the whole run, with short limits."""
    limits = ("-msg-timeout=2s", "-max-msg-timeout=6s", "-max-req-timeout=5s")
    daemon = NsqDaemon("nsqd", tmp_path_factory.mktemp("nsqd"), limits)
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def start(nsq_programs: None, tmp_path: Path) -> Iterator[StartDaemon]:  # noqa: ARG001
    """Start daemons that the test may kill and start again."""
    started: list[NsqDaemon] = []

    def start(program: str = "nsqd", *arguments: str) -> NsqDaemon:
        daemon = NsqDaemon(program, tmp_path / f"{program}-{len(started)}", arguments)
        started.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in started:
        daemon.stop()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"orders-{os.getpid()}-{next(_topics)}"
