"""What a publish session asks of whoever owns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from liftbridge_aio.model import Ack
from liftbridge_aio.status import CallFailure
from liftbridge_aio.wire.codec import PublishRefusal

from .pending_publish import PendingPublish

if TYPE_CHECKING:
    from .publish_session import PublishSession


class SessionOwner(Protocol):
    """To whom a session tells what happens to its messages."""

    @property
    def unsettled(self) -> Mapping[str, PendingPublish]:
        """The messages whose outcome is open, by correlation id, over all sessions."""

    def acked(self, messages: list[PendingPublish], acks: list[Ack]) -> None:
        """Take acks that say OK, each with its message."""

    def ack_failed(self, pending: PendingPublish, ack: Ack) -> None:
        """Take an ack that says that a message could not be stored."""

    def refused(self, pending: PendingPublish, refusal: PublishRefusal) -> None:
        """Take the refusal of a message."""

    def written(self, pending: PendingPublish) -> None:
        """Take note that a message with ack policy NONE was written."""

    def taken_back(self, pending: PendingPublish) -> None:
        """Take note that a message was cancelled before it was written."""

    def refused_late(self, stream: str, partition: int, refusal: PublishRefusal) -> None:
        """Take the refusal of a message with ack policy NONE."""

    def session_lost(
        self,
        session: PublishSession,
        unknown: list[PendingPublish],
        unsent: list[PendingPublish],
        unproven: int,
        failure: CallFailure,
    ) -> None:
        """Take back what was written and not answered, and what was not written at all."""
