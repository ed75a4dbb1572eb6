"""The computed size of an envelope is the size of the encoded one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.cluster.incoming import Incoming
from liftbridge_aio.model import Ack
from liftbridge_aio.wire import proto

ENVELOPE_HEADER = 8


@given(
    blobs=st.tuples(st.binary(max_size=300), st.binary(max_size=300)),
    texts=st.tuples(*[st.text(max_size=200)] * 4),
    headers=st.dictionaries(st.text(max_size=150), st.binary(max_size=150), max_size=3),
    expected_offset=st.integers(-1, 2**62),
    policy=st.integers(0, 2),
)
def test_size(
    blobs: tuple[bytes, bytes],
    texts: tuple[str, str, str, str],
    headers: dict[str, bytes],
    expected_offset: int,
    policy: int,
) -> None:
    key, value = blobs
    stream, subject, inbox, correlation_id = texts
    acks: list[Ack] = []
    incoming = Incoming(
        key, value, headers, inbox, correlation_id, policy, acks.append, expected_offset, stream
    )
    message = proto.Message(
        offset=expected_offset,
        key=key,
        value=value,
        stream=stream,
        subject=subject,
        headers=headers,
        ack_inbox=inbox,
        correlation_id=correlation_id,
        ack_policy=proto.AckPolicy(policy),
    )

    assert incoming.measure(subject) == ENVELOPE_HEADER + len(bytes(message))
