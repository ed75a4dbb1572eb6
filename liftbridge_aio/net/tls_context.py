"""TLS for connections: the client's SSLContext, and a probe for servers that require TLS."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.errors import TLSFailed
from liftbridge_aio.tls import TLS, NoPassword, ask_for, file_problem

logger = logging.getLogger("liftbridge_aio.net")

_PROBE_TIMEOUT: Final = 1.0


class ClientTLS:
    """Makes the SSLContext of a client's connections, again when its files change.

    Args:
        options: the user's.
    """

    def __init__(self, options: TLS) -> None:
        self.options = options
        self._made: ssl.SSLContext | None = None
        self._made_of: tuple[tuple[int, int, int] | None, ...] = ()
        self._warned = False

    @property
    def shows_certificate(self) -> bool:
        """True if the client presents a certificate, as far as can be known."""
        return self.options.cert is not None or self.options.context is not None

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection; files are read again if they have changed.

        If changed files cannot be used, they are probably just being replaced: the context made
        before stays in use, and the next connection reads them again.

        Raises:
            CallFailure: a file cannot be used, and there is no earlier context.
        """
        given = self.options.context
        if given is not None:
            # gRPC servers refuse clients that do not offer h2; a context does not show its offer.
            given.set_alpn_protocols(["h2"])
            return given
        stamps = tuple(_stamp(path) for path in _files(self.options))
        if self._made is not None and stamps == self._made_of:
            return self._made
        try:
            self._made = _context(self.options)
        except CallFailure as failure:
            if self._made is None:
                raise
            if not self._warned:
                self._warned = True
                logger.warning("%s; connections use the files as read before", failure.text)
        else:
            self._made_of = stamps
            self._warned = False
        return self._made


def _files(options: TLS) -> list[str | os.PathLike[str]]:
    return [path for path in (options.ca, options.cert, options.key) if path is not None]


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # the latter for invalid paths
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _context(options: TLS) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    ca, cert = options.ca, options.cert
    if ca is None:
        context.load_default_certs()
    else:
        _load(f"ca={os.fspath(ca)!r}", lambda: context.load_verify_locations(ca), authorities=True)
    if cert is not None:
        what = f"cert={os.fspath(cert)!r}"
        if options.key is not None:
            what += f" with key={os.fspath(options.key)!r}"
        password = ask_for(options.key_password)
        _load(
            what,
            lambda: context.load_cert_chain(cert, options.key, password),
            key_apart=options.key is not None,
        )
    return context


def _load(what: str, load: Callable[[], None], **of_what: bool) -> None:
    try:
        load()
    except (OSError, ValueError, NoPassword) as error:
        text = f"{what} cannot be used: {file_problem(error, **of_what)}"
    else:
        return
    # Without the cause: whether OpenSSL's errors may show secrets is not ours to promise.
    raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT, unusable=TLSFailed) from None


async def speaks_tls(address: str) -> bool:
    """Return True if a server answers a TLS handshake. Takes a second at most; may be cancelled.

    The server's certificate is not verified, and nothing is sent after the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, host, port, ssl=context
            )
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # a refusal by TLS alert
    except (OSError, TimeoutError):
        return False
    transport.abort()
    return True
