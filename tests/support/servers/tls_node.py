"""A real server that speaks TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from liftbridge_aio import TLS, Client, ClientOptions, LiftbridgeError
from support.certificates import Certificates, Pair
from support.servers.node import LiftbridgeNode, ServerDidNotStart, Setting

STREAMS: Final = ("open", "closed")
"""Streams that every server of these tests has."""
MODEL: Final = """
[request_definition]
r = sub, obj, act
[policy_definition]
p = sub, obj, act
[policy_effect]
e = some(where (p.eft == allow))
[matchers]
m = r.sub == p.sub && r.obj == p.obj && r.act == p.act
"""
"""A model of casbin: whom a rule names, to what, for which method, all of them to the letter."""


def server_settings(
    certificates: Certificates, pair: Pair, *, wants_certificates: bool = False
) -> dict[str, Setting]:
    """The keys of the server's YAML that make it speak TLS."""
    settings: dict[str, Setting] = {"tls.key": str(pair.key), "tls.cert": str(pair.cert)}
    if wants_certificates:
        settings |= {
            "tls.client.auth.enabled": True,
            "tls.client.auth.ca": str(certificates.ca),
        }
    return settings


def policy_settings(folder: Path, rules: str) -> dict[str, Setting]:
    """The keys that make it ask a policy, whose rules are lines of casbin's."""
    model, policy = folder / "model.conf", folder / "policy.csv"
    model.write_text(MODEL)
    policy.write_text(rules)
    return {
        "tls.client.authz.enabled": True,
        "tls.client.authz.model": str(model),
        "tls.client.authz.policy": str(policy),
    }


def start(
    binary: Path, folder: Path, kind: str, settings: Mapping[str, Setting], tls: TLS
) -> LiftbridgeNode:
    """Start a server, and wait until it can be used by who comes with `tls`.

    Raises:
        ServerDidNotStart: it was not ready in time.
    """
    settings = {"cursors.stream.partitions": 1, **settings}
    node = LiftbridgeNode(binary, folder, kind, settings)
    node.launch()
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _wait_ready(node.address, tls)).result()
    except BaseException as error:
        node.kill()
        if not isinstance(error, LiftbridgeError):
            raise
        raise ServerDidNotStart(
            f"the server was not ready in time: {error}\n{node.log[-2000:]}"
        ) from error
    return node


async def _wait_ready(address: str, tls: TLS) -> None:
    async with asyncio.timeout(30):
        client = Client(address, options=ClientOptions(tls=tls))
        try:
            await client.wait_ready(timeout=30)
            for stream in STREAMS:
                await client.create_stream(stream, exist_ok=True, timeout=30)
        finally:
            await client.aclose()
