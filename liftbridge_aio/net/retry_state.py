"""The state of one call with retries: the time left, the failures so far, the final error."""

from __future__ import annotations

import asyncio

from liftbridge_aio._core.status import CallFailure, Code, Reach, error_from
from liftbridge_aio.errors import (
    ConnectionFailed,
    ConnectTimeout,
    LiftbridgeError,
    NotLiftbridge,
    RequestTimeout,
    TLSFailed,
)


class RetryState:
    """The attempts of one call: the time left, and the failures so far by address."""

    def __init__(
        self, call: str, timeout: float, stream: str | None, partition: int | None
    ) -> None:
        self.call = call
        self.count = 0
        self.unanswered = 0
        """Failed attempts that a server may have acted on; the others took no time."""
        self.last: CallFailure | None = None
        self._loop = asyncio.get_running_loop()
        self._timeout = round(max(timeout, 0.0), 3)
        self._deadline = self._loop.time() + timeout
        self._stream = stream
        self._partition = partition
        self._sent = False
        """True if a server may have received one of them."""
        self._failures: dict[str, CallFailure] = {}

    @property
    def left(self) -> float:
        """Seconds left, never below 0."""
        return max(self._deadline - self._loop.time(), 0.0)

    def time(self) -> asyncio.Timeout:
        """Return the timeout of the whole call, as an async context manager."""
        return asyncio.timeout_at(self._deadline)

    def failed(self, where: str, failure: CallFailure) -> None:
        """Record a failed attempt."""
        self.count += 1
        self.unanswered += failure.may_have_acted
        self.last = failure
        self._sent = self._sent or failure.reach is not Reach.NOT_SENT
        known = self._failures.get(where)
        if known is None or failure.code is not Code.DEADLINE_EXCEEDED:
            self._failures[where] = failure
        elif known.unusable is None:  # else the known failure says more
            self._failures[where] = _joined(known, failure)

    def error(self, failure: CallFailure) -> LiftbridgeError:
        """Return the error for a failure that no retry will change."""
        return error_from(self.call, failure, stream=self._stream, partition=self._partition)

    def timed_out(self) -> LiftbridgeError:
        """Return the error for a call whose time is up."""
        kinds = {failure.unusable for failure in self._failures.values()}
        if kinds == {NotLiftbridge}:
            # Retried until now: another program may hold the port of a server that is starting.
            text = f"no Liftbridge server within {self._timeout:g} s{self._listed()}"
            error = NotLiftbridge(text, stream=self._stream, partition=self._partition)
            error.reached_server = self._sent
            return error
        if self._failures and not self._sent:
            text = f"no server was reached within {self._timeout:g} s{self._listed()}"
            return ConnectTimeout(text, stream=self._stream, partition=self._partition)
        text = f"the call {self.call} did not succeed within {self._timeout:g} s{self._listed()}"
        timeout = RequestTimeout(text, stream=self._stream, partition=self._partition)
        failures = self._failures.values()
        if failures and all(failure.reach is not Reach.ANSWERED for failure in failures):
            timeout.hint = f"{ConnectionFailed.hint}, or allow more time"
        return timeout

    @property
    def hopeless(self) -> bool:
        """True if TLS failed at every address, so that retries would not help."""
        failures = self._failures.values()
        return bool(failures) and all(failure.tls_failed for failure in failures)

    def unreachable(self) -> LiftbridgeError:
        """Return the error for a call that reached no server."""
        kind = self._lasting_kind() or ConnectionFailed
        text = f"no server answered{self._listed()}"
        return kind(text, stream=self._stream, partition=self._partition)

    def _lasting_kind(self) -> type[ConnectionFailed] | None:
        """Return the error class of a lasting reason; None if there is none."""
        failures = self._failures.values()
        tls_failed = {failure.unusable for failure in failures if failure.tls_failed}
        if tls_failed and all(
            failure.tls_failed or failure.reach is Reach.NOT_SENT for failure in failures
        ):
            # Others may be down for now; this one needs a change by the user.
            return tls_failed.pop() if len(tls_failed) == 1 else TLSFailed
        kinds = {failure.unusable for failure in failures}
        return kinds.pop() if len(kinds) == 1 else None

    def _listed(self) -> str:
        said = "; ".join(
            failure.text if where in failure.text else f"{where}: {failure.text}"
            for where, failure in self._failures.items()
        )
        return f" ({said})" if said else ""


def _joined(known: CallFailure, timeout: CallFailure) -> CallFailure:
    """Return the timeout with what the server had answered before: often it explains more."""
    if known.reach is not Reach.ANSWERED or known.code is Code.DEADLINE_EXCEEDED:
        return timeout
    return CallFailure(timeout.code, f"{known.text}; then {timeout.text}")
