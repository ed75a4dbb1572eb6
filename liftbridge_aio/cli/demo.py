"""`liftbridge-aio demo`: show that the client loses nothing when connections break."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from .connection import AsJson, Integer
from .output import say, write_json
from .running import DEMO, TABLES, in_event_loop

if TYPE_CHECKING:
    from .console import Console
    from .demo_scenario import Report


@in_event_loop(*DEMO, *TABLES)
async def demo(
    *,
    messages: Annotated[
        Integer, Parameter(validator=validators.Number(gte=100), help="Messages to publish.")
    ] = 5000,
    cuts: Annotated[
        Integer,
        Parameter(
            validator=validators.Number(gte=1, lte=50),
            help="How often to cut the connections meanwhile.",
        ),
    ] = 5,
    as_json: AsJson = False,
) -> int:
    """Run the client against the embedded broker, with connections that keep breaking.

    It publishes by key and tails all partitions while a proxy cuts every connection again and
    again, and checks that nothing is lost or repeated. The exit code is 0 only if so.

    For example:

        liftbridge-aio demo
        liftbridge-aio demo --messages 50000 --cuts 20 --json
    """
    # help must not wait for these
    from .console import Console, step_printer  # noqa: PLC0415
    from .demo_scenario import Scenario  # noqa: PLC0415

    console = Console(stderr=as_json, emoji=False, highlight=False)
    console.print("[bold]liftbridge-aio demo[/]: an embedded broker and a connection that breaks")
    report = await Scenario(messages, cuts, step_printer(console)).run()
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
    from .console import print_checks, print_figures  # noqa: PLC0415 (help must not wait for it)

    figures = (
        ("published and acked", f"{report.acked:,}"),
        ("acks per second, breaks included", f"{report.publish_rate:,.0f}"),
        ("unknown outcome (in flight when the connection broke)", f"{report.outcome_unknown:,}"),
        *(
            (f"delivered from partition {number}", f"{count:,}")
            for number, count in report.delivered.items()
        ),
        ("deliveries per second, breaks included", f"{report.delivery_rate:,.0f}"),
        ("cuts of the connection", f"{report.cuts}"),
        ("subscriptions resumed", f"{report.resubscriptions}"),
        (
            "longest interruption of a subscription",
            f"{report.longest_break_seconds * 1000:,.0f} ms",
        ),
    )
    print_figures(console, figures)
    print_checks(console, report.checks)
    console.print(
        "Unknown outcome: the connection broke before the ack. The client raises an error instead"
        " of guessing; with expected_offset and retry= the outcome is known."
    )
    console.print()
    console.print(
        "Next: `liftbridge-aio broker --port 9292` starts a broker to try the other commands on;"
        " `liftbridge-aio --help` names them."
    )
