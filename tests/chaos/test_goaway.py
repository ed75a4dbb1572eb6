"""A GOAWAY comes between two frames of the server, and the rest of its bytes is left as it is."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
from hypothesis import given
from hypothesis import strategies as st

from chaos.goaway import Insertion, goaway_frame


def served() -> tuple[h2.connection.H2Connection, list[bytes]]:
    """A client that has asked for something, and what the server sends it, frame after frame."""
    client = h2.connection.H2Connection()
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client.initiate_connection()
    server.initiate_connection()
    chunks = [server.data_to_send()]
    request = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
    client.send_headers(1, request, end_stream=True)
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200")])
    server.send_data(1, b"x" * 100)
    server.send_data(1, b"y" * 100, end_stream=True)
    return client, [*chunks, server.data_to_send()]


@given(cuts=st.lists(st.integers(0, 400), max_size=8), ordered_at=st.integers(0, 300))
def test_it_comes_between_two_frames_wherever_the_bytes_are_cut(
    cuts: list[int], ordered_at: int
) -> None:
    client, chunks = served()
    data = b"".join(chunks)
    damager = Insertion()
    out = b""
    position = 0
    for cut in [*sorted({min(cut, len(data)) for cut in cuts}), len(data)]:
        damager.ordered = damager.ordered or (not damager.done and position >= ordered_at)
        out += damager.feed(data[position:cut]).data
        position = cut
    assert out.count(goaway_frame()) == damager.done
    assert out.replace(goaway_frame(), b"") == data
    # Frames that come later are refused by h2, which holds every GOAWAY to be the end.
    before, _, _ = out.partition(goaway_frame())
    assert not ended(client.receive_data(before))
    if damager.done:
        assert ended(client.receive_data(goaway_frame()))


def ended(events: list[h2.events.Event]) -> bool:
    return any(isinstance(each, h2.events.ConnectionTerminated) for each in events)


def test_it_comes_before_the_next_frame() -> None:
    client, chunks = served()
    damager = Insertion()
    first = damager.feed(chunks[0]).data
    damager.ordered = True
    rest = damager.feed(chunks[1]).data
    assert not ended(client.receive_data(first))
    assert rest.startswith(goaway_frame())
    assert ended(client.receive_data(goaway_frame()))
    assert rest.endswith(chunks[1])
