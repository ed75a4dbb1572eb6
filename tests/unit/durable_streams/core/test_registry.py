from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.registry import Entry, Fork, Registry, Status

PATHS = ["/a", "/b", "/c"]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["create", "fork", "delete", "touch", "sweep"]),
        st.sampled_from(PATHS),
        st.sampled_from(PATHS),
    ),
    max_size=15,
)


class Log:
    """A registry and the log that it is a fold of."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.registry = Registry()

    def put(self, path: str, entry: Entry | None) -> None:
        value = b"" if entry is None else entry.to_json()
        self.registry.apply(len(self.messages), path, value)
        self.messages.append((path, value))

    def change(self, kind: str, path: str, source: str, now: float) -> None:
        """Change what may be changed, as a gateway does."""
        status, entry = self.registry.status(path, now)
        fork = None
        if kind == "fork":
            found, origin = self.registry.status(source, now)
            if found is not Status.ACTIVE or origin is None:
                return
            fork = Fork(source, origin.incarnation, 0, 0)
        if kind in {"create", "fork"} and status is Status.MISSING:
            new = Entry(log=f"log-{len(self.messages)}", content_type="text/plain", fork=fork)
            self.put(path, replace(new, ttl=10, touched=now))
        elif kind == "delete" and status is Status.ACTIVE and entry is not None:
            self.put(path, replace(entry, deleted=True))
        elif kind == "touch" and status is Status.ACTIVE and entry is not None:
            self.registry.touch(entry, now)
            for each, touched in self.registry.touched(now):
                self.put(each, touched)
        elif kind == "sweep":
            for each, overdue in self.registry.overdue(now):
                self.put(each, replace(overdue, deleted=True))
            for each, _ in self.registry.unneeded(now):
                self.put(each, None)


@given(CHANGES, st.integers(0, 4))
def test_the_newest_message_of_each_path_suffices(
    changes: list[tuple[str, str, str]], pace: int
) -> None:
    log = Log()
    for second, change in enumerate(changes):
        log.change(*change, float(second * pace))
    now = float(len(changes) * pace)
    for path, touched in log.registry.touched(now + 10):
        log.put(path, touched)
    newest = {path: offset for offset, (path, _) in enumerate(log.messages)}
    compacted = Registry()
    for offset, (path, value) in enumerate(log.messages):
        if newest[path] == offset:
            compacted.apply(offset, path, value)
    for path in PATHS:
        status, entry = log.registry.status(path, now)
        again, found = compacted.status(path, now)
        assert again is status
        if status is not Status.MISSING and entry is not None and found is not None:
            assert found.log == entry.log


@given(CHANGES, st.integers(0, 4))
def test_what_a_fork_needs_is_not_removed(changes: list[tuple[str, str, str]], pace: int) -> None:
    log = Log()
    for second, change in enumerate(changes):
        now = float(second * pace)
        log.change(*change, now)
        present = {entry.incarnation for entry in log.registry.entries.values()}
        for path in PATHS:
            status, entry = log.registry.status(path, now)
            if status is not Status.MISSING and entry is not None and entry.fork is not None:
                assert entry.fork.incarnation in present


def entry(**fields: object) -> Entry:
    return replace(Entry(log="log", content_type="text/plain"), **fields)  # type: ignore[arg-type]


def test_a_time_to_live_slides_and_a_time_does_not() -> None:
    registry = Registry()
    registry.apply(0, "/ttl", entry(ttl=10, touched=100.0).to_json())
    registry.apply(1, "/time", entry(expires_at="…", expiry=110.0).to_json())
    for path in ("/ttl", "/time"):
        registry.touch(registry.entries[path], 109.0)
    assert registry.status("/ttl", 118.9)[0] is Status.ACTIVE
    assert registry.status("/ttl", 119.0)[0] is Status.MISSING
    assert registry.status("/time", 109.9)[0] is Status.ACTIVE
    assert registry.status("/time", 110.0)[0] is Status.MISSING


def test_other_gateways_learn_of_a_touch_in_time() -> None:
    registry = Registry()
    registry.apply(0, "/ttl", entry(ttl=10, touched=100.0).to_json())
    registry.touch(registry.entries["/ttl"], 101.0)
    assert registry.touched(102.4) == []
    [(path, touched)] = registry.touched(102.5)
    assert (path, touched.touched) == ("/ttl", 101.0)


def test_a_stream_that_was_created_again_has_forgotten_the_touch() -> None:
    registry = Registry()
    registry.apply(0, "/a", entry(ttl=10, touched=0.0).to_json())
    registry.touch(registry.entries["/a"], 9.0)
    registry.apply(1, "/a", entry(ttl=10, touched=5.0).to_json())
    assert registry.entries["/a"].incarnation == 2
    assert registry.status("/a", 16.0)[0] is Status.MISSING


def test_content_types_are_compared_without_parameters() -> None:
    assert entry(content_type="Text/Plain; charset=utf-8").matches(entry())
    assert not entry(ttl=1).matches(entry())
