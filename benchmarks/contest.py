"""Clients of another system than Liftbridge side by side, on one server of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .cases import Case, Choice, Kind
from .peers.environments import GoProgram, PythonProgram
from .programs import fill, run_program
from .serving import processes_in
from .summary import OURS, CaseSummary, Run, summarize

_TIMEOUT: Final = 90.0
_QUICK: Final = 1_000
_SLOWER: Final = 10


@dataclass(frozen=True, slots=True)
class Contest:
    """A system, its clients, and what all of them do.

    Attributes:
        open_server: Runs a server in a folder until the block is left; gives its address.
        own: Commands of this repository, by name; that of `ours` also publishes what is consumed.
        peers: The clients that ours is compared with, by name.
        reference: The client that ratios are against.
        cases: What is measured.
        slow: Clients that take a tenth of the messages, as a run would take minutes.
        keeps: Whether messages are still there when they were consumed, for the next client.
    """

    open_server: Callable[[Path], AbstractContextManager[str]]
    own: Mapping[str, tuple[str, ...]]
    peers: Mapping[str, GoProgram | PythonProgram]
    reference: str
    cases: tuple[Case, ...]
    slow: frozenset[str] = frozenset()
    keeps: bool = True

    def publish(self, words: list[str]) -> list[str]:
        """Return the command that fills a stream, of the words of a case."""
        return [*self.own[OURS], *words]

    def measure(
        self, choice: Choice, rounds: int, tell: Callable[[str], None]
    ) -> Iterator[CaseSummary]:
        """Measure all cases; the clients take turns.

        Args:
            choice: How many messages.
            rounds: How often each client has its turn.
            tell: Is told how far it has come.

        Raises:
            EnvironmentUnavailable: A client cannot be had here.
            FillFailed: There is nothing to consume.
            Exception: The server could not be built or started, see its module.
        """
        for peer in self.peers.values():
            peer.prepare()
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
            folder = Path(name).resolve()
            with self.open_server(folder) as address:
                pids = processes_in(folder)
                for case in self.cases:
                    messages = _QUICK if choice.quick else choice.messages or case.messages
                    sized = replace(case, messages=messages)
                    yield self._rounds(sized, address, pids, rounds, tell)

    def _rounds(
        self,
        case: Case,
        address: str,
        pids: tuple[int, ...],
        rounds: int,
        tell: Callable[[str], None],
    ) -> CaseSummary:
        programs = {name: list(command) for name, command in self.own.items()}
        programs |= {name: peer.command for name, peer in self.peers.items()}
        runs: dict[str, list[Run]] = {name: [] for name in programs}
        filled = set()
        for number in range(1, rounds + 1):
            for name, program in programs.items():
                messages = case.messages // _SLOWER if name in self.slow else case.messages
                stream = f"{case.kind.value}-{case.window}-{number}-{name}"
                tell(f"{case.title}: round {number} of {rounds}, {name}")
                if case.kind is Kind.CONSUME:
                    stream = case.kind.value if self.keeps else stream
                    if stream not in filled:
                        filled.add(stream)
                        needed = replace(case, messages=case.messages if self.keeps else messages)
                        fill(self.publish, needed, address, stream)
                words = [*program, *case.words(address, stream, messages)]
                runs[name].append(run_program(words, pids, case.server_messages, _TIMEOUT))
        return summarize(case, runs, self.reference)
