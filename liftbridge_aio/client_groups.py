"""The call of the client that makes it a member of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .arguments import check_callable, check_text, check_type
from .client_face import ClientFace
from .errors import InvalidRequest
from .model import StartAt
from .options import Duration, timer_seconds

if TYPE_CHECKING:
    from .groups import ConsumerGroup
    from .groups.group_plan import Handler

_NEW_ONLY: Final = StartAt.new_only()


class ClientGroups(ClientFace):
    """Consumer groups."""

    def group(
        self,
        group: str,
        streams: Sequence[str],
        consumer_id: str | None = None,
        start: StartAt | None = _NEW_ONLY,
        *,
        commit_interval: Duration | None = 5.0,
        on_assigned: Handler | None = None,
        on_revoked: Handler | None = None,
        timeout: Duration | None = None,
    ) -> ConsumerGroup:
        """Be a member of a consumer group: enter what this returns, and iterate over it.

        Nothing happens before it is entered. The partitions of the streams are shared out among the
        members, in whatever language they are; positions are kept as Go members keep them.

        Args:
            group: id of the group; the first member makes it, the last one to leave ends it.
            streams: what to read.
            consumer_id: names this member; None: a new name each time that it joins.
            start: where to begin partitions of which the group has committed nothing; None makes
                that an error.
            commit_interval: seconds between commits of what is finished; None: only
                `ConsumerGroup.commit` commits, not even the end does.
            on_assigned: awaited with partitions before anything of them is handed out.
            on_revoked: awaited with partitions before their last commit; or, where this member was
                expelled and cannot commit any more, as soon as it knows.
            timeout: seconds to join; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        check_text(group, "the id of a group")
        check_type(streams, (list, tuple, set, frozenset), "streams come as a list")
        for stream in streams:
            check_text(stream, "a stream name")
        if not group or not streams or not all(streams):
            raise InvalidRequest("a group needs an id, and at least one stream")
        if consumer_id is not None:
            check_text(consumer_id, "the id of a consumer")
            if not consumer_id:
                raise InvalidRequest("the id of a consumer must not be empty; None makes one up")
        check_type(start, (StartAt, type(None)), "a group starts at a StartAt or at None")
        for handler, name in ((on_assigned, "on_assigned"), (on_revoked, "on_revoked")):
            if handler is not None:
                check_callable(handler, name)
        interval = None
        if commit_interval is not None:
            interval = timer_seconds(commit_interval, "commit_interval")
            if not interval:
                raise InvalidRequest("commit_interval must be longer than 0 seconds")
        parts = self._living
        from .groups.consumer_group import ConsumerGroup  # noqa: PLC0415 - not before use
        from .groups.group_plan import GroupPlan  # noqa: PLC0415

        plan = GroupPlan(
            group=group,
            streams=tuple(dict.fromkeys(streams)),
            consumer_id=consumer_id,
            start=start,
            commit_interval=interval,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            timeout=self._seconds(timeout),
            close_timeout=timer_seconds(self.options.close_timeout),
        )
        return ConsumerGroup(plan, parts.connection, parts.cursors, parts.budget)
