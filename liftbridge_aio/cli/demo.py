"""`liftbridge-aio demo`: the client at work, and the proof that it loses nothing."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from .connection import AsJson
from .findings import print_checks, print_figures
from .output import say, write_json
from .running import DEMO, TABLES, in_event_loop

if TYPE_CHECKING:
    from .console import Console
    from .demo_scenario import Report


@in_event_loop(*DEMO, *TABLES)
async def demo(
    *,
    messages: Annotated[
        int, Parameter(validator=validators.Number(gte=100), help="Messages to publish.")
    ] = 5000,
    cuts: Annotated[
        int,
        Parameter(
            validator=validators.Number(gte=1, lte=50),
            help="How often to cut the connection meanwhile.",
        ),
    ] = 5,
    as_json: AsJson = False,
) -> int:
    """Show the client at work on the embedded broker, with a connection that keeps breaking.

    It publishes by key and tails all partitions while a proxy cuts every connection again and
    again, and checks that nothing is lost or repeated. The exit code is 0 only if that held.

    For example:

        liftbridge-aio demo
        liftbridge-aio demo --messages 50000 --cuts 20 --json
    """
    from .console import Console  # noqa: PLC0415 (help must not wait for it)

    console = Console(stderr=as_json, emoji=False, highlight=False)
    console.print("[bold]liftbridge-aio demo[/]: an embedded broker and a connection that breaks")
    started = time.perf_counter()

    def tell(step: str) -> None:
        console.print(f"[dim]{time.perf_counter() - started:6.2f} s[/]  {step}")

    from .demo_scenario import Scenario  # noqa: PLC0415 (it imports client and broker)

    report = await Scenario(messages, cuts, tell).run()
    if as_json:
        write_json(_as_json(report))
    else:
        _print_results(console, report)
    if not report.held:
        say("error: the demo found something lost, repeated or out of place")
    return 0 if report.held else 1


def _as_json(report: Report) -> dict[str, Any]:
    return asdict(report) | {
        "publish_rate": round(report.publish_rate, 1),
        "delivery_rate": round(report.delivery_rate, 1),
        "held": report.held,
    }


def _print_results(console: Console, report: Report) -> None:
    figures = (
        ("published and acked", f"{report.acked:,}"),
        ("acks per second, breaks included", f"{report.publish_rate:,.0f}"),
        ("unknown outcome (in flight when it broke)", f"{report.outcome_unknown:,}"),
        *(
            (f"delivered from partition {number}", f"{count:,}")
            for number, count in report.delivered.items()
        ),
        ("deliveries per second, breaks included", f"{report.delivery_rate:,.0f}"),
        ("cuts of the connection", f"{report.cuts}"),
        ("subscriptions resumed", f"{report.resubscriptions}"),
        ("longest break of one", f"{report.longest_break_seconds * 1000:,.0f} ms"),
    )
    print_figures(console, figures)
    print_checks(console, report.checks)
    console.print(
        "Unknown outcome: the connection broke between message and ack. The client says so instead"
        " of guessing; publishing with expected_offset and retry= leaves no doubt."
    )
    console.print()
    console.print("Next: `nox -s pipeline` runs a pipeline on Spark, from stream to stream.")
