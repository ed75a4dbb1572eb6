"""The result files: JSON of what was measured, with where it comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .summary import REFERENCE, CaseSummary, ClientSummary, run_as_json

SCHEMA: Final = 1


def document(
    origin: Mapping[str, Any],
    rounds: int,
    cases: Sequence[CaseSummary],
    figures: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole result of a command.

    Args:
        origin: Command, date, machine and versions.
        rounds: How often each client had its turn.
        cases: What was measured side by side.
        figures: What was measured of our client alone, by the name of the benchmark.
    """
    clients = {
        client.client: client.version for case in cases for client in case.clients if client.version
    }
    versions = {**origin.get("versions", {}), "clients": clients}
    return {
        "schema": SCHEMA,
        **origin,
        "versions": versions,
        "rounds": rounds,
        "reference": REFERENCE,
        "cases": [case_as_json(case) for case in cases],
        **(figures or {}),
    }


def case_as_json(summary: CaseSummary) -> dict[str, Any]:
    """A case with all its clients."""
    return {**summary.case.as_json(), "clients": [_client(each) for each in summary.clients]}


def _client(summary: ClientSummary) -> dict[str, Any]:
    found: dict[str, Any] = {"client": summary.client}
    if summary.remark:
        found["remark"] = summary.remark
    if summary.figures:
        found["messages"] = summary.messages
        found |= {key: spread.as_json() for key, spread in summary.figures.items()}
    if summary.ratio is not None:
        found["ratio"] = summary.ratio.as_json()
    found["runs"] = [run_as_json(run) for run in summary.runs]
    return found
