"""Finds the first message at or after a time.

Servers up to 1.9.0 search by time, and answer with the end of the log where they find nothing. They
find nothing in an idle log whose last segment is still empty, and nothing in the last segment if
the time is between its first message and the message before. So the end is believed only if the
newest message is older; if it is not, single messages are read in a binary search.
"""

from __future__ import annotations

from .log_probe import LogProbe
from .log_start import settled_state


async def offset_at(probe: LogProbe, timestamp: int, newest: int, timeout: float) -> int:
    """Return the offset of the first message that is not older than a time.

    Cancelling abandons the calls.

    Args:
        probe: of the leader's log.
        timestamp: the time, in Unix nanoseconds.
        newest: offset of the newest message that was stored a moment ago.
        timeout: seconds for the leader to say where the log ends.

    Returns:
        The offset; the next one if all committed messages are older.

    Raises:
        CallFailure: the server refused, or could not be reached.
        LiftbridgeError: the leader did not answer.
    """
    found = await probe.offset_from(timestamp)
    if found is not None and found <= newest:
        return found
    state = await settled_state(probe.network, probe.stream, probe.partition, timeout)
    newest = state.high_watermark
    place = await probe.first_place(newest, newest) if newest >= 0 else None
    if place is None or place[1] < timestamp:
        return newest + 1
    lowest, highest = await probe.oldest_offset() or 0, newest
    while lowest < highest:
        middle = (lowest + highest) // 2
        place = await probe.first_place(middle, newest)
        if place is None or place[1] >= timestamp:
            highest = middle
        else:
            lowest = place[0] + 1
    return highest
