"""The plain path of streaming calls: a task takes message after message from grpclib.

It asks nothing of grpclib that is not in its public face or pinned by a test, and is what the data
lane is measured and tested against.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from grpclib.client import Channel

from liftbridge_aio.status import CallFailure, Code
from liftbridge_aio.wire.framing import unframed
from liftbridge_aio.wire.rpc import Rpc

from .exchange import Exchange
from .receiver import Receiver
from .supervisor import Child, Supervisor

ENDED: Final = "the server ended the call"


class PumpedExchange(Exchange):
    """A streaming call whose messages a task hands on; made by `Link.stream`."""

    def __init__(
        self,
        channel: Channel,
        rpc: Rpc[Any, Any],
        *,
        max_receive_bytes: int,
        supervisor: Supervisor,
        on_data: Callable[[], None],
    ) -> None:
        super().__init__(channel, rpc, max_receive_bytes=max_receive_bytes)
        self._name = rpc.name
        self._supervisor = supervisor
        self._on_data = on_data
        self._room = asyncio.Event()
        self._pump: Child | None = None

    async def send_framed(self, frames: Sequence[bytes]) -> None:
        """Send messages that have the prefixes of gRPC already; else like `send`.

        Raises:
            CallFailure: the call or the connection broke.
        """
        await self.send([unframed(frame) for frame in frames])

    def deliver(self, receiver: Receiver) -> None:
        """Hand everything that comes from now on to `receiver`; the call stays open.

        Raises:
            ClientClosed: the client is closing.
        """
        self._pump = self._supervisor.spawn(self._hand_on, receiver, name=f"pump:{self._name}")

    async def _hand_on(self, receiver: Receiver) -> None:
        failure = CallFailure(Code.CANCELLED, "the reading task was ended")
        try:
            while True:
                data = await self.receive()
                if data is None:
                    failure = CallFailure(Code.OK, ENDED)
                    return
                self._on_data()
                fault = self._hand_over(receiver, [data])
                if fault is not None:
                    failure = fault
                    return
                while receiver.full:
                    self._room.clear()
                    await self._room.wait()
        except CallFailure as error:
            failure = error
        finally:
            if not self._left:
                super().leave()
                self._hand_over_end(receiver, failure)

    def drained(self, size: int) -> None:  # noqa: ARG002 - the face of the lane's
        """Take note that the user has taken messages of `size` bytes in all, prefixes included."""
        self._room.set()

    def leave(self) -> None:
        """Leave the call; the receiver hears nothing more. May be called again."""
        super().leave()
        if self._pump is not None:
            self._pump.cancel()
