"""Frames of the framings that Gazette registers, cut out of bytes that come in any pieces."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.transactions.core.framing import (
    CSV,
    FIXED_PROTOBUF,
    FIXED_WORD,
    JSON_LINES,
    Decoder,
    Framing,
    framing_for,
    register_framing,
)
from liftbridge_aio.transactions.errors import (
    Desynchronised,
    FramingError,
    TruncatedFrame,
    UnknownFraming,
)
from liftbridge_aio.transactions.journals.message import CsvRecord, JsonMessage


@dataclass
class Text:
    """Stands for a protobuf message."""

    value: bytes = b""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return self.value

    def ParseFromString(self, data: bytes) -> None:  # noqa: N802 - protobuf's name
        if data == b"refused":
            raise RuntimeError("wire type 7")
        self.value = data


@dataclass
class Fields:
    """A message of any framing for text."""

    value: Any = None
    width: int = field(default=0, compare=False)

    def marshal_json(self) -> bytes:
        return json.dumps(self.value).encode()

    def unmarshal_json(self, data: bytes) -> None:
        self.value = json.loads(data)

    def marshal_csv(self) -> list[str]:
        return list(self.value)

    def unmarshal_csv(self, fields: list[str]) -> None:
        if fields[0] == "refused":
            raise ValueError("invalid UUID length: 7")
        self.value = fields


def pieces(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes at random places."""
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(8)))
    ends = [*cuts, len(data)]
    return [data[a:b] for a, b in zip([0, *cuts], ends, strict=True) if a < b]


def frames_of(decoder: Decoder, data: list[bytes]) -> list[bytes]:
    """Return all frames, with what was skipped among them."""
    found = []
    for piece in [*data, b""]:
        decoder.feed(piece)
        while True:
            try:
                frame = decoder.next_frame()
            except Desynchronised as error:
                frame = error.skipped
            if frame is None:
                break
            found.append(frame)
    return found


texts = st.builds(Text, st.binary(max_size=40) | st.just(FIXED_WORD))
jsons = st.builds(Fields, st.dictionaries(st.text(), st.text() | st.integers(), max_size=3))
rows = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=2, max_size=2)
records = st.builds(Fields, rows.filter(lambda row: row[0] != "refused"))


@pytest.mark.parametrize(
    ("content_type", "messages"),
    [(FIXED_PROTOBUF, texts), (JSON_LINES, jsons), (CSV, records)],
)
def test_messages_come_back_from_any_pieces(content_type: str, messages: st.SearchStrategy) -> None:
    framing = framing_for(content_type)

    @given(st.lists(messages, max_size=6), st.integers())
    def check(sent: list[Any], seed: int) -> None:
        decoder = framing.decoder()
        encoded = [framing.encode(message) for message in sent]
        frames = frames_of(decoder, pieces(b"".join(encoded), seed))
        assert frames == encoded
        for frame, message in zip(frames, sent, strict=True):
            found = type(message)()
            decoder.decode(frame, found)
            assert found == message

    check()


def test_fixed_frame_fixtures() -> None:
    framing = framing_for(FIXED_PROTOBUF)
    assert framing.encode(Text(b"foo")).hex() == "6633933603000000666f6f"
    assert framing.encode(Text(b"test message content"))[4] == 0x14


def test_fixed_frames_may_be_followed_by_a_line_feed() -> None:
    framing = framing_for(FIXED_PROTOBUF)
    frame = framing.encode(Text(b"foo"))
    assert frames_of(framing.decoder(), [frame + b"\n"]) == [frame]
    assert frames_of(framing.decoder(), []) == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (FIXED_WORD + b"\x14", "within the header of a frame"),
        (FIXED_WORD + b"\x14\0\0\0half", "within a frame of 28 bytes, after 12 of them"),
    ],
)
def test_fixed_frames_that_are_cut_off(data: bytes, text: str) -> None:
    with pytest.raises(TruncatedFrame, match=text):
        frames_of(framing_for(FIXED_PROTOBUF).decoder(), [data])


