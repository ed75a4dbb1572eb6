"""Finds out whether a server that says nothing to plain connections wants TLS."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from liftbridge_aio.addresses import parse_address

_TIMEOUT: Final = 1.0


async def speaks_tls(address: str) -> bool:
    """Begin a TLS connection, and drop it. Takes a second at most; may be cancelled.

    Whoever answers is not checked, and told nothing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(_TIMEOUT):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, host, port, ssl=context
            )
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it refuses us, in the words of TLS
    except (OSError, TimeoutError):
        return False
    transport.abort()
    return True
