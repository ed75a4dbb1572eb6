"""The table from paths to the coroutines that answer them.

grpclib answers an unknown path without a content type, which its client then reports as a server
that does not speak gRPC; here unknown paths are answered as by a Go server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from liftbridge_aio.broker.faults.fault_injection import FaultInjector
from liftbridge_aio.wire.rpc import Rpc

from .call import Answer, Call


class Procedures(dict[str, Handler]):
    """Handlers by path. `get`, which grpclib calls, returns a handler for every path."""

    def __init__(
        self, answers: Iterable[tuple[Rpc[Any, Any], Answer]], faults: FaultInjector
    ) -> None:
        """Create the table.

        Args:
            answers: the procedures, each with the coroutine function that answers it.
            faults: applies faults to the messages of their calls.
        """
        super().__init__(
            {procedure.path: self._handler(procedure, one) for procedure, one in answers}
        )
        self.open_calls: set[Call] = set()
        self._faults = faults
        self._services = {path.split("/")[1] for path in self}

    def get(self, path: str, default: Any = None) -> Any:  # noqa: ARG002 - there is no other default
        """Return the handler of `path`; that of an unknown path answers UNIMPLEMENTED."""
        return self[path] if path in self else self._unknown(path)

    def _unknown(self, path: str) -> Handler:
        service, slash, method = path.removeprefix("/").rpartition("/")
        if not slash:
            text = f'malformed method name: "{path}"'
        elif service in self._services:
            text = f"unknown method {method} for service {service}"
        else:
            text = f"unknown service {service}"

        async def refuse(_stream: Stream[Any, Any]) -> None:
            raise GRPCError(Status.UNIMPLEMENTED, text)

        return Handler(refuse, Cardinality.STREAM_STREAM, object, object)

    def _handler(self, procedure: Rpc[Any, Any], answer: Answer) -> Handler:
        kinds = {
            (False, False): Cardinality.UNARY_UNARY,
            (False, True): Cardinality.UNARY_STREAM,
            (True, True): Cardinality.STREAM_STREAM,
        }

        async def handle(stream: Stream[Any, Any]) -> None:
            call = Call(stream, procedure, self._faults)
            self.open_calls.add(call)
            try:
                await call.answer(answer)
            finally:
                self.open_calls.discard(call)

        cardinality = kinds[procedure.streams_requests, procedure.streams_replies]
        return Handler(handle, cardinality, procedure.request, procedure.reply)
