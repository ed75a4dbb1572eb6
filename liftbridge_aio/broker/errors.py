"""The errors with which the broker refuses requests: status codes of gRPC, without gRPC."""

from __future__ import annotations

import enum
from typing import Final


class Code(enum.IntEnum):
    """The gRPC status codes that a Liftbridge server answers with."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    INTERNAL = 13


class BrokerError(Exception):
    """A refused request, with code and text of a real server."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text


class PublishCode(enum.IntEnum):
    """`PublishAsyncError.Code` of the protocol."""

    UNKNOWN = 0
    BAD_REQUEST = 1
    NOT_FOUND = 2
    INTERNAL = 3
    READONLY = 4
    INCORRECT_OFFSET = 5
    ENCRYPTION_FAILED = 6


_UNARY_CODES: Final = {
    PublishCode.BAD_REQUEST: Code.INVALID_ARGUMENT,
    PublishCode.NOT_FOUND: Code.NOT_FOUND,
    PublishCode.READONLY: Code.FAILED_PRECONDITION,
    PublishCode.ENCRYPTION_FAILED: Code.INTERNAL,
}


class PublishRefused(Exception):
    """A message that was not stored."""

    def __init__(self, code: PublishCode, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text

    def as_status(self) -> BrokerError:
        """Return the corresponding status of a unary Publish, whose codes are coarser."""
        return BrokerError(_UNARY_CODES.get(self.code, Code.UNKNOWN), self.text)
