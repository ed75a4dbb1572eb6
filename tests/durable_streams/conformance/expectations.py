"""What conformance cases expect of the replies of a client."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_streams.conformance.runner import Reply, check

Data = str | bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """The error that a reply must be.

    Attributes:
        code: One of the protocol's codes; empty if any will do.
        status: The HTTP status; None if it does not matter.
        names_stream: True if the message must contain the stream's path.
        mentions: What else the message must contain.
        unsent: True if the client may also refuse the command without asking the server.
    """

    code: str = ""
    status: int | None = None
    names_stream: bool = False
    mentions: str = ""
    unsent: bool = False

    def check(self, reply: Reply, path: str) -> None:
        """Fail the case unless a reply is this error."""
        check(reply.get("success") is False, f"{self} expected: {reply}")
        check(reply.get("type") == "error", f"an error reply of another type: {reply}")
        check(reply.get("errorCode"), f"an error without a code: {reply}")
        check(self.code in {"", reply["errorCode"]}, f"code {self.code} expected: {reply}")
        if not (self.unsent and reply["errorCode"] == "INVALID_ARGUMENT"):
            check(self.status in {None, reply.get("status")}, f"{self.status} expected: {reply}")
        message = str(reply.get("message", ""))
        check(not self.names_stream or path.lower() in message.lower(), f"no {path}: {reply}")
        check(self.mentions in message, f"no {self.mentions}: {reply}")


NOT_FOUND: Final = Failure("NOT_FOUND", 404)
NOT_FOUND_NAMED: Final = Failure("NOT_FOUND", 404, names_stream=True)
CLOSED: Final = Failure("STREAM_CLOSED", 409)
OUT_OF_ORDER: Final = Failure("SEQUENCE_CONFLICT", 409)
BAD_OFFSET: Final = Failure("INVALID_OFFSET", 400)
BAD_REQUEST: Final = Failure(status=400)
NO_DATA: Final = Failure(status=400, unsent=True)
UNREADABLE: Final = Failure("PARSE_ERROR")
ANY_ERROR: Final = Failure()


@dataclass(frozen=True, slots=True)
class Containing:
    """Data in which some texts occur, among others."""

    texts: tuple[str, ...]


class Items(tuple[Any, ...]):
    """Data of a JSON stream: the values, however they are spread over chunks."""

    __slots__ = ()


def containing(*texts: str) -> Containing:
    """Return the expectation that some texts occur in the data."""
    return Containing(texts)


def items(*values: Any) -> Items:
    """Return the expectation of JSON values."""
    return Items(values)


Expected = Data | Containing | Items


def check_data(reply: Reply, expected: Expected) -> None:
    """Fail the case unless a reply to a read has the expected data, and no empty chunk."""
    chunks = reply.get("chunks")
    check(isinstance(chunks, list), f"no chunks: {reply}")
    assert isinstance(chunks, list)
    texts = [_text(chunk, exact=isinstance(expected, bytes)) for chunk in chunks]
    check(all(texts), f"an empty chunk: {reply}")
    if isinstance(expected, Items):
        values = [value for text in texts if isinstance(text, str) for value in json.loads(text)]
        check(values == list(expected), f"{list(expected)} expected: {reply}")
    elif isinstance(expected, Containing):
        joined = "".join(map(str, texts))
        check(all(text in joined for text in expected.texts), f"{expected} expected: {reply}")
    elif isinstance(expected, bytes) and all(isinstance(text, bytes) for text in texts):
        check(b"".join(map(_encode, texts)) == expected, f"{expected!r} expected: {reply}")
    else:
        wanted = expected if isinstance(expected, str) else expected.decode(errors="replace")
        check("".join(map(_decode, texts)) == wanted, f"{wanted!r} expected: {reply}")


def _text(chunk: Mapping[str, Any], *, exact: bool) -> Data:
    """Return the data of a chunk: as bytes if it has them and they are wanted."""
    data = chunk["data"]
    check(isinstance(data, str), f"a chunk without text: {chunk}")
    if not chunk.get("binary"):
        return str(data)
    decoded = base64.b64decode(data, validate=True)
    return decoded if exact else decoded.decode(errors="replace")


def _encode(data: Data) -> bytes:
    return data if isinstance(data, bytes) else data.encode()


def _decode(data: Data) -> str:
    return data if isinstance(data, str) else data.decode(errors="replace")
