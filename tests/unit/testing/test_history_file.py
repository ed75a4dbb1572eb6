"""Histories in files, of processes that may be killed at any time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.testing import (
    Event,
    EventKind,
    HistoryFile,
    check_history,
    read_history,
    write_history,
)
from liftbridge_aio.testing.history.file import format_event, parse_event

messages = st.builds(
    Event,
    st.sampled_from([kind for kind in EventKind if kind is not EventKind.FINISHED]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.integers(0, 2**31),
    st.binary(max_size=20),
    st.none() | st.binary(max_size=5),
    st.none() | st.integers(0, 2**63),
)
ends = st.builds(Event, st.just(EventKind.FINISHED), st.floats(0, 1), st.text(max_size=8))
LINES = [
    b'{"event": "sent", "time": 1, "actor": "p", "partition": 0, "value": "a"}\n',
    b'{"event": "acked", "time": 2, "actor": "p", "partition": 0, "value": "a"}\n',
]


@given(messages)
def test_events_come_back_as_they_were(event: Event) -> None:
    line = format_event(event)
    assert "\n" not in line
    assert line.isascii()
    assert parse_event(line) == event


def test_the_end_of_a_reading_comes_back() -> None:
    event = Event(EventKind.FINISHED, 1.5, "r", 3)
    assert parse_event(format_event(event)) == event


def test_values_that_are_text_can_be_read_in_the_file() -> None:
    line = format_event(Event(EventKind.SENT, 1.0, "p", 0, b"round 3, message 7", b"k\xff"))
    assert '"round 3, message 7"' in line
    assert '"k%FF"' in line


def test_parts_are_put_together(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "producer", clock=lambda: 1.0) as producer:
        producer.sent(b"a", 0)
        producer.acked(b"a", 0)
    with HistoryFile(tmp_path / "reader") as reader:
        reader.delivered(b"a", 0, offset=4, time=2.0)
        reader.finished(0, time=3.0)
    history = read_history(tmp_path / "reader", tmp_path / "producer")
    assert len(history.events) == 4
    assert history.torn == []
    report = check_history(history)
    report.raise_for_defects()
    assert report.total.acked == report.total.delivered == 1


def test_what_was_written_at_once_is_read_the_same(tmp_path: Path) -> None:
    events = [parse_event(line) for line in LINES]
    write_history(tmp_path / "part", events)
    assert (tmp_path / "part").read_bytes().count(b"\n") == 2
    assert read_history(tmp_path / "part").events == events
    with pytest.raises(FileExistsError):
        write_history(tmp_path / "part", events)


@pytest.mark.parametrize("cut", range(len(LINES[1])))
def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "part"
    path.write_bytes(LINES[0] + LINES[1][:cut])
    history = read_history(path)
    whole = 1 + (cut == len(LINES[1]) - 1)  # only the end of the line is missing
    assert len(history.events) == whole
    if cut and whole == 1:
        (torn,) = history.torn
        assert f"{path}, line 2" in torn
        assert "cut off: " in str(check_history(history))
    else:
        assert history.torn == []


@pytest.mark.parametrize(
    "line",
    [
        *(b"\n", b"no JSON\n", b"[]\n", b"{}\n", LINES[0].replace(b"sent", b"lost")),
        *(LINES[0].replace(b'"a"', b"7"), LINES[0].replace(b'"p"', b'"p", "offset": "x"')),
        *(LINES[0].replace(b"1", b"null"), b"\xff\n"),
    ],
)
def test_other_broken_lines_are_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "part"
    path.write_bytes(LINES[0] + line + LINES[1])
    with pytest.raises(ValueError, match="part, line 2: not an event"):
        read_history(path)


def test_a_file_is_written_by_one_process_only(tmp_path: Path) -> None:
    HistoryFile(tmp_path / "part").close()
    with pytest.raises(FileExistsError):
        HistoryFile(tmp_path / "part")


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    with HistoryFile(tmp_path / "part", clock=lambda: 0.0) as file:

        def publish(producer: str) -> None:
            for number in range(500):
                file.sent(b"%d" % number, 0, producer=producer)

        threads = [Thread(target=publish, args=(name,)) for name in ("p", "q", "r")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    events = read_history(tmp_path / "part").events
    for producer in ("p", "q", "r"):
        values = [event.value for event in events if event.actor == producer]
        assert values == [b"%d" % number for number in range(500)]


PUBLISHER = """
import sys, time
from liftbridge_aio.testing import HistoryFile
file = HistoryFile(sys.argv[1], time.monotonic)
for number in range(10**9):
    file.sent(b"%d" % number, 0)
    file.acked(b"%d" % number, 0)
    if number == 500:
        print("under way", flush=True)
"""


def test_what_was_recorded_survives_the_death_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "part"
    process = subprocess.Popen([sys.executable, "-c", PUBLISHER, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"under way\n"
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert process.returncode == -signal.SIGKILL
    history = read_history(path)
    assert len(history.events) >= 1_002
    sent = [event.value for event in history.events if event.kind is EventKind.SENT]
    acked = [event.value for event in history.events if event.kind is EventKind.ACKED]
    assert sent == [b"%d" % number for number in range(len(sent))]
    assert acked in (sent, sent[:-1])
