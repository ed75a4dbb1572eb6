"""The pytest plugin: fixtures for brokers, clusters and clients in the event loop of the test.

pytest loads this module at every start, so it imports nothing heavy; fixtures import the rest.

Fixtures are plain generators that run the loop of the test while the test itself does not. They
need only that loop, which each of the two plugins for async tests provides through an async fixture
of its own kind. So they work with both plugins, in all modes and loop scopes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    Self,
    TypeVar,
    get_args,
)

import pytest

if TYPE_CHECKING:
    from ._client.client import Client
    from .broker import EmbeddedBroker, EmbeddedCluster
    from .testing import Simulation

_T = TypeVar("_T")
_Resource = TypeVar("_Resource", bound=AbstractAsyncContextManager[Any])

_ADDRESS_VARIABLE: Final = "LIFTBRIDGE_ADDRESS"
_ADDRESS_SETTING: Final = "liftbridge_address"
_NO_ADDRESS: Final = (
    "needs a live Liftbridge server: give --liftbridge-address=HOST:PORT,"
    f" {_ADDRESS_VARIABLE} or the ini option {_ADDRESS_SETTING}"
)

_LoopScope = Literal["function", "class", "module", "package", "session"]
_LOOP_SCOPES: Final = get_args(_LoopScope)
_ASYNCIO_LOOPS: Final = "liftbridge_aio_asyncio_loops"
_CLOSING_SECONDS: Final = 30.0
"""Timeout of closing a fixture, so that one that hangs does not block the test run."""

_MARKERS: Final = {
    "liftbridge_live": "run the test on a real server, that of --liftbridge-address;"
    " without an address it is skipped, and fails where the variable CI is set",
    "liftbridge_broker(**arguments)": "arguments of the EmbeddedBroker of liftbridge_broker,"
    " for example cursors_partitions=3",
    "liftbridge_cluster(**arguments)": "arguments of the EmbeddedCluster of liftbridge_cluster,"
    " for example nodes=5",
    "liftbridge_client(**options)": "ClientOptions of liftbridge_client and"
    " liftbridge_cluster_client, for example ack_timeout=1",
    "liftbridge_simulation(seeds=10, seconds=600, brokers=3)": "how many seeds a test with"
    " liftbridge_simulation runs, for how many simulated seconds of faults, with how many brokers",
}
_SIMULATION: Final = "liftbridge_simulation"


# Hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the address of the live server."""
    words = "host:port of the Liftbridge server for tests marked liftbridge_live; several: commas"
    group = parser.getgroup("liftbridge")
    group.addoption("--liftbridge-address", metavar="ADDRESS", default=None, help=words)
    parser.addini(_ADDRESS_SETTING, words, default="")
    words = "number of seeds of each simulation, instead of what its marker says"
    group.addoption("--liftbridge-seeds", metavar="COUNT", type=int, default=None, help=words)
    words = "the only seed to run simulations from, to repeat a failure"
    group.addoption("--liftbridge-seed", metavar="SEED", type=int, default=None, help=words)
    words = "the only faults of it to inflict, by their numbers, as 3,17; or none"
    group.addoption("--liftbridge-faults", metavar="NUMBERS", default=None, help=words)
    words = "find the fewest faults with which a simulation fails"
    group.addoption("--liftbridge-shrink", action="store_true", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and, with pytest-asyncio, the fixtures that provide its loops."""
    for marker, meaning in _MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    if _has_pytest_asyncio(config) and _asyncio_fixtures_choose_loops():
        config.pluginmanager.register(_asyncio_loops(), _ASYNCIO_LOOPS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each seed of a simulation."""
    if _SIMULATION not in metafunc.fixturenames:
        return
    option = metafunc.config.getoption
    seed = option("--liftbridge-seed")
    count = option("--liftbridge-seeds") or _simulated(metafunc.definition).seeds
    seeds = range(1, count + 1) if seed is None else [seed]
    metafunc.parametrize(_SIMULATION, seeds, indirect=True, ids="seed-{}".format)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Let simulations run in their own event loop, before other plugins see an async test."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Function) and _SIMULATION in item.fixturenames:
            _run_in_world(item)
    return made


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return the address of the live server, if there is one."""
    addresses = _live_addresses(config)
    return f"liftbridge: live server {','.join(addresses)}" if addresses else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a live test without a server; in CI, fail it."""
    if not _is_live(item) or _live_addresses(item.config):
        return
    if os.environ.get("CI"):
        pytest.fail(_NO_ADDRESS, pytrace=False)
    pytest.skip(_NO_ADDRESS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the number of skipped live tests, even without -rs."""
    skipped = terminalreporter.stats.get("skipped", [])
    number = sum(_NO_ADDRESS in str(report.longrepr) for report in skipped)
    if number:
        terminalreporter.write_line(
            f"liftbridge: live tests skipped: {number}; each {_NO_ADDRESS}", yellow=True
        )


# Public fixtures


@pytest.fixture
def liftbridge_broker(
    request: pytest.FixtureRequest, _liftbridge_loop: _Loop
) -> Iterator[EmbeddedBroker]:
    """A running EmbeddedBroker of the test's own, on a free port of 127.0.0.1.

    Its arguments come from `@pytest.mark.liftbridge_broker(cursors_partitions=3)`. In an async
    test it runs in the loop of the test, so all its methods may be called. In a sync test it runs
    in a thread: use `address` there, and `liftbridge_run(liftbridge_broker.restart())`.
    """
    _refuse_live(request, "liftbridge_broker")
    from .broker import EmbeddedBroker  # noqa: PLC0415 - imports the network

    broker = _made(EmbeddedBroker, request.node, "liftbridge_broker")
    yield from _running(broker, _liftbridge_loop)


@pytest.fixture
def liftbridge_client(request: pytest.FixtureRequest, _liftbridge_loop: _Loop) -> Iterator[Client]:
    """A connected Client on `liftbridge_broker`, or on the live server in a live test.

    Its options come from `@pytest.mark.liftbridge_client(ack_timeout=1)`. For async tests only.
    """
    _refuse_sync(_liftbridge_loop, "liftbridge_client")
    if _is_live(request.node):
        addresses = _live_addresses(request.config)
    else:
        addresses = [request.getfixturevalue("liftbridge_broker").address]
    yield from _running(_made_client(request.node, addresses), _liftbridge_loop)


@pytest.fixture
def liftbridge_cluster(
    request: pytest.FixtureRequest, _liftbridge_loop: _Loop
) -> Iterator[EmbeddedCluster]:
    """A running EmbeddedCluster of the test's own: three nodes on free ports of 127.0.0.1.

    Its arguments come from `@pytest.mark.liftbridge_cluster(nodes=5)`. In sync tests the same
    holds as for `liftbridge_broker`.
    """
    _refuse_live(request, "liftbridge_cluster")
    from .broker import EmbeddedCluster  # noqa: PLC0415 - imports the network

    cluster = _made(EmbeddedCluster, request.node, "liftbridge_cluster")
    yield from _running(cluster, _liftbridge_loop)


@pytest.fixture
def liftbridge_cluster_client(
    request: pytest.FixtureRequest, _liftbridge_loop: _Loop, liftbridge_cluster: EmbeddedCluster
) -> Iterator[Client]:
    """A connected Client on `liftbridge_cluster` that knows all its nodes.

    Its options come from `@pytest.mark.liftbridge_client(ack_timeout=1)`. For async tests only.
    """
    _refuse_sync(_liftbridge_loop, "liftbridge_cluster_client")
    client = _made_client(request.node, liftbridge_cluster.addresses)
    yield from _running(client, _liftbridge_loop)


class RunInLoop(Protocol):
    """The type of `liftbridge_run`."""

    def __call__(self, coroutine: Coroutine[Any, Any, _T], /) -> _T:
        """Run a coroutine in the loop of the broker and return its result."""
        ...


@pytest.fixture
def liftbridge_run(_liftbridge_loop: _Loop) -> RunInLoop:
    """A function that runs a coroutine in the loop of a sync test's broker.

    It returns the result, for example of `liftbridge_run(liftbridge_broker.restart())`. Async tests
    use await instead.
    """
    if isinstance(_liftbridge_loop, _LoopOfTest):
        _fail("liftbridge_run is for sync tests; an async test awaits the coroutine itself")
    return _liftbridge_loop.run


@pytest.fixture
def liftbridge_simulation(request: pytest.FixtureRequest) -> Simulation:
    """A simulated world of brokers, processes and faults, in which the async test itself runs.

    `@pytest.mark.liftbridge_simulation(seeds=20, seconds=3600, brokers=3)` says how many seeds it
    is run from, for how many simulated seconds faults are inflicted, and how many brokers there
    are. Needs Python 3.12 and the extra `simulation`.
    """
    _refuse_live(request, _SIMULATION)
    if not hasattr(request.node.obj, _SIMULATION):
        _fail(f"{_SIMULATION} needs an async test that has it as an argument")
    return _new_simulation(request.node, request.param)


# Simulations


class _Simulated(NamedTuple):
    """The arguments of the marker of a simulation."""

    seeds: int = 10
    seconds: float = 600.0
    brokers: int = 3


def _simulated(item: pytest.Item) -> _Simulated:
    return _made(_Simulated, item, _SIMULATION)


def _new_simulation(
    item: pytest.Item, seed: int, faults: Sequence[int] | None = None
) -> Simulation:
    """Create one with the planned faults, or with those that are named."""
    from .testing import Simulation  # noqa: PLC0415 - imports the network

    settings = _simulated(item)
    chosen = item.config.getoption("--liftbridge-faults")
    if faults is None and chosen is not None:
        faults = [int(each) for each in chosen.split(",") if each not in {"", "none"}]
    try:
        return Simulation(seed, seconds=settings.seconds, brokers=settings.brokers, faults=faults)
    except ImportError as error:
        _fail(str(error))


def _run_in_world(item: pytest.Function) -> None:
    """Replace an async test by a function that runs it in its world."""
    function = item.obj
    if not inspect.iscoroutinefunction(function) or _SIMULATION not in item._fixtureinfo.argnames:  # noqa: SLF001
        return

    @functools.wraps(function)
    def test(**arguments: Any) -> None:
        simulation: Simulation = arguments.pop(_SIMULATION)

        def run(simulation: Simulation) -> None:
            simulation.run(lambda: function(**arguments, **{_SIMULATION: simulation}))

        try:
            run(simulation)
        except Exception as error:
            error.add_note(_how_to_repeat(item, simulation, run, error))
            raise

    setattr(test, _SIMULATION, True)
    item.obj = test


def _how_to_repeat(
    item: pytest.Item, failed: Simulation, run: Callable[[Simulation], None], error: Exception
) -> str:
    """Return the command that repeats a failure, with the fewest faults if that is asked for."""
    command = f"pytest '{item.nodeid.partition('[')[0]}' --liftbridge-seed {failed.seed}"
    if not item.config.getoption("--liftbridge-shrink"):
        chosen = item.config.getoption("--liftbridge-faults")
        faults = "" if chosen is None else f" --liftbridge-faults {chosen}"
        return (
            f"seed {failed.seed}, faults: {len(failed.planned)}, digest {failed.digest[:12]}\n"
            f"repeat it: {command}{faults}\n"
            f"find the fewest faults that fail: {command} --liftbridge-shrink"
        )
    from .testing.simulation.shrink import fewest  # noqa: PLC0415

    def fails(faults: Sequence[int]) -> bool:
        try:
            run(_new_simulation(item, failed.seed, faults))
        except Exception as again:  # noqa: BLE001 - any failure
            return type(again) is type(error)
        return False

    numbers = fewest([each.number for each in failed.planned], fails)
    faults = "".join(f"\n  fault {each}" for each in failed.planned if each.number in numbers)
    return (
        f"seed {failed.seed} fails with {len(numbers)} of {len(failed.planned)} faults:{faults}\n"
        f"repeat it: {command} --liftbridge-faults {','.join(map(str, numbers)) or 'none'}"
    )


# Markers


def _is_live(item: pytest.Item) -> bool:
    return item.get_closest_marker("liftbridge_live") is not None


def _live_addresses(config: pytest.Config) -> list[str]:
    """Return the addresses, or one URL, from the first source: option, variable or setting."""
    from ._client.server_url import split_servers  # noqa: PLC0415 - see above

    found = (
        config.getoption("--liftbridge-address")
        or os.environ.get(_ADDRESS_VARIABLE)
        or config.getini(_ADDRESS_SETTING)
    )
    return split_servers(str(found or ""))


def _refuse_live(request: pytest.FixtureRequest, fixture: str) -> None:
    if _is_live(request.node):
        _fail(f"a test marked liftbridge_live runs on a real server and cannot use {fixture}")


def _refuse_sync(loop: _Loop, fixture: str) -> None:
    if isinstance(loop, _LoopOfThread):
        _fail(
            f"{fixture} needs an async test, because a client belongs to one event loop; a sync"
            " test may use liftbridge_broker.address with a client of its own"
        )


def _made_client(item: pytest.Item, addresses: Sequence[str]) -> Client:
    from ._client.client import Client  # noqa: PLC0415 - imports the network when it connects
    from .options import ClientOptions  # noqa: PLC0415

    return Client(*addresses, options=_made(ClientOptions, item, "liftbridge_client"))


def _made(make: Callable[..., _T], item: pytest.Item, marker: str) -> _T:
    """Call with the arguments of a marker, including those of the class and module."""
    arguments: dict[str, Any] = {}
    marks = list(item.iter_markers(marker))
    for mark in reversed(marks):
        if mark.args:
            _fail(f"@pytest.mark.{marker} takes arguments by name only")
        arguments |= mark.kwargs
    try:
        return make(**arguments)
    except (TypeError, ValueError) as error:
        if not marks:
            raise
        _fail(f"@pytest.mark.{marker}: {error}")


def _fail(reason: str) -> NoReturn:
    pytest.fail(reason, pytrace=False)


# Loops


class _LoopOfTest:
    """The loop of an async test, used while the test itself does not run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, _T], /) -> _T:
        return self._loop.run_until_complete(coroutine)


