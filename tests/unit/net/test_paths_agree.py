"""The data lane does what the plain path does: the same frames, cut anywhere, the same history.

Both read a random script of frames, in reads that end at random places. The rules:

1. Without a break, messages, code and words of the end are the same, and what the server said.
2. The lane has delivered everything that came before a break (a reset, a GOAWAY, a violation of the
   protocol) in an earlier read or, of resets and GOAWAY, in the same one.
3. Where a break comes in one read with what stands before it, the plain path may have delivered
   less of that and tell of the break instead of the end before it: grpclib wakes its task by
   cancelling it, and h2 gives out nothing of a read in which the protocol is violated.
4. Of the read in which a GOAWAY or a violation comes, the lane may deliver what stands behind it,
   too: it looks at a read before h2 does. Frames behind a GOAWAY are a violation to h2.
5. A lost connection is told as UNAVAILABLE by both, not always in the same words.
"""

from __future__ import annotations

import asyncio
from typing import Final

from hypothesis import event, given, settings
from hypothesis import strategies as st

from liftbridge_aio._core.status import CallFailure, Code, Reach
from support.examples import examples
from support.peers.frame_script import CALLS, LIMIT, Said, Script, Step
from support.peers.streaming import calling

KINDS: Final = (
    *["message"] * 4,
    *["frame"] * 8,
    *("accept", "trailers", "reset", "odd message", "odd headers"),
    *("ping", "unknown", "settings", "leave", "goaway", "violation"),
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Script, list[Step]]:
    """Return a script, and its steps with the bytes cut into reads."""
    script = Script(lambda name, count: draw(st.integers(0, count - 1), label=name))
    said = draw(
        st.lists(
            st.tuples(st.sampled_from(KINDS), st.integers(0, CALLS - 1), st.integers(0, 255)),
            max_size=40,
        )
    )
    for what, number, amount in said:
        script.say(what, script.calls[number], amount)
    script.barrier()
    steps: list[Step] = []
    for step in script.steps:
        if isinstance(step, bytes):
            cuts = sorted(draw(st.sets(st.integers(1, len(step)), max_size=6)) | {len(step)})
            steps += [step[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
        else:
            steps.append(step)
    return script, steps


History = tuple[list[bytes], CallFailure | None]


async def settle() -> None:
    """Let the tasks of the plain path do what they can."""
    for _ in range(8):
        await asyncio.sleep(0)


async def histories(path: str, steps: list[Step], *, settles: bool) -> list[History]:
    """Let a client read all that; return what its calls have heard."""
    async with calling(path, in_memory=True, max_receive_bytes=LIMIT) as calls:
        calls.peer._unacknowledged += [{}] * len(steps) * 10  # settings that the script says
        made = [await calls.delivered(accepted=False) for _ in range(CALLS)]
        await settle()
        for step in steps:
            if isinstance(step, bytes):
                calls.read(step)
            else:
                await settle()
                made[step][0].close()
            if settles:
                await settle()
        await settle()
        assert all(len(recorder.ends) <= 1 for _, _, recorder in made)
        return [(recorder.messages, next(iter(recorder.ends), None)) for _, _, recorder in made]


def words(failure: CallFailure | None) -> tuple[object, ...] | None:
    """Return all that a failure says."""
    if failure is None:
        return None
    # grpclib calls a connection lost twice, in different words.
    text = failure.text if failure.reach is Reach.ANSWERED else ""
    return failure.code, text, failure.reach, failure.unusable


def comparable(heard: list[History]) -> list[tuple[list[bytes], tuple[object, ...] | None]]:
    """Return histories in a form that can be compared."""
    return [(messages, words(failure)) for messages, failure in heard]


def check_lane(call: Said, heard: History) -> None:
    """Compare what the lane has delivered with what was said."""
    messages, failure = heard
    expected, code = call.outcome()
    if "violation" in call.broken:
        return  # what of that read was seen, h2 decides
    if call.broken:
        assert messages[: len(expected)] == expected
    else:
        assert messages == expected
    assert (None if failure is None else failure.code) == code


def check_plain(call: Said, heard: History, by_lane: History) -> None:
    """Compare what the plain path has delivered with what the lane has."""
    if not call.broken:
        assert comparable([heard]) == comparable([by_lane])
        return
    (messages, failure), (more, better) = heard, by_lane
    assert messages == more[: len(messages)]
    assert (failure is None) == (better is None)
    if failure is not None and words(failure) != words(better):
        assert failure.code is Code.UNAVAILABLE


@given(scripts())
def test_both_paths_tell_the_same(said: tuple[Script, list[Step]]) -> None:
    script, steps = said
    lane = asyncio.run(histories("lane", steps, settles=True))
    plain = asyncio.run(histories("plain", steps, settles=True))
    for call, by_lane, by_plain in zip(script.calls, lane, plain, strict=True):
        event(f"{call.outcome()[1]!r} {sorted(call.broken)}")
        check_lane(call, by_lane)
        check_plain(call, by_plain, by_lane)


@settings(max_examples=examples(50))
@given(scripts())
def test_the_lane_needs_no_turn_of_the_event_loop(said: tuple[Script, list[Step]]) -> None:
    """Many reads may be handled in one turn; the plain path only has to keep the order then."""
    _, steps = said
    settled = asyncio.run(histories("lane", steps, settles=True))
    hasty = asyncio.run(histories("lane", steps, settles=False))
    plain = asyncio.run(histories("plain", steps, settles=False))
    assert comparable(settled) == comparable(hasty)
    for (messages, failure), (more, better) in zip(plain, hasty, strict=True):
        assert messages == more[: len(messages)]
        assert (failure is None) == (better is None)


async def test_what_came_before_the_server_broke_the_rules_is_told() -> None:
    """On the lane, also if both come in one turn of the event loop."""
    async with calling("lane", in_memory=True) as calls:
        _, stream, recorder = await calls.delivered(accepted=False)
        calls.peer.accept(stream)
        calls.peer.message(stream, b"one")
        calls.peer.end(stream, 5, "gone")
        breach = b"\x00\x00\x04\x03\x00" + bytes(8)  # RST_STREAM of stream 0
        calls.read(calls.peer.take(), breach)
        assert (await recorder.end()).text == "gone"
        assert recorder.messages == [b"one"]
