"""Which version of the server a broker behaves like."""

from __future__ import annotations

import enum


class ServerProfile(enum.Enum):
    """The versions that differ in what a client sees."""

    V1_9 = "v1.9.0"
    """The last release: it reads forward whatever a Subscribe asks for."""
    NEWER = "newer"
    """What came after: it reads in reverse."""

    @property
    def reads_in_reverse(self) -> bool:
        """Whether a Subscribe may go backwards."""
        return self is ServerProfile.NEWER
