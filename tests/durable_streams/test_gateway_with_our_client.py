"""Our client and the gateway: the published cases of clients, under the strict runner."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from durable_streams.conformance import consumer_faults
from durable_streams.conformance.cases import CASES
from durable_streams.conformance.runner import AdapterProcess, run_case
from liftbridge_aio.broker import EmbeddedBroker
from support.servers.gateway import GatewayProcess

ADAPTER: Final = Path(__file__).resolve().parent / "adapter.py"
LOSSY: Final = "sse-strips-single-leading-space"
"""It wants a space to be lost that the reference server does not protect; the gateway does."""
CHOSEN: Final = [case for case in CASES if case not in {*consumer_faults.CASES, LOSSY}]
"""All but those for which a server must be told to fail."""
ONE_LOOP = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def adapter(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AdapterProcess]:
    """The adapter of our client, for a gateway on an embedded broker."""
    async with EmbeddedBroker() as broker:
        gateway = GatewayProcess(broker.address, tmp_path_factory.mktemp("gateway"))
        try:
            await asyncio.to_thread(gateway.start)
            process = AdapterProcess([sys.executable, ADAPTER], f"{gateway.url}/v1/stream")
            async with aclosing(process):
                yield process
        finally:
            await asyncio.to_thread(gateway.stop)


@ONE_LOOP
@pytest.mark.parametrize("case", CHOSEN)
async def test_our_client_and_the_gateway_agree(case: str, adapter: AdapterProcess) -> None:
    await run_case(CASES[case], adapter)