def test_bytes_between_fixed_frames_are_skipped_in_what_is_there() -> None:
    """As with Gazette's buffer of 16 bytes: 21 bytes of junk are skipped as 13 and 8."""
    framing = framing_for(FIXED_PROTOBUF)
    frame = framing.encode(Text(b"foo"))
    junk = b"junk" * 5 + b"!"
    found = frames_of(framing.decoder(), [junk[:16], junk[16:] + frame])
    assert found == [junk[:13], junk[13:], frame]


@given(st.binary(max_size=60), st.integers())
def test_after_junk_fixed_frames_go_on(junk: bytes, seed: int) -> None:
    framing = framing_for(FIXED_PROTOBUF)
    frame = framing.encode(Text(b"foo"))
    data = junk.replace(FIXED_WORD[:1], b"") + frame * 2
    found = frames_of(framing.decoder(), pieces(data, seed))
    assert b"".join(found) == data
    assert found[-2:] == [frame, frame]


def test_json_that_is_malformed_is_passed_over() -> None:
    framing = framing_for(JSON_LINES)
    decoder = framing.decoder()
    bad, good = frames_of(decoder, [b"{bad\n{}\n"])
    with pytest.raises(FramingError, match="a line of 5 bytes is no Fields"):
        decoder.decode(bad, Fields())
    decoder.decode(good, found := Fields())
    assert found.value == {}


@pytest.mark.parametrize("content_type", [JSON_LINES, CSV])
def test_a_line_without_an_end(content_type: str) -> None:
    with pytest.raises(TruncatedFrame, match="within a line, after 4 bytes"):
        frames_of(framing_for(content_type).decoder(), [b"\n", b"half"])


def test_json_with_line_feeds_is_refused() -> None:
    class Indented(Fields):
        def marshal_json(self) -> bytes:
            return b"{\n}"

    with pytest.raises(FramingError, match="the JSON of a Indented has line feeds"):
        framing_for(JSON_LINES).encode(Indented())


def test_records_have_the_fields_of_the_first() -> None:
    decoder = framing_for(CSV).decoder()
    first, second = frames_of(decoder, [b"a,b\nc\n"])
    decoder.decode(first, Fields())
    with pytest.raises(FramingError, match=r"record 2 .* it has 1 fields, and the first had 2"):
        decoder.decode(second, Fields())


def test_what_a_message_says_of_its_bytes_is_told() -> None:
    decoder = framing_for(CSV).decoder()
    with pytest.raises(FramingError, match=r"record 1 .* invalid UUID length: 7"):
        decoder.decode(b"refused\n", Fields())
    framing = framing_for(FIXED_PROTOBUF)
    with pytest.raises(FramingError, match="a frame of 15 bytes is no Text: wire type 7"):
        framing.decoder().decode(framing.encode(Text(b"refused")), Text())


@pytest.mark.parametrize("content_type", [FIXED_PROTOBUF, JSON_LINES, CSV])
def test_a_frame_that_is_too_long(content_type: str) -> None:
    decoder = framing_for(content_type).decoder(max_frame_bytes=20)
    decoder.feed(FIXED_WORD + b"\x14\0\0\0" + b"x" * 20)
    with pytest.raises(FramingError, match="28 bytes or more; the limit is 20"):
        decoder.next_frame()


def test_nothing_comes_after_the_end() -> None:
    decoder = framing_for(JSON_LINES).decoder()
    decoder.feed(b"")
    with pytest.raises(InvalidRequest, match="have ended"):
        decoder.feed(b"more")


def test_framings_are_found_by_content_type_and_can_be_added() -> None:
    class Own:
        content_type = "application/x-own"

        def encode(self, message: Any) -> bytes:
            return bytes(message)

        def decoder(self, max_frame_bytes: int = 0) -> Decoder:
            return framing_for(JSON_LINES).decoder(max_frame_bytes)

    own: Framing = Own()
    with pytest.raises(UnknownFraming, match="content type 'application/x-own'"):
        framing_for("application/x-own")
    register_framing(own)
    assert framing_for("application/x-own") is own


def test_lone_surrogates_are_kept_in_json_and_refused_in_csv() -> None:
    frame = framing_for(JSON_LINES).encode(JsonMessage(name="\udcff"))
    again = JsonMessage()
    again.unmarshal_json(frame)
    assert again.fields["name"] == "\udcff"
    with pytest.raises(InvalidRequest, match="record of CSV"):
        framing_for(CSV).encode(CsvRecord("\udcff"))
