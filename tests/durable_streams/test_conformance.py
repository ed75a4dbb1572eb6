"""The client passes the published conformance cases, under a runner that overlooks no error."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from durable_streams.conformance.cases import BESIDE, CASES, FEATURES, LEFT_OUT, PUBLISHED, TOPICS
from durable_streams.conformance.runner import AdapterProcess, CaseFailed, run_case
from support.servers.durable_streams import DurableStreamsServer

HERE: Final = Path(__file__).resolve().parent
ADAPTER: Final = HERE / "adapter.py"
STUBS: Final = HERE / "stubs.py"

ONE_LOOP = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def adapter(durable_streams: DurableStreamsServer) -> AsyncIterator[AdapterProcess]:
    """The adapter of our client."""
    process = AdapterProcess([sys.executable, ADAPTER], durable_streams.url)
    async with aclosing(process):
        yield process


@ONE_LOOP
@pytest.mark.parametrize("case", CASES)
async def test_a_client_behaves_as_published(case: str, adapter: AdapterProcess) -> None:
    await run_case(CASES[case], adapter)


@ONE_LOOP
async def test_the_adapter_claims_all_features(adapter: AdapterProcess) -> None:
    await adapter.send({"type": "clear-dynamic"})
    assert {name for name, claimed in adapter.features.items() if claimed} == FEATURES


def test_every_published_case_stands_once() -> None:
    assert len(CASES) + len(LEFT_OUT) + BESIDE == PUBLISHED
    assert len(CASES) == sum(len(topic.CASES) for topic in TOPICS)
    assert not CASES.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize(
    ("answer", "passing"), [("error", []), ("success", ["retry-options-valid", "producer-valid"])]
)
async def test_an_adapter_without_a_client_fails(
    answer: str, passing: list[str], durable_streams: DurableStreamsServer
) -> None:
    adapter = AdapterProcess([sys.executable, STUBS, answer], durable_streams.url)
    async with aclosing(adapter):
        passed = [case for case in CASES if await _passes(case, adapter)]
    assert passed == passing


async def _passes(case: str, adapter: AdapterProcess) -> bool:
    try:
        await run_case(CASES[case], adapter)
    except CaseFailed:
        return False
    return True
