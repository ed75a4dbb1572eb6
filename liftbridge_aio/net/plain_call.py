"""The plain path of streaming calls: a task takes message after message from grpclib.

It uses only what is public in grpclib or pinned by a test; the data lane is tested and measured
against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from grpclib.client import Channel

from liftbridge_aio._core.status import CallFailure, Code
from liftbridge_aio._runtime.supervisor import Child, Supervisor
from liftbridge_aio.wire.framing import unframed
from liftbridge_aio.wire.rpc import Rpc

from .call import Call, Receiver

ENDED: Final = "the server ended the call"


class PlainCall(Call):
    """A streaming call whose messages a task delivers; made by `BrokerConnection.stream`."""

    def __init__(
        self,
        channel: Channel,
        rpc: Rpc[Any, Any],
        *,
        address: str,
        max_receive_bytes: int,
        supervisor: Supervisor,
        on_data: Callable[[], None],
    ) -> None:
        super().__init__(channel, rpc, address=address, max_receive_bytes=max_receive_bytes)
        self._supervisor = supervisor
        self._on_data = on_data
        self._resumed = asyncio.Event()
        self._pump: Child | None = None

    async def send_framed(self, frames: Sequence[bytes]) -> None:
        """Send messages that have their gRPC prefixes already; otherwise like `send`.

        Raises:
            CallFailure: the call or the connection broke.
        """
        await self.send([unframed(frame) for frame in frames])

    def deliver(self, receiver: Receiver) -> None:
        """Deliver everything received from now on to `receiver`; the call stays open.

        Raises:
            ClientClosed: the client is closing.
        """
        self._pump = self._supervisor.spawn(self._pump_all, receiver, name=f"pump:{self._name}")

    async def _pump_all(self, receiver: Receiver) -> None:
        failure = CallFailure(Code.CANCELLED, "the task that reads the call was cancelled")
        try:
            while True:
                data = await self.receive()
                if data is None:
                    failure = CallFailure(Code.OK, ENDED)
                    return
                self._on_data()
                if not self._deliver_messages(receiver, [data]):
                    return
                while receiver.at_capacity:
                    self._resumed.clear()
                    await self._resumed.wait()
        except CallFailure as error:
            failure = error
        finally:
            if not self._closed:
                super().close()
                self._deliver_end(receiver, failure)

    def consumed(self, size: int) -> None:  # noqa: ARG002 - the signature of FastCall
        """Resume delivery: the user has consumed messages."""
        self._resumed.set()

    def close(self) -> None:
        """Close the call; the receiver is not called any more. Idempotent."""
        super().close()
        if self._pump is not None:
            self._pump.cancel()
