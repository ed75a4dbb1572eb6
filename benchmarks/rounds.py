"""Runs the cases: all clients in turn, round after round, on one server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .cases import Case, Kind
from .outcome import Unsupported
from .pacing import probe_messages, run_messages
from .processes import are_running
from .programs import Command, fill, run_program
from .serving import RunningServer, running
from .streams import create_stream, delete_stream
from .summary import CaseSummary, Failed, Measured, Run, summarize

_TIMEOUT: Final = 90.0


class ServerEnded(Exception):
    """The server is gone, and nothing more can be measured; the text says when that was."""


@dataclass(slots=True)
class Bench:
    """Measures cases.

    Attributes:
        server: `real`, `embedded`, or the path of a binary.
        clients: The command of each client, in the order of a round.
        filler: The command of a client that publishes, and fast.
        rounds: How often each client has its turn.
        tell: Is told how far it has come.
    """

    server: str
    clients: Mapping[str, Command]
    filler: Command
    rounds: int
    tell: Callable[[str], None]
    _streams: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def measure(self, cases: Iterable[Case]) -> Iterator[CaseSummary]:
        """Measure cases, those on servers of as many nodes together.

        Raises:
            FillFailed: There is nothing to read.
            ServerEnded: The server ended while a client was at work.
            Exception: The server could not be started, see `serving.running`.
        """
        ordered = sorted(cases, key=lambda case: case.nodes)
        for nodes, together in itertools.groupby(ordered, key=lambda case: case.nodes):
            self.tell(f"starting {nodes} node(s) of the server")
            with running(self.server, nodes) as server:
                for case in together:
                    yield _OneCase(self, case, server).measure()

    def new_stream_name(self) -> str:
        """A name that no stream has yet."""
        return f"bench-{next(self._streams)}"


@dataclass(slots=True)
class _OneCase:
    bench: Bench
    case: Case
    server: RunningServer

    def measure(self) -> CaseSummary:
        if self.case.kind is not Kind.CONSUME:
            return self._rounds(self._on_new_stream)
        name = self.bench.new_stream_name()
        address = create_stream(self.server.addresses, name, self.case.partitions, self.case.nodes)
        self.bench.tell(f"{self.case.title}: filling with {self.case.messages:,} messages")
        fill(self.bench.filler, self.case, address, name)
        summary = self._rounds(
            lambda command, messages: self._run(command, address, name, messages)
        )
        delete_stream(self.server.addresses, name)
        return summary

    def _rounds(self, run: Callable[[Command, int], Run]) -> CaseSummary:
        runs: dict[str, list[Run]] = {client: [] for client in self.bench.clients}
        messages: dict[str, int] = {}
        for client, command in self.bench.clients.items():
            probe = self._probe(client, run, command)
            if isinstance(probe, Measured):
                speed = probe.outcome.messages_per_second
                messages[client] = run_messages(self.case, speed)
            elif probe is None:
                messages[client] = self.case.messages
            else:
                runs[client].append(probe)
        for number in range(1, self.bench.rounds + 1):
            for client, count in messages.items():
                done = run(self.bench.clients[client], count)
                runs[client].append(done)
                self._tell(f"round {number} of {self.bench.rounds}", client, done)
        return summarize(self.case, runs)

    def _probe(
        self, client: str, run: Callable[[Command, int], Run], command: Command
    ) -> Run | None:
        """A short run that shows what a client can do; None where runs have a fixed length."""
        if self.case.kind is Kind.LATENCY:
            return None
        probe = run(command, probe_messages(self.case))
        self._tell("first try", client, probe)
        return probe

    def _on_new_stream(self, command: Command, messages: int) -> Run:
        name = self.bench.new_stream_name()
        address = create_stream(self.server.addresses, name, self.case.partitions, self.case.nodes)
        done = self._run(command, address, name, messages)
        delete_stream(self.server.addresses, name)
        return done

    def _run(self, command: Command, address: str, stream: str, messages: int) -> Run:
        words = command(self.case.words(address, stream, messages))
        timeout = _TIMEOUT + self.case.duration
        done = run_program(words, self.server.pids, self.case.server_messages, timeout)
        if isinstance(done, Failed) and not are_running(self.server.pids):
            raise ServerEnded(f"the server ended in {self.case.title}: {done.reason}")
        return done

    def _tell(self, when: str, client: str, run: Run) -> None:
        self.bench.tell(f"{self.case.title}: {when}, {client}: {_said(run)}")


def _said(run: Run) -> str:
    if isinstance(run, Unsupported | Failed):
        return run.reason
    return f"{run.outcome.messages_per_second:,.0f} msg/s"
