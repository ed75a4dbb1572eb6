"""The embedded broker: a Liftbridge server inside this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from liftbridge_aio._core.public_face import as_one_class

from .cluster.controller import Controller
from .flaws import FLAWLESS, Flaws
from .server.clock import Clock
from .server.local_cluster import Backing, LocalCluster
from .server.server import BrokerServer
from .server.settings import (
    DEFAULT_GROUP_TIMEOUT,
    DEFAULT_MAX_BYTES,
    BrokerSettings,
    ServerProfile,
)
from .server.tls import BrokerTLS
from .storage.core.operation_list import IndexedOperation
from .storage.core.operations import CreateStream
from .storage.core.segment import LostSegment
from .storage.data_directory import DataDirectory, DataDirectoryError
from .storage.journal import CorruptJournal
from .storage.storage import DiskStorage, MemoryStorage


@as_one_class
class EmbeddedBroker(BrokerServer):
    """A single-node Liftbridge server, to develop and test on.

    It speaks gRPC on a real port, and answers as Liftbridge 1.9.0 does, quirks included. Use it as
    `async with EmbeddedBroker() as broker: Client(broker.address)`.

    Its data lives as long as the object: after `stop` it can be started again, on the same port,
    with all of its data. With a data directory the data outlives the process: a message that was
    acked survives a `kill -9`. As on a real server, what the system has not yet written to the disk
    is lost if the machine fails.

    Start and stop it in one event loop at a time; other calls may come from any task of that loop.
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
        max_message_bytes: int = DEFAULT_MAX_BYTES,
        max_payload_bytes: int = DEFAULT_MAX_BYTES,
        consumer_timeout: float = DEFAULT_GROUP_TIMEOUT,
        coordinator_timeout: float = DEFAULT_GROUP_TIMEOUT,
        activity: bool = False,
        tls: BrokerTLS | None = None,
        profile: ServerProfile = ServerProfile.V1_9,
        flaws: Flaws = FLAWLESS,
    ) -> None:
        """Create a broker that does not listen yet.

        Args:
            host: address to listen on, and to advertise.
            port: port to listen on; 0: a free one, chosen by the first start.
            data_dir: folder for all data, created if necessary; None: data is kept in memory. With
                a folder, streams with encryption are refused, as this broker encrypts nothing.
            server_id: id of the broker in metadata; a data directory belongs to one id.
            namespace: first token of the NATS subjects for acks, cursors and activity.
            cursors_partitions: partitions of `__cursors`; 0: the broker stores no cursors.
            max_message_bytes: largest message that is stored, with headers and envelope
                (`clustering.replication.max.bytes` of a real server).
            max_payload_bytes: largest message that can be published (`max_payload` of NATS). This
                limit is checked first, which decides the error where both are equal, as on a real
                server by default.
            consumer_timeout: seconds without a heartbeat after which a member of a consumer group
                is expelled.
            coordinator_timeout: seconds for which a report of a dead coordinator counts.
            activity: publish an activity stream.
            tls: accept TLS connections only, and require client certificates if it names an
                authority for them; None: plain connections.
            profile: the server version to behave like.
            flaws: what to do wrong as that version does; by default nothing.

        Raises:
            ValueError: a number is out of range, or `data_dir` is empty.
            TypeError: `tls` is no `BrokerTLS`.
        """
        if data_dir is not None and not os.fspath(data_dir):
            raise ValueError("data_dir is empty: give a folder, or None to keep data in memory")
        settings = BrokerSettings(
            namespace=namespace,
            cursors_partitions=cursors_partitions,
            max_message_bytes=max_message_bytes,
            max_payload_bytes=max_payload_bytes,
            consumer_timeout=consumer_timeout,
            coordinator_timeout=coordinator_timeout,
            activity=activity,
            encrypts=data_dir is None,
            tls=tls,
            profile=profile,
            flaws=flaws,
        )
        if data_dir is None:
            open_backing = _in_memory(settings, server_id)
        else:
            open_backing = _on_disk(settings, server_id, Path(data_dir))
        super().__init__(host, port, server_id, open_backing, settings)

    async def start(self) -> None:
        """Recover stored data, then listen.

        The port is open when this returns, and stays the same over restarts. Recovering a data
        directory blocks the event loop. Cancelling it leaves the broker stopped.

        Raises:
            DataDirectoryError: the data directory cannot be used.
            OSError: the address cannot be listened on, or stored data or the files for TLS cannot
                be read.
            RuntimeError: the broker is not stopped.
            BrokerPanicked: it has ended, see `Flaws.panics_at_start`.
        """
        try:
            await super().start()
        except LostSegment as error:
            raise DataDirectoryError(str(error)) from error


def _in_memory(settings: BrokerSettings, server_id: str) -> Callable[[Clock], Backing]:
    cluster = LocalCluster(settings, Controller())
    node = cluster.add_node(server_id, MemoryStorage())
    return lambda clock: Backing(cluster.context(node, clock), cluster)


def _on_disk(settings: BrokerSettings, server_id: str, path: Path) -> Callable[[Clock], Backing]:
    def open_backing(clock: Clock) -> Backing:
        directory = DataDirectory(path)
        try:
            storage = DiskStorage(directory)
            _check_server_id(server_id, storage.operations, path)
            storage.check_streams()
            controller = Controller(storage.store)
            controller.replay(storage.operations)
            cluster = LocalCluster(settings, controller)
            node = cluster.add_node(server_id, storage)
        except CorruptJournal as error:
            directory.close()
            raise DataDirectoryError(str(error)) from error
        except BaseException:
            directory.close()
            raise
        return Backing(cluster.context(node, clock), cluster, directory.close)

    return open_backing


def _check_server_id(server_id: str, stored: Iterable[IndexedOperation], path: Path) -> None:
    # Partitions led by another id would have no leader here.
    for _, operation in stored:
        if isinstance(operation, CreateStream) and operation.partitions[0].leader != server_id:
            raise DataDirectoryError(
                f"the data directory {path} belongs to the broker "
                f"{operation.partitions[0].leader!r}; use that server_id instead of {server_id!r}, "
                "or choose another directory"
            )
