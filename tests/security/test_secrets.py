"""No secret is told: not in representations, errors, logs or events, whatever goes wrong."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from liftbridge_aio import TLS, Client, ClientOptions, Hook, LiftbridgeError
from liftbridge_aio.broker import BrokerTLS, EmbeddedBroker
from liftbridge_aio.cli.arguments import BadArgument
from liftbridge_aio.cli.connection import ConnectionFlags
from liftbridge_aio.spark.core.connection_options import ConnectionOptions
from support.certificates import PASSWORD, Certificates, Pair


def watching(told: list[str]) -> Hook:
    """A hook that notes all that it is told."""

    def note(_: Hook, event: object) -> None:
        told.append(repr(event))
        told.extend(everything_of(getattr(event, "error", None)))

    names = [name for name, _ in inspect.getmembers(Hook, inspect.isfunction)]
    hook: Hook = type("Watching", (Hook,), dict.fromkeys(names, note))()
    return hook


def everything_of(error: object) -> list[str]:
    """All that an error shows, and those that caused it."""
    if not isinstance(error, BaseException):
        return []
    causes = [getattr(error, "__cause__", None), getattr(error, "__context__", None)]
    shown = [repr(error), str(error), repr(vars(error)), *traceback.format_exception(error)]
    return [*shown, *(text for cause in causes for text in everything_of(cause))]


async def test_nothing_tells_a_secret(
    certificates: Certificates, admin: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    locked = certificates.locked(admin)
    pem = locked.read_text().splitlines()[1]
    good: dict[str, Any] = {
        "ca": certificates.ca,
        "cert": admin.cert,
        "key": locked,
        "key_password": PASSWORD,
    }
    pair = certificates.server
    server_key = certificates.locked(pair)
    server = BrokerTLS(
        cert=pair.cert, key=server_key, key_password=PASSWORD, client_ca=certificates.ca
    )
    async with EmbeddedBroker(tls=server) as broker, EmbeddedBroker() as plain:
        for address, change in (
            (broker.address, {}),
            (broker.address, {"ca": certificates.other_ca}),
            (broker.address, {"server_name": "other.example"}),
            (broker.address, {"key_password": f"not-{PASSWORD}"}),
            (broker.address, {"key": certificates.server.key}),
            (broker.address, {"key": "none.pem"}),
            (plain.address, {}),
        ):
            options = ClientOptions(tls=TLS(**good | change), hook=watching(told))
            told += [repr(options), repr(options.tls)]
            try:
                async with Client(address, options=options) as client:
                    told += [repr(client), repr(client.statistics()), repr(vars(client))]
                    await client.create_stream("s")
                    await client.publish("s", b"v")
            except LiftbridgeError as error:
                told += everything_of(error)
        told += [repr(broker), repr(server), repr(dataclasses.replace(server))]
    with pytest.raises(OSError, match="cannot be used") as caught:
        async with EmbeddedBroker(tls=dataclasses.replace(server, key_password=f"x{PASSWORD}")):
            pass
    told += everything_of(caught.value)
    told += [record.getMessage() + repr(record.args) for record in caplog.records]
    told += [str(record.exc_text) + repr(record.exc_info) for record in caplog.records]
    assert len(told) > 50, "something was told at all"
    for text in told:
        assert PASSWORD not in text
        assert pem not in text
        assert "-----BEGIN" not in text


MISTAKES: dict[str, Callable[[str], object]] = {
    "pem as a path": lambda secret: TLS(cert="c", key=f"-----BEGIN PRIVATE KEY-----{secret}"),
    "pem as bytes": lambda secret: TLS(ca=secret.encode()),  # type: ignore[arg-type]
    "a password in a URL": lambda secret: Client(f"liftbridge+tls://a?password={secret}"),
    "a user in a URL": lambda secret: Client(f"liftbridge+tls://ann:{secret}@a"),
    "a user in an address": lambda secret: Client(f"ann:{secret}@a"),
    "a password of another type": lambda secret: TLS(
        cert="c",
        key_password=[secret],  # type: ignore[arg-type]
    ),
    "a URL without its beginning": lambda secret: Client(f"a:9292?key_password={secret}"),
    "a name and a password": lambda secret: Client(f"liftbridge+tls://ann:{secret}"),
    "a name and a password in an address": lambda secret: Client(f"ann:{secret}"),
    "a name and a password in percents": lambda secret: Client(
        f"liftbridge+tls://ann%3A{secret}%40a"
    ),
    "pem as an address": lambda secret: Client(f"-----BEGIN PRIVATE KEY-----\n{secret}"),
    "pem as a path of a broker": lambda secret: BrokerTLS(cert=f"-----BEGIN {secret}"),
    "pem as bytes of a broker": lambda secret: BrokerTLS(cert=secret.encode()),  # type: ignore[arg-type]
    "a password of another type of a broker": lambda secret: BrokerTLS(
        cert="c",
        key_password=[secret],  # type: ignore[arg-type]
    ),
    "something else as a broker's TLS": lambda secret: EmbeddedBroker(
        tls=secret,  # type: ignore[arg-type]
    ),
    "a URL without its beginning, for the CLI": lambda secret: ConnectionFlags(
        servers=f"a:9292?key_password={secret}"
    ).client(),
    "a URL without its beginning, on Spark": lambda secret: ConnectionOptions.parse(
        {"servers": f"a:9292?key_password={secret}"}
    ),
    "a variable": lambda secret: TLS.from_env({"LIFTBRIDGE_TLS": secret}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_secret_in_the_wrong_place_is_not_repeated(mistake: str) -> None:
    with pytest.raises((LiftbridgeError, BadArgument)) as caught:
        MISTAKES[mistake](PASSWORD)
    shown: Any = everything_of(caught.value)[:3]
    assert [text for text in shown if PASSWORD in text] == []