class _LoopOfThread:
    """A loop in a thread, for sync tests."""

    def __init__(self) -> None:
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop]
        self._ready = concurrent.futures.Future()
        self._closing = asyncio.Event()
        # A daemon, so that a loop which does not end is reported and does not block the exit.
        self._thread = threading.Thread(target=self._main, name="liftbridge-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._closing.wait()

    def run(self, coroutine: Coroutine[Any, Any, _T], /) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._ready.result()).result()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ready.result().call_soon_threadsafe(self._closing.set)
        self._thread.join(_CLOSING_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(
                f"the loop of the sync test did not end within {_CLOSING_SECONDS:g} s"
            )


_Loop = _LoopOfTest | _LoopOfThread


@pytest.fixture
def _liftbridge_loop(request: pytest.FixtureRequest) -> Iterator[_Loop]:
    """The loop in which the other fixtures of this test run."""
    fixture = _loop_fixture(request)
    if fixture is None:
        with _LoopOfThread() as loop:
            yield loop
    else:
        yield _LoopOfTest(request.getfixturevalue(fixture))


def _running(resource: _Resource, loop: _Loop) -> Iterator[_Resource]:
    loop.run(resource.__aenter__())
    try:
        yield resource
    finally:
        loop.run(_close(resource))


async def _close(resource: AbstractAsyncContextManager[Any]) -> None:
    async with asyncio.timeout(_CLOSING_SECONDS):
        await resource.__aexit__(None, None, None)


def _loop_fixture(request: pytest.FixtureRequest) -> str | None:
    """Return the fixture that provides the loop of this test; None if the test is not async."""
    item = request.node
    import unittest  # noqa: PLC0415 - needed only by async tests

    if isinstance(getattr(item, "instance", None), unittest.TestCase):
        return None  # unittest runs async tests in its own loops
    if _has_pytest_asyncio(request.config):
        import pytest_asyncio  # noqa: PLC0415 - not everybody has it

        if pytest_asyncio.is_async_test(item):
            if "anyio_backend" in request.fixturenames:
                _fail(
                    "pytest-asyncio runs this test, and anyio's plugin would run its async fixtures"
                    " in another event loop: use one of the two, for example by asyncio_mode=strict"
                )
            if not request.config.pluginmanager.hasplugin(_ASYNCIO_LOOPS):
                _fail("the fixtures of liftbridge_aio need pytest-asyncio 0.24 or newer")
            return _asyncio_loop_fixture(_asyncio_loop_scope(item))
    if not _is_async(item):
        return None
    if "anyio_backend" not in request.fixturenames:
        _fail(
            "no plugin runs this async test: mark it with pytest.mark.asyncio or"
            " pytest.mark.anyio, or switch on the auto mode of pytest-asyncio or anyio"
        )
    backend = request.getfixturevalue("anyio_backend_name")
    if backend != "asyncio":
        _fail(
            f"liftbridge_aio runs on asyncio, not on {backend}; run these tests on asyncio"
            " only, with a fixture `anyio_backend` that returns 'asyncio'"
        )
    return _liftbridge_anyio_loop.__name__


def _is_async(item: pytest.Item) -> bool:
    function = getattr(item, "obj", None)
    property_test = getattr(function, "hypothesis", None)
    return inspect.iscoroutinefunction(getattr(property_test, "inner_test", function))


@pytest.fixture
async def _liftbridge_anyio_loop() -> asyncio.AbstractEventLoop:
    """The loop of a test run by anyio's plugin, which also runs this fixture."""
    return asyncio.get_running_loop()


def _has_pytest_asyncio(config: pytest.Config) -> bool:
    """Return True if the plugin is active under any name, which its option shows."""
    return hasattr(config.option, "asyncio_mode")


def _asyncio_fixtures_choose_loops() -> bool:
    import pytest_asyncio  # noqa: PLC0415 - not everybody has it

    return "loop_scope" in inspect.signature(pytest_asyncio.fixture).parameters


def _asyncio_loop_scope(item: pytest.Item) -> str:
    """Return the loop scope in which pytest-asyncio runs a test, as documented by it."""
    mark = item.get_closest_marker("asyncio")
    settings = mark.kwargs if mark is not None else {}
    # pytest-asyncio named it "scope" before 0.24.
    marked = settings.get("loop_scope") or settings.get("scope")
    try:
        return str(marked or item.config.getini("asyncio_default_test_loop_scope"))
    except ValueError:  # pytest-asyncio before 0.25 has no such setting
        return "function"


def _asyncio_loops() -> ModuleType:
    """Create a plugin with a fixture for each loop scope of pytest-asyncio, which returns the loop.

    An async fixture runs in the loop of its own scope and not of the test's, so each scope needs
    one.
    """
    plugin = ModuleType(_ASYNCIO_LOOPS)
    for scope in _LOOP_SCOPES:
        name = _asyncio_loop_fixture(scope)
        setattr(plugin, name, _asyncio_loop(scope, name))
    return plugin


def _asyncio_loop(scope: _LoopScope, name: str) -> object:
    import pytest_asyncio  # noqa: PLC0415 - not everybody has it

    @pytest_asyncio.fixture(loop_scope=scope, name=name)
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    return loop


def _asyncio_loop_fixture(scope: str) -> str:
    return f"_liftbridge_asyncio_{scope}_loop"
