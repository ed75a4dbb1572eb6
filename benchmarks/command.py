"""What `python -m benchmarks` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from .cases import Kind, cases_of
from .clients import OURS, USUAL, commands
from .document import document
from .flags import NAMES, Flags, parse_flags
from .provenance import provenance
from .rounds import Bench
from .summary import REFERENCE, CaseSummary
from .terminal import Terminal

_KINDS: Final = {
    "consume": (Kind.CONSUME,),
    "publish": (Kind.PUBLISH,),
    "latency": (Kind.LATENCY,),
    "all": tuple(Kind),
}


def run(words: Sequence[str]) -> int:
    """Run the command line; the exit code is 0 only if every run came to its end."""
    flags = parse_flags(words)
    terminal = Terminal()
    if flags.name is None:
        terminal.show_table("python -m benchmarks NAME", ("NAME", "what"), NAMES.items())
        return 0
    summaries = list(_measure(flags, terminal))
    made = document(provenance(words, flags.server), flags.rounds, summaries)
    text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    if flags.json is not None:
        flags.json.write_text(text)
    if flags.as_json:
        print(text, end="")
    return 1 if any(client.failed for case in summaries for client in case.clients) else 0


def _measure(flags: Flags, terminal: Terminal) -> list[CaseSummary]:
    clients = commands(flags.clients or USUAL)
    bench = Bench(
        server=flags.server,
        clients=clients,
        filler=clients.get(REFERENCE) or commands((OURS,))[OURS],
        rounds=flags.rounds,
        tell=terminal.tell,
    )
    cases = [case for kind in _KINDS[flags.name or ""] for case in cases_of(kind, flags.choice)]
    summaries = []
    for summary in bench.measure(cases):
        summaries.append(summary)
        if not flags.as_json:
            terminal.show_case(summary)
    return summaries
