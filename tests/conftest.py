"""Servers for every test: the embedded broker, the pinned real one, any other by path."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Final, NoReturn

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from liftbridge_aio._client import parts as client_parts
from liftbridge_aio.groups import partition_transfer
from liftbridge_aio.net import connection_pool
from support.raw import Wire
from support.servers.build import (
    ServerUnavailable,
    build_nats,
    build_server,
    build_streaming,
    nats_path,
    pinned_version,
    server_path,
    streaming_path,
)
from support.servers.cluster import LiftbridgeCluster
from support.servers.go_liftbridge import build_go_client, go_client_path
from support.servers.node import (
    ENCRYPTION_KEY_VARIABLE,
    EmbeddedServer,
    LiftbridgeNode,
    Server,
    ServerDidNotStart,
    Setting,
)
from support.servers.npm_packages import install_packages, packages_path
from support.servers.nsq_daemons import build_nsq_daemons
from support.spark.fast_java import start_java_fast
from support.virtual_time import choose_loop, loop_factories, mark_embedded

# In the background of a shell Ctrl-C is ignored, which the commands that tests start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a slow disk a server's Raft log stands still for seconds now and then, and with it its calls;
# the embedded broker syncs its log and index at each change.
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - what is made in it gets a folder of its own
ROOM: Final = 4 << 30
if "TMPDIR" not in os.environ and MEMORY.is_mount() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)  # where tmp_path is, too

# A loaded machine may be slow; that is no failure of what is tested.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=5)  # for `nox -s unit`
hypothesis.settings.register_profile("many", deadline=None, max_examples=30)  # for `tests_long`
hypothesis.settings.load_profile("patient")

UNIT_TESTS: Final = Path(__file__).with_name("unit")
EMBEDDED: Final = "embedded"
PINNED: Final = pinned_version()
OTHER: Final = "LIFTBRIDGE_BINARY"
SERVERS: Final = [EMBEDDED, PINNED] + [OTHER] * (OTHER in os.environ)
ENCRYPTION_KEY: Final = "0123456789abcdef"

NEEDS_BUILD: Final = {
    "server_binary",
    "real_server",
    "encrypted_server",
    "start_real_server",
    "real_cluster",
}
FEW_WITH_SPARK: Final = 10
"""The most tests with Spark that take less time than to prepare for its next starts."""
MANY_STREAMS: Final = 200
REAL_SERVER: Final = pytest.StashKey[LiftbridgeNode]()
NAMED_BEFORE: Final = pytest.StashKey[int]()
"""Number of stream names given when the real server last began without streams."""
WHY_NO_SERVER: Final = pytest.StashKey[str]()
WHY_NO_OTHER: Final = pytest.StashKey[dict[str, str]]()
"""Why other programs cannot be built, by the fixtures that need them."""
OTHER_BUILDS: Final[dict[str, Callable[[], object]]] = {
    "durable_streams_packages": install_packages,
    "go_client_program": build_go_client,
    "nsq_programs": build_nsq_daemons,
    "streaming_binary": build_streaming,
}

StartRealServer = Callable[..., LiftbridgeNode]

_stream_numbers = itertools.count(1)


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook has it
    item: pytest.Item,  # noqa: ARG001 - the same
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests in virtual time that are marked so."""
    return loop_factories()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt the collected tests from garbage collection, which would walk through them all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build real servers and clients before the first test, which has only its own time."""
    if session.config.option.collectonly:
        return
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    reasons = session.config.stash.setdefault(WHY_NO_OTHER, {})
    for fixture in used.intersection(OTHER_BUILDS):
        try:
            OTHER_BUILDS[fixture]()
        except ServerUnavailable as error:
            reasons[fixture] = str(error)
    with_spark = sum(item.get_closest_marker("spark") is not None for item in session.items)
    if with_spark:
        start_java_fast(write_archive=with_spark > FEW_WITH_SPARK)
    if not any(map(_needs_build, session.items)):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not server_path().exists():
        reporter.write_line(f"building the real server {PINNED}, about a minute the first time")
    try:
        build_server()
        build_nats()
    except ServerUnavailable as error:
        session.config.stash[WHY_NO_SERVER] = str(error)
    os.environ.setdefault("GOMAXPROCS", "1")  # more would only wait for work beside other servers


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report less from a process of xdist: passing on what says nothing takes longer than a test.

    Setups and teardowns that pass are reported where `--durations` asks for theirs.
    """
    if not hasattr(item.config, "workerinput") or item.config.option.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Measure coverage of unit tests alone: others would take twice the time."""
    choose_loop(item)
    if UNIT_TESTS in item.path.parents:
        return (yield)
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)


pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """Print no dots in CI, whose output then is about what failed."""
    quiet = "CI" in os.environ and config.get_verbosity() == 0
    return ("passed", "", "") if quiet and report.when == "call" and report.passed else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the plain path on real servers, for time; `test_path_histories.py` has it.

    What takes longest comes first, as the others then fill the time beside it, and what needs the
    cluster last: even an idle one takes a seventh of a processor core for as long as it runs. The
    matrix is last, too, when what runs beside it is nearly done.
    """
    left_out = [item for item in items if _is_plain_on_a_real_server(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(
        (item for item in items if not _is_plain_on_a_real_server(item)),
        key=lambda item: _TURNS.get(item.path.parent.name, 1),
    )
    for item in items:
        if UNIT_TESTS in item.path.parents:
            item.add_marker(pytest.mark.unit)
    mark_embedded(items, {*NEEDS_BUILD, PINNED, OTHER})


_TURNS: Final = {"chaos": 0, "spark": 0, "cluster": 2, "matrix": 2}
"""When the tests of a folder have their turn, where it is not the usual one, 1."""


def _is_plain_on_a_real_server(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("data_path") == "plain" and parameters.get("server", EMBEDDED) != EMBEDDED


if sys.version_info >= (3, 12) and "EAGER_TASKS" in os.environ:

    @pytest.fixture(autouse=True)
    async def _eager_tasks() -> None:
        """Each task of a test runs its first step when it is created, as programs may choose."""
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)


@pytest.fixture
def data_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way that messages take through every client of a test: the data lane, or grpclib alone.

    The plain path is taken as it would be with a grpclib of unknown shape, whatever the options.
    """
    path: str = getattr(request, "param", "lane")
    for module in (client_parts, connection_pool):
        monkeypatch.setattr(module, "data_lane_available", lambda: path == "lane")
    return path


@pytest.fixture
def long_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer windows in which a partition passes from member to member.

    On a busy machine the usual ones, of tenths of a second, are missed, and messages repeat.
    """
    for name, seconds in (("LAST_WRITE", 1.0), ("SETTLING", 1.5), ("FIRST_WRITE", 2.0)):
        monkeypatch.setattr(partition_transfer, name, seconds)


def _needs_build(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return PINNED in parameters.values() or bool(
        NEEDS_BUILD & set(getattr(item, "fixturenames", ()))
    )


def _unavailable(reason: str) -> NoReturn:
    """A failure where servers must be there, a visible skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def server_binary(request: pytest.FixtureRequest) -> Path:
    """The executable of the pinned real server."""
    reason = request.config.stash.get(WHY_NO_SERVER, None)
    if reason is not None:
        _unavailable(reason)
    return server_path()


@pytest.fixture(scope="session")
def go_client_program(request: pytest.FixtureRequest) -> Path:
    """The executable that drives the official Go client."""
    _check_built(request, "go_client_program")
    return go_client_path()


@pytest.fixture(scope="session")
def nsq_programs(request: pytest.FixtureRequest) -> None:
    """The daemons of NSQ, built."""
    _check_built(request, "nsq_programs")


def _check_built(request: pytest.FixtureRequest, fixture: str) -> None:
    reason = request.config.stash[WHY_NO_OTHER].get(fixture)
    if reason is not None:
        _unavailable(reason)


@pytest.fixture(scope="session")
def streaming_binary(request: pytest.FixtureRequest) -> Path:
    """The executable of the pinned NATS Streaming server."""
    _check_built(request, "streaming_binary")
    return streaming_path()


@pytest.fixture(scope="session")
def durable_streams_packages(request: pytest.FixtureRequest) -> Path:
    """The directory with the pinned reference server of Durable Streams."""
    _check_built(request, "durable_streams_packages")
    return packages_path()


@pytest.fixture(scope="session")
def real_server(
    request: pytest.FixtureRequest, server_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiftbridgeNode]:
    """The pinned real server, one for the whole run; it has no encryption key.

    What it keeps of a module may be gone in the next.
    """
    node = LiftbridgeNode(server_binary, tmp_path_factory.mktemp("real"), PINNED)
    request.config.stash[REAL_SERVER] = node
    yield from _run(node)


@pytest.fixture(scope="module", autouse=True)
def _few_streams(request: pytest.FixtureRequest) -> None:
    """Start the real server anew where streams have piled up: who connects reads about them all."""
    stash = request.config.stash
    node, named = stash.get(REAL_SERVER, None), next(_stream_numbers)
    if node is not None and node.running and named - stash.get(NAMED_BEFORE, 0) > MANY_STREAMS:
        stash[NAMED_BEFORE] = named
        node.start_anew()


@pytest.fixture(scope="session")
def encrypted_server(
    server_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiftbridgeNode]:
    """The pinned real server with an encryption key, one for the whole run."""
    folder = tmp_path_factory.mktemp("encrypted")
    key = {ENCRYPTION_KEY_VARIABLE: ENCRYPTION_KEY}
    yield from _run(LiftbridgeNode(server_binary, folder, PINNED, environment=key))


@pytest.fixture(scope="session")
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiftbridgeNode]:
    """The server that the variable LIFTBRIDGE_BINARY names.

    Newer servers report home unless told not to; older ones refuse that very setting.
    """
    binary = Path(os.environ[OTHER]).resolve()
    settings: Mapping[str, Setting] = {"telemetry.enabled": False}
    node = LiftbridgeNode(binary, tmp_path_factory.mktemp("other"), OTHER, settings)
    try:
        node.start()
    except ServerDidNotStart:
        if "telemetry" not in node.log:
            raise
        node = LiftbridgeNode(binary, tmp_path_factory.mktemp("other"), OTHER)
    yield from _run(node)


@pytest.fixture(scope="session")
def real_cluster(
    server_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiftbridgeCluster]:
    """Three nodes of the pinned real server, one cluster for the whole run.

    A test that breaks it calls ``await real_cluster.heal()`` when it ends.
    """
    folder = tmp_path_factory.mktemp("cluster")
    cluster = LiftbridgeCluster(server_binary, nats_path(), folder, PINNED)
    cluster.open()
    try:
        yield cluster
    finally:
        cluster.close()


def _run(node: LiftbridgeNode) -> Iterator[LiftbridgeNode]:
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture
async def embedded_server() -> AsyncIterator[EmbeddedServer]:
    """An embedded broker of the test's own."""
    from liftbridge_aio.broker import EmbeddedBroker  # noqa: PLC0415

    async with EmbeddedBroker(
        cursors_partitions=3, consumer_timeout=4, coordinator_timeout=1, activity=True
    ) as broker:
        host, _, port = broker.address.rpartition(":")
        yield EmbeddedServer(host, int(port))


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """Each server of the matrix in turn: the same test must hold on all of them."""
    fixtures = {EMBEDDED: "embedded_server", PINNED: "real_server", OTHER: "other_server"}
    chosen: Server = request.getfixturevalue(fixtures[request.param])
    return chosen


@pytest.fixture
def start_real_server(
    server_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartRealServer]:
    """Starts private servers, to be killed and started again on the same port and data.

    ``start_real_server(settings={...}, environment={...})`` gives a running LiftbridgeNode.
    """
    nodes: list[LiftbridgeNode] = []

    def start(
        settings: Mapping[str, Setting] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> LiftbridgeNode:
        folder = tmp_path_factory.mktemp("private")
        node = LiftbridgeNode(server_binary, folder, PINNED, settings or {}, environment or {})
        nodes.append(node)
        node.start()
        return node

    try:
        yield start
    finally:
        for node in nodes:
            node.stop()


@pytest.fixture
def stream_name() -> str:
    """A name that no other test uses, good as a subject too."""
    return f"stream-{os.getpid()}-{next(_stream_numbers)}"


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    """A connection to each server in turn."""
    connection = Wire(server.host, server.port)
    yield connection
    connection.close()


@pytest.fixture
async def cleaned_stream(wire: Wire, stream_name: str) -> AsyncIterator[str]:
    """A name for a stream whose log is cleaned all the time, which is paused in the end.

    Deleting it could kill the real server: it panics if its cleaner makes a file meanwhile.
    """
    yield stream_name
    await wire.pause(stream_name)
