"""Finds the nsqds of a topic by nsqlookupd."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from .errors import LookupFailed, NsqError
from .http import LookupdHttp
from .options import ConsumerOptions

logger = logging.getLogger("liftbridge_aio.nsq")


class Discovery:
    """Asks several nsqlookupds, which do not know each other's nsqds, for those of a topic.

    Args:
        urls: of nsqlookupds.
        topic: the topic.
        options: of the consumer.
    """

    def __init__(self, urls: Sequence[str], topic: str, options: ConsumerOptions) -> None:
        self._topic = topic
        self._clients = [
            LookupdHttp(url, timeout=options.lookup_timeout, auth_secret=options.auth_secret)
            for url in urls
        ]

    async def find(self) -> set[str]:
        """Return the addresses that any nsqlookupd knows. Cancelling abandons the queries.

        Raises:
            LookupFailed: none answered.
        """
        answers = await asyncio.gather(
            *(client.lookup(self._topic) for client in self._clients), return_exceptions=True
        )
        found: set[str] = set()
        errors = []
        for client, answer in zip(self._clients, answers, strict=True):
            if isinstance(answer, NsqError):
                errors.append(answer)
                logger.warning("nsqlookupd at %s did not answer: %s", client.url, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.update(each.address for each in answer)
        if len(errors) == len(self._clients):
            raise LookupFailed(f"no nsqlookupd answered: {errors[0].message}") from errors[0]
        return found

    async def aclose(self) -> None:
        """Close the HTTP connections. Cancelling leaves some to the garbage collector."""
        for client in self._clients:
            await client.aclose()
