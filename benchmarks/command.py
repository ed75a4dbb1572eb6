"""The command `python -m benchmarks`."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from liftbridge_aio import LiftbridgeError
from support.servers.build import ServerUnavailable
from support.servers.cluster import ClusterNotHealthy
from support.servers.node import ServerDidNotStart
from support.servers.process import DidNotStart

from . import codec, goals, memory, over_gateway, scale, sse
from .cases import Case, Kind, cases_of
from .chart import draw
from .clients import USUAL, UnknownClient, commands
from .codec import CodecProgramFailed
from .contest import Contest
from .document import case_as_json, document
from .flags import NAMES, Flags, parse_flags
from .import_time import ImportFailed, measure_imports
from .over_durable_streams import APPENDING, READING
from .over_nsq import NSQ
from .over_queue import measure_over_queue
from .over_stan import STAN
from .own_programs import ProgramFailed
from .panels import caption, panels
from .peers.environments import EnvironmentUnavailable
from .programs import Command, FillFailed
from .provenance import provenance
from .rounds import Bench, ServerEnded
from .scale_picture import scale_picture
from .spark.command import FAILURES as SPARK_FAILURES
from .spark.command import NAMES as SPARK_NAMES
from .spark.command import SparkBenchmarks
from .summary import OURS, REFERENCE, CaseSummary
from .table import small, with_spread
from .terminal import Terminal
from .transactions import SEQUENCER, measure_transactions

_FAILURES: Final = (
    ClusterNotHealthy,
    CodecProgramFailed,
    DidNotStart,
    EnvironmentUnavailable,
    FillFailed,
    ImportFailed,
    LiftbridgeError,
    ProgramFailed,
    OSError,
    ServerDidNotStart,
    ServerEnded,
    ServerUnavailable,
    *SPARK_FAILURES,
)
"""Errors that prevent any measurement; the text of each says why."""

_ALL: Final = "all"
_GOALS: Final = "goals"
_SCALE: Final = "scale"


def main(words: Sequence[str]) -> int:
    """Run the command line.

    Returns:
        0 if every run came to its end, 1 if one did not, 2 for wrong usage, 130 if interrupted.
    """
    try:
        return _run(words)
    except UnknownClient as error:
        return _say(error, 2)
    except _FAILURES as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return 130


def _say(error: Exception, code: int) -> int:
    print(f"error: {str(error) or type(error).__name__}", file=sys.stderr)
    return code


def _run(words: Sequence[str]) -> int:
    flags = parse_flags(words)
    terminal = Terminal(quiet=flags.as_json)
    if flags.name is None:
        terminal.show_table("python -m benchmarks NAME", ("NAME", "what"), NAMES.items())
        return 0
    for file in filter(None, (flags.json, flags.chart)):
        _be_writable(file)  # rather now than when all is measured
    origin, results = provenance(words, flags.server), _Results(flags, terminal)
    try:
        for name, measure in results.benchmarks().items():
            if flags.name in {name, _ALL}:
                measure()
        if flags.name == _SCALE:
            results.scale()
        if flags.name in SPARK_NAMES:
            SparkBenchmarks(flags, terminal, results.figures).run(flags.name)
    finally:
        # What was measured before something failed, or before Ctrl-C, took its time.
        if results.cases or results.figures:
            _write(flags, origin, results)
    cases = (*results.cases, *results.others)
    failed = [client for case in cases for client in case.clients if client.failed]
    return 1 if failed else 0


@dataclass(slots=True)
class _Results:
    flags: Flags
    terminal: Terminal
    cases: list[CaseSummary] = field(default_factory=list)
    others: list[CaseSummary] = field(default_factory=list)
    """Cases on other servers than Liftbridge, or in other ways."""
    figures: dict[str, Any] = field(default_factory=dict)
    _commands: dict[str, Command] = field(default_factory=dict)

    def benchmarks(self) -> dict[str, Callable[[], None]]:
        """Action of each name, in the order of `all`."""
        return {
            "consume": lambda: self.side_by_side(cases_of(Kind.CONSUME, self.flags.choice)),
            "publish": lambda: self.side_by_side(cases_of(Kind.PUBLISH, self.flags.choice)),
            "latency": lambda: self.side_by_side(cases_of(Kind.LATENCY, self.flags.choice)),
            _GOALS: self.goals,
            "memory": self.memory,
            "codec": self.codec,
            "import": self.imports,
            "transactions": self.transactions,
            "queue": self.over_queue,
            "nsq": lambda: self.contests("nsq", NSQ),
            "stan": lambda: self.contests("stan", STAN),
            "durable-streams": self.durable_streams,
            "gateway": self.gateway,
        }

    def side_by_side(self, cases: Sequence[Case]) -> None:
        clients = self._clients()
        bench = Bench(
            self.flags.server, clients, self._filler(), self.flags.rounds, self.terminal.tell
        )
        for summary in bench.measure(cases):
            self.cases.append(summary)
            self.terminal.show_case(summary)

    def goals(self) -> None:
        """Measure what there are goals for, unless that has just been done."""
        if self.flags.name == _GOALS:
            self.side_by_side(goals.goal_cases(self.flags.choice))
        standings = goals.standings(self.cases)
        self.figures["goals"] = [standing.as_json() for standing in standings]
        self.terminal.show_table("goals", goals.COLUMNS, goals.goal_rows(standings))

    def memory(self) -> None:
        rows, found = [], []
        for held in memory.measure_memory(
            self.flags.server, self._filler(), self.terminal.tell, quick=self.flags.choice.quick
        ):
            found.append(held.as_json())
            rows.append(memory.memory_row(held))
        self.figures["memory"] = found
        self.terminal.show_table("memory", memory.COLUMNS, rows)

    def codec(self) -> None:
        timings = codec.measure_codec(quick=self.flags.choice.quick)
        self.figures["codec"] = [timing.as_json() for timing in timings]
        self.terminal.show_table("codec", codec.COLUMNS, map(codec.codec_row, timings))

    def imports(self) -> None:
        times = measure_imports(self.flags.rounds)
        self.figures["import"] = {name: spread.as_json() for name, spread in times.items()}
        rows = [
            (name, with_spread(spread, lambda seconds: small(seconds * 1000)))
            for name, spread in times.items()
        ]
        self.terminal.show_table("import", ("what", "ms of processor time"), rows)

    def transactions(self) -> None:
        flags = self.flags
        self._show_all(
            "transactions",
            measure_transactions(flags.server, flags.choice, flags.rounds, self.terminal.tell),
        )
        timings = codec.measure_codec(quick=flags.choice.quick, program=SEQUENCER)
        self.figures["sequencer"] = [timing.as_json() for timing in timings]
        self.terminal.show_table("sequencer", codec.COLUMNS, map(codec.codec_row, timings))

    def over_queue(self) -> None:
        flags = self.flags
        self._show_all(
            "queue",
            measure_over_queue(flags.server, flags.choice, flags.rounds, self.terminal.tell),
        )

    def contests(self, name: str, *contests: Contest) -> None:
        flags = self.flags
        self._show_all(
            name,
            itertools.chain.from_iterable(
                contest.measure(flags.choice, flags.rounds, self.terminal.tell)
                for contest in contests
            ),
        )

    def durable_streams(self) -> None:
        self.contests("durable_streams", APPENDING, READING)
        speeds = sse.measure_sse(quick=self.flags.choice.quick)
        self.figures["sse"] = [speed.as_json() for speed in speeds]
        self.terminal.show_table("SSE", sse.COLUMNS, map(sse.sse_row, speeds))

    def gateway(self) -> None:
        flags = self.flags
        served = over_gateway.measure_gateway(
            flags.server, flags.rounds, self.terminal.tell, quick=flags.choice.quick
        )
        self.figures["gateway"] = [each.as_json() for each in served]
        self.terminal.show_table(
            "gateway", over_gateway.COLUMNS, map(over_gateway.served_row, served)
        )

    def scale(self) -> None:
        tell, sizes, counts = self.terminal.tell, scale.USUAL, scale.HELD[:-1]
        if self.flags.choice.quick:
            sizes, counts = scale.QUICK, scale.HELD[:1]
        elif self.flags.whole:
            sizes, counts = scale.SIZES, scale.HELD
        points = self.figures["scale"] = []
        for point in scale.measure_scale(sizes, tell):
            points.append(point)
            self.terminal.show_table("scale", scale.COLUMNS, scale.scale_rows(point))
        held = self.figures["scale_memory"] = list(scale.measure_held(counts, tell))
        self.terminal.show_table("memory", scale.HELD_COLUMNS, map(scale.held_row, held))

    def _show_all(self, name: str, summaries: Iterable[CaseSummary]) -> None:
        found = self.figures[name] = []
        for summary in summaries:
            self.others.append(summary)
            found.append({**case_as_json(summary), "reference": summary.reference})
            self.terminal.show_case(summary)

    def _clients(self) -> dict[str, Command]:
        if not self._commands:
            self._commands = commands(self.flags.clients or USUAL)
        return self._commands

    def _filler(self) -> Command:
        """Client that fills the streams: go-liftbridge is there anyway where it takes part."""
        return self._commands.get(REFERENCE) or commands((OURS,))[OURS]


def _be_writable(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise PermissionError(f"{file} cannot be written")


def _write(flags: Flags, origin: Mapping[str, Any], results: _Results) -> None:
    made = document(origin, flags.rounds, results.cases, results.figures)
    text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    if flags.json is not None:
        flags.json.write_text(text, encoding="utf-8")
    if flags.chart is not None:
        if _SCALE in results.figures:
            drawn = scale_picture(made)
        else:
            drawn = draw(panels(results.cases), caption(made, flags.rounds))
        flags.chart.write_text(drawn, encoding="utf-8")
    if flags.as_json:
        print(text, end="")
