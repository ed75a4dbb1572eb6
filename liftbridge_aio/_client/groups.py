"""The call of the client that makes it a member of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from liftbridge_aio._core.arguments import (
    check_callable,
    check_flags,
    check_text,
    check_type,
    names,
)
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import StartAt
from liftbridge_aio.options import Duration, timer_seconds

from .base import ClientBase

if TYPE_CHECKING:
    from liftbridge_aio.groups import ConsumerGroup
    from liftbridge_aio.groups.core.group_plan import OnReset, RebalanceCallback
    from liftbridge_aio.transactions.reading import ReadCommitted

_NEW_ONLY: Final = StartAt.new_only()


class ClientGroups(ClientBase):
    """Consumer groups."""

    def group(
        self,
        group: str,
        streams: Sequence[str],
        *,
        consumer_id: str | None = None,
        start: StartAt | None = _NEW_ONLY,
        commit_interval: Duration | None = 5.0,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_reset: OnReset = "error",
        unpause: bool = False,
        committed: bool | ReadCommitted = False,
        timeout: Duration | None = None,
    ) -> ConsumerGroup:
        """Return a member of a consumer group: enter it, then iterate over it or `run` a handler.

        Nothing is sent before it is entered. The partitions of the streams are divided among the
        members, Go members included; positions are stored as Go members store them.

        Args:
            group: id of the group; the first member creates it, the last one to leave deletes it.
            streams: what to read.
            consumer_id: id of this member; None: a new one each time that it joins.
            start: where to begin partitions of which the group has committed nothing; None makes
                that an error.
            commit_interval: seconds between commits of what is finished; None: only
                `ConsumerGroup.commit` commits, leaving the group does not.
            on_assigned: called with partitions before anything of them is handed out: a coroutine
                function, which is awaited, or a plain function.
            on_revoked: called likewise before their last commit, when no message of them is being
                handled by `run` any more. If this member was expelled, nothing is committed.
            on_reset: what to do if the stored position belongs to a former log, because the stream
                was deleted and created again: "error" raises `StreamReset`; "start" logs a warning
                and begins at `start`.
            unpause: resume partitions whenever they are paused, by a user or by `auto_pause_time`.
                Without it, a paused partition is not read until it is resumed or somebody publishes
                to it; see `ConsumerGroup.blocked`.
            committed: as for `Client.subscribe`; if True, stored positions are those of acks.
            timeout: seconds to join; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            ClientClosed: not connected.
        """
        check_text(group, "the id of a group")
        streams = names(streams, "a stream name")
        if not group or not streams or not all(streams):
            raise InvalidRequest("a group needs an id, and at least one stream")
        if consumer_id is not None:
            check_text(consumer_id, "the id of a consumer")
            if not consumer_id:
                raise InvalidRequest("the id of a consumer must not be empty; None makes one up")
        check_type(start, (StartAt, type(None)), "a group starts at a StartAt or at None")
        check_flags(unpause=unpause)
        for handler, name in ((on_assigned, "on_assigned"), (on_revoked, "on_revoked")):
            if handler is not None:
                check_callable(handler, name)
        interval = None
        if commit_interval is not None:
            interval = timer_seconds(commit_interval, "commit_interval")
            if not interval:
                raise InvalidRequest("commit_interval must be longer than 0 seconds")
        parts = self._living
        from liftbridge_aio.groups.consumer_group import ConsumerGroup  # noqa: PLC0415 - not before use
        from liftbridge_aio.groups.core.group_plan import GroupPlan, check_on_reset  # noqa: PLC0415

        check_on_reset(on_reset)

        plan = GroupPlan(
            group=group,
            streams=tuple(dict.fromkeys(streams)),
            consumer_id=consumer_id,
            start=start,
            commit_interval=interval,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_reset=on_reset,
            unpause=unpause,
            make_visibility=self._visibility(committed, None),
            timeout=self._seconds(timeout),
            close_timeout=timer_seconds(self.options.close_timeout),
            interceptors=tuple(self.options.interceptors),
        )
        return ConsumerGroup(plan, parts.network, parts.cursors, parts.budget)
