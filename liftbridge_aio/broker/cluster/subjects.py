"""NATS subjects: validation, matching, and the receivers of a message.

Pure: the random choice among the members of a queue group comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_BLANKS: Final = frozenset(" \t\r\n")
_ANY_ONE: Final = "*"
_ANY_REST: Final = ">"

ReceiverT = TypeVar("ReceiverT")


def is_valid_subject(subject: str) -> bool:
    """Return True if a stream may have `subject`: no blanks, no empty token."""
    return not _BLANKS.intersection(subject) and all(subject.split("."))


def partition_subject(subject: str, partition: int) -> str:
    """Return the subject of a partition: that of the stream, or `<subject>.N` for N > 0."""
    return subject if partition == 0 else f"{subject}.{partition}"


def is_subscribable(subject: str) -> bool:
    """Return True if NATS accepts a subscription to `subject`: `>` may only be the last token.

    A real server does not check this: NATS disconnects it, and it cannot publish any more.
    """
    return _ANY_REST not in subject.split(".")[:-1]


def subject_matches(pattern: str, subject: str) -> bool:
    """Return True if `pattern` matches `subject`: `*` is any token, a last `>` one or more."""
    return _tokens_match(pattern.split("."), subject.split("."))


def _tokens_match(pattern: list[str], subject: list[str]) -> bool:
    if _ANY_REST in pattern:
        if pattern.index(_ANY_REST) != len(pattern) - 1:
            return False  # NATS refuses a subscription with `>` before the end
        pattern = pattern[:-1]
        if len(subject) <= len(pattern):
            return False
        subject = subject[: len(pattern)]
    return len(pattern) == len(subject) and all(
        wanted in (_ANY_ONE, token) for wanted, token in zip(pattern, subject, strict=True)
    )


def _has_wildcard(subject: str) -> bool:
    return any(token in (_ANY_ONE, _ANY_REST) for token in subject.split("."))


@dataclass(slots=True, eq=False)
class _Subscription(Generic[ReceiverT]):
    order: int
    pattern: list[str]
    queue_group: str
    receiver: ReceiverT


class SubjectTable(Generic[ReceiverT]):
    """Subscriptions by subject.

    Each message goes to one member of a queue group, whatever subjects its members subscribed to.
    The empty string means no group.
    """

    def __init__(self) -> None:
        self._literal: dict[str, list[_Subscription[ReceiverT]]] = {}
        self._wildcard: list[_Subscription[ReceiverT]] = []
        self._next_order = 0

    def add(self, subject: str, queue_group: str, receiver: ReceiverT) -> None:
        """Subscribe `receiver` to `subject`, which may have wildcards."""
        subscription = _Subscription(self._next_order, subject.split("."), queue_group, receiver)
        self._next_order += 1
        if _has_wildcard(subject):
            self._wildcard.append(subscription)
        else:
            self._literal.setdefault(subject, []).append(subscription)

    def remove(self, subject: str, receiver: ReceiverT) -> None:
        """Undo `add`; nothing happens if `receiver` is not subscribed."""
        if _has_wildcard(subject):
            self._wildcard = [one for one in self._wildcard if one.receiver is not receiver]
            return
        left = [one for one in self._literal.get(subject, ()) if one.receiver is not receiver]
        if left:
            self._literal[subject] = left
        else:
            self._literal.pop(subject, None)

    def receivers(self, subject: str, choose: Callable[[int], int]) -> list[ReceiverT]:
        """Return the receivers of a message on `subject`, in the order of subscription.

        Args:
            subject: the subject of the message.
            choose: picks a member of a queue group: takes their number, returns an index.
        """
        subscriptions = self._literal.get(subject, [])
        if self._wildcard:
            tokens = subject.split(".")
            covering = [one for one in self._wildcard if _tokens_match(one.pattern, tokens)]
            subscriptions = sorted([*subscriptions, *covering], key=lambda one: one.order)
        if not any(one.queue_group for one in subscriptions):
            return [one.receiver for one in subscriptions]
        groups: dict[str, list[_Subscription[ReceiverT]]] = {}
        for one in subscriptions:
            if one.queue_group:
                groups.setdefault(one.queue_group, []).append(one)
        chosen = {id(members[choose(len(members))]) for members in groups.values()}
        return [one.receiver for one in subscriptions if not one.queue_group or id(one) in chosen]
