"""The embedded broker: a Liftbridge server inside this process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .bus import Bus
from .clock import Clock
from .controller import Controller
from .data_directory import DataDirectory, DataDirectoryError
from .errors import BrokerError
from .group_controller import GroupController
from .journal import CorruptJournal
from .member import Member
from .node import Node, Storage
from .operation_journal import OperationJournal
from .operation_list import Numbered, living_streams
from .operations import CreateStream
from .own_streams import create_own_streams
from .profile import ServerProfile
from .server import Backing, BrokerServer
from .settings import DEFAULT_GROUP_TIMEOUT, BrokerSettings
from .storage import DiskStorage, MemoryStorage
from .tls import BrokerTLS

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
    server_id: str
    namespace: str
    cursors_partitions: int
    max_message_bytes: int
    max_payload_bytes: int
    settings: BrokerSettings

    def backing(
        self, controller: Controller, storage: Storage
    ) -> Callable[[Clock, Callable[[], None]], Backing]:
        """Make the only broker of a cluster."""
        bus = Bus(self.max_message_bytes, self.max_payload_bytes)
        node = Node(self.server_id, bus, storage, self.settings.consumer_timeout)
        controller.add(node)
        groups = GroupController(controller, self.settings.coordinator_timeout)

        def open_backing(clock: Clock, close: Callable[[], None]) -> Backing:
            def create() -> None:
                try:
                    create_own_streams(
                        controller,
                        self.namespace,
                        self.cursors_partitions,
                        activity=self.settings.activity,
                        now=clock.now_ns(),
                    )
                except BrokerError as error:  # nothing but the disk can refuse them here
                    raise OSError(error.text) from error

            return Backing(Member(node, controller, clock, self.namespace), groups, create, close)

        return open_backing


class EmbeddedBroker(BrokerServer):
    """A single-node Liftbridge server, to develop and test on.

    It speaks gRPC on a real port, and answers as Liftbridge 1.9.0 does, quirks included. Use it as
    `async with EmbeddedBroker() as broker: Client(broker.address)`.

    Its data lives as long as the object: after `stop` it may be started again, on the same port,
    with everything still there. With a data directory it outlives the process: a message that was
    acked is there after a `kill -9`. As with a real server, what the system has not yet written
    to the disk does not survive the end of the machine.

    Start and stop it in one event loop at a time; other calls may come from any task of it.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        server_id: str = "embedded",
        namespace: str = "liftbridge-default",
        cursors_partitions: int = 1,
        max_message_bytes: int = _MIB,
        max_payload_bytes: int = _MIB,
        consumer_timeout: float = DEFAULT_GROUP_TIMEOUT,
        coordinator_timeout: float = DEFAULT_GROUP_TIMEOUT,
        activity: bool = False,
        tls: BrokerTLS | None = None,
        profile: ServerProfile = ServerProfile.V1_9,
    ) -> None:
        """Make a broker that does not listen yet.

        Args:
            host: address to listen on, and to advertise.
            port: port to listen on; 0: a free one, chosen by the first start.
            data_dir: folder for everything that outlives the process, made if need be; None: all
                is in memory. Streams with encryption are refused then: nothing is encrypted here.
            server_id: id of the broker in metadata; that of a data directory never changes.
            namespace: first part of the NATS subjects for acks, cursors and activity.
            cursors_partitions: partitions of `__cursors`; 0: the broker keeps no cursors.
            max_message_bytes: largest message that is stored, with headers and envelope
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest message that can be published at all (`max_payload` of
                NATS). With equal limits, as on a real server by default, this one speaks first.
            consumer_timeout: seconds that a member of a consumer group may be silent.
            coordinator_timeout: seconds for which a report of a dead coordinator counts.
            activity: whether there is an activity stream.
            tls: has it speak TLS, and ask for certificates of clients if told so; None: plain.
            profile: the version that it behaves like.

        Raises:
            ValueError: a number makes no sense.
            TypeError: `tls` is no `BrokerTLS`.
        """
        check_limits(cursors_partitions, max_message_bytes, max_payload_bytes)
        check_timeouts(consumer_timeout=consumer_timeout, coordinator_timeout=coordinator_timeout)
        settings = BrokerSettings(
            profile=profile,
            consumer_timeout=consumer_timeout,
            coordinator_timeout=coordinator_timeout,
            activity=activity,
            encrypts=data_dir is None,
            tls=tls,
        )
        setup = _Setup(
            server_id=server_id,
            namespace=namespace,
            cursors_partitions=cursors_partitions,
            max_message_bytes=max_message_bytes,
            max_payload_bytes=max_payload_bytes,
            settings=settings,
        )
        opener = _in_memory(setup) if data_dir is None else _on_disk(setup, Path(data_dir))
        super().__init__(host, port, server_id, opener, settings)

    async def start(self) -> None:
        """Recover what is kept, then listen.

        The port is open when this returns, and stays the same over restarts. Recovering a data
        directory holds up the event loop. Cancelling it leaves the broker stopped.

        Raises:
            DataDirectoryError: the data directory cannot be used.
            OSError: the address cannot be listened on, or what is kept or the files for TLS cannot
                be read.
            RuntimeError: the broker is not stopped.
        """
        await super().start()


def _in_memory(setup: _Setup) -> Callable[[Clock], Backing]:
    backing = setup.backing(Controller(), MemoryStorage())
    return lambda clock: backing(clock, _nothing)


def _on_disk(setup: _Setup, path: Path) -> Callable[[Clock], Backing]:
    def open_backing(clock: Clock) -> Backing:
        directory = DataDirectory(path)
        try:
            journal = OperationJournal(directory.journal)
            _check_it_is_of(setup.server_id, journal.kept, path)
            directory.remove_other_streams(living_streams(journal.kept))
            controller = Controller(journal.keep)
            controller.replay(journal.kept)
            backing = setup.backing(controller, DiskStorage(directory))
        except CorruptJournal as error:
            directory.close()
            raise DataDirectoryError(str(error)) from error
        except BaseException:
            directory.close()
            raise
        return backing(clock, directory.close)

    return open_backing


def _check_it_is_of(server_id: str, kept: Iterable[Numbered], path: Path) -> None:
    # What another broker leads, this one would neither lead nor tell anybody of.
    for _, operation in kept:
        if isinstance(operation, CreateStream) and operation.partitions[0].leader != server_id:
            text = (
                f"the data directory {path} is of the broker {operation.partitions[0].leader!r}; "
                f"give this one that id instead of {server_id!r}, or choose another directory"
            )
            raise DataDirectoryError(text)


def check_limits(cursors_partitions: int, max_message_bytes: int, max_payload_bytes: int) -> None:
    """Refuse senseless limits of a broker.

    Raises:
        ValueError: one is senseless.
    """
    if cursors_partitions < 0 or max_message_bytes < 1 or max_payload_bytes < 1:
        text = "cursors_partitions must not be negative, and limits must be positive"
        raise ValueError(text)


def check_timeouts(**timeouts: float) -> None:
    """Refuse senseless timeouts, by their names.

    Raises:
        ValueError: one is senseless.
    """
    for name, timeout in timeouts.items():
        if not math.isfinite(timeout) or timeout <= 0:
            text = f"{name} must be a positive number of seconds, not {timeout}"
            raise ValueError(text)


def _nothing() -> None:
    pass
