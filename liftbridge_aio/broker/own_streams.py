"""The streams that brokers make for themselves."""

from __future__ import annotations

from .activity_publisher import activity_stream
from .controller import Controller
from .cursors import cursors_stream


def create_own_streams(
    controller: Controller, namespace: str, cursors_partitions: int, *, activity: bool, now: int
) -> None:
    """Create what is missing, if somebody decides already.

    Args:
        controller: decides for the cluster.
        namespace: first part of the subjects.
        cursors_partitions: partitions of `__cursors`; 0: there are no cursors.
        activity: whether there is an activity stream.
        now: Unix nanoseconds.
    """
    if not controller.has_leader():
        return
    wanted = []
    if cursors_partitions:
        wanted.append(cursors_stream(f"{namespace}.cursors", cursors_partitions))
    if activity:
        wanted.append(activity_stream(f"{namespace}.activity"))
    for request in wanted:
        if controller.leader().stream(request.name) is None:
            controller.create_stream(request, now)
