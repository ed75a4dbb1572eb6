"""The tries of one call: how much time is left, what went wrong where, and the error in the end."""

from __future__ import annotations

import asyncio

from liftbridge_aio.errors import (
    ConnectionFailed,
    ConnectTimeout,
    LiftbridgeError,
    NotLiftbridge,
    RequestTimeout,
    TLSFailed,
)
from liftbridge_aio.status import CallFailure, Code, Reach, error_from


class Tries:
    """The tries of one call: its time, and what went wrong so far."""

    def __init__(
        self, call: str, timeout: float, stream: str | None, partition: int | None
    ) -> None:
        self.call = call
        self.count = 0
        self.last: CallFailure | None = None
        self._loop = asyncio.get_running_loop()
        self._timeout = round(timeout, 3)
        self._deadline = self._loop.time() + timeout
        self._stream = stream
        self._partition = partition
        self._sent = False
        """Whether a server got one of them, as far as can be known."""
        self._failures: dict[str, CallFailure] = {}

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(self._deadline - self._loop.time(), 0.0)

    def time(self) -> asyncio.Timeout:
        """Bound what runs inside by the time of the whole call."""
        return asyncio.timeout_at(self._deadline)

    def failed(self, where: str, failure: CallFailure) -> None:
        """Note a failed try."""
        self.count += 1
        self.last = failure
        self._sent = self._sent or failure.reach is not Reach.NOT_SENT
        known = self._failures.get(where)
        if known is None or known.unfit is None or failure.code is not Code.DEADLINE_EXCEEDED:
            self._failures[where] = failure  # else what is known says more

    def error(self, failure: CallFailure) -> LiftbridgeError:
        """Make the error for a failure that no other try will mend."""
        return error_from(self.call, failure, stream=self._stream, partition=self._partition)

    def timed_out(self) -> LiftbridgeError:
        """Make the error for a call whose time is up."""
        kinds = {failure.unfit for failure in self._failures.values()}
        if kinds == {NotLiftbridge} and not self._sent:
            # Another program may just have the port of a server that starts: so it was waited for.
            text = f"{self.call}: no server within {self._timeout:g} s{self._listed()}"
            return NotLiftbridge(text, stream=self._stream, partition=self._partition)
        if self._failures and not self._sent:
            text = f"{self.call}: no server was reached within {self._timeout:g} s{self._listed()}"
            return ConnectTimeout(text, stream=self._stream, partition=self._partition)
        text = f"{self.call} did not succeed within {self._timeout:g} s{self._listed()}"
        return RequestTimeout(text, stream=self._stream, partition=self._partition)

    @property
    def hopeless(self) -> bool:
        """Whether TLS failed wherever it was tried, so that waiting would not help."""
        failures = self._failures.values()
        return bool(failures) and all(failure.insecure for failure in failures)

    def unreachable(self) -> LiftbridgeError:
        """Make the error for a call that reached no server."""
        kind = self._lasting_kind() or ConnectionFailed
        text = f"{self.call}: no server answered{self._listed()}"
        return kind(text, stream=self._stream, partition=self._partition)

    def _lasting_kind(self) -> type[ConnectionFailed] | None:
        """What is wrong with the servers; None where it is nothing, or nothing lasting."""
        failures = self._failures.values()
        insecure = {failure.unfit for failure in failures if failure.insecure}
        if insecure and all(
            failure.insecure or failure.reach is Reach.NOT_SENT for failure in failures
        ):
            # Others may be down for now; this one has to be mended.
            return insecure.pop() if len(insecure) == 1 else TLSFailed
        kinds = {failure.unfit for failure in failures}
        return kinds.pop() if len(kinds) == 1 else None

    def _listed(self) -> str:
        said = "; ".join(
            failure.text if where in failure.text else f"{where}: {failure.text}"
            for where, failure in self._failures.items()
        )
        return f" ({said})" if said else ""
