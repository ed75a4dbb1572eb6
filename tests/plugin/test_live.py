"""Tests marked liftbridge_live run on the server that the user names, and never vanish silently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.pytest_plugin import RunInLoop
from support.faults import eventually
from support.servers.node import LiftbridgeNode

pytest_plugins = ["pytester"]

ARGUMENTS: Final = (
    "--strict-markers",
    "-Werror",
    "-pno:cacheprovider",
    "--asyncio-mode=auto",
    "-oasyncio_default_fixture_loop_scope=function",
)
LIVE_TEST: Final = """
import pytest

pytestmark = pytest.mark.liftbridge_live

async def test_publish(liftbridge_client):
    await liftbridge_client.create_stream("orders")
    await liftbridge_client.publish("orders", b"bread")
"""
NOT_CHOSEN: Final = "127.0.0.1:1"


@pytest.fixture
def server(
    liftbridge_broker: EmbeddedBroker, liftbridge_run: RunInLoop, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmbeddedBroker]:
    """The "live" server: for the tests below it is one whose address they are given."""
    monkeypatch.delenv("LIFTBRIDGE_ADDRESS", raising=False)
    yield liftbridge_broker
    liftbridge_run(eventually(lambda: liftbridge_broker.statistics().connections == 0))


@pytest.mark.parametrize("way", ["option", "variable", "setting"])
def test_the_client_of_a_live_test_uses_the_named_server(
    pytester: pytest.Pytester, server: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pytester.makepyfile(LIVE_TEST)
    ini = NOT_CHOSEN
    arguments = list(ARGUMENTS)
    if way == "option":
        monkeypatch.setenv("LIFTBRIDGE_ADDRESS", NOT_CHOSEN)
        arguments.append(f"--liftbridge-address={server.address}")
    elif way == "variable":
        monkeypatch.setenv("LIFTBRIDGE_ADDRESS", server.address)
    else:
        ini = server.address
    pytester.makeini(f"[pytest]\nliftbridge_address = {ini}\n")
    result = pytester.runpytest_inprocess(*arguments)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"liftbridge: live server {server.address}"])
    assert server.statistics().messages_stored == 1


def test_a_real_server_serves(
    pytester: pytest.Pytester, real_server: LiftbridgeNode, stream_name: str
) -> None:
    pytester.makepyfile(LIVE_TEST.replace("orders", stream_name))
    address = f"--liftbridge-address={real_server.address}"
    pytester.runpytest_inprocess(*ARGUMENTS, address).assert_outcomes(passed=1)


def test_one_of_several_addresses_is_enough(
    pytester: pytest.Pytester, server: EmbeddedBroker
) -> None:
    pytester.makepyfile(LIVE_TEST)
    addresses = f"--liftbridge-address={NOT_CHOSEN}, {server.address}"
    pytester.runpytest_inprocess(*ARGUMENTS, addresses).assert_outcomes(passed=1)


@pytest.mark.usefixtures("server")
def test_without_an_address_it_is_skipped_and_the_summary_says_so(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(LIVE_TEST)
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["liftbridge: live tests skipped: 1; *--liftbridge-address*"])


@pytest.mark.usefixtures("server")
def test_without_an_address_it_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(LIVE_TEST)
    result = pytester.runpytest_inprocess(*ARGUMENTS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["needs a live Liftbridge server: give --liftbridge-address*"])
