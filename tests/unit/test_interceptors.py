from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from liftbridge_aio import ClientOptions, Interceptor, Message, WrongType
from liftbridge_aio.interceptors import chained


class Named(Interceptor):
    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    async def process(self, message: Message, handle: Callable[[Message], Awaitable[None]]) -> None:
        self.seen.append(f"{self.name} begins")
        await handle(message)
        self.seen.append(f"{self.name} ends")


class Incomplete:
    async def publish(self, message: Any, send: Any) -> Any:
        """Pass the message on."""
        return await send(message)


async def test_the_first_interceptor_is_the_outermost() -> None:
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(message.value.decode())

    interceptors = [Named("outer", seen), Named("inner", seen)]
    await chained([each.process for each in interceptors], handle)(
        Message("s", 0, 0, b"", b"handled", 0)
    )
    assert seen == ["outer begins", "inner begins", "handled", "inner ends", "outer ends"]


def test_options_keep_interceptors_as_a_tuple() -> None:
    given = [Named("one", [])]
    options = ClientOptions(interceptors=given)
    given.clear()
    assert [type(each) for each in options.interceptors] == [Named]


@pytest.mark.parametrize(
    ("interceptors", "text"),
    [
        ("text", "publish"),
        (Named("alone", []), "sequence"),
        ([Named], r"Named\(\)"),
        ([Incomplete()], "process"),
        ([None], "publish"),
    ],
)
def test_what_is_no_interceptor_is_refused(interceptors: Any, text: str) -> None:
    with pytest.raises(WrongType, match=text):
        ClientOptions(interceptors=interceptors)
