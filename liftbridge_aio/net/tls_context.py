"""The SSLContext of a client's connections, made of files and made again when these change."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from liftbridge_aio.errors import TLSFailed
from liftbridge_aio.status import CallFailure, Code, Reach
from liftbridge_aio.tls import TLS, NoPassword, ask_for, file_problem

logger = logging.getLogger("liftbridge_aio.net")


class ClientTLS:
    """What connections of one client need for TLS.

    Args:
        options: what the user said.
    """

    def __init__(self, options: TLS) -> None:
        self.options = options
        self._made: ssl.SSLContext | None = None
        self._made_of: tuple[tuple[int, int, int] | None, ...] = ()
        self._warned = False

    @property
    def shows_certificate(self) -> bool:
        """Whether servers are shown a certificate, as far as that is known."""
        return self.options.cert is not None or self.options.context is not None

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection. Reads files if they are new or have changed.

        Files that could be used before and now cannot are being renewed, most likely: what was
        read before is used on, and they are read again by the next connection.

        Raises:
            CallFailure: a file cannot be used, and none could before.
        """
        given = self.options.context
        if given is not None:
            # Servers of gRPC refuse who does not offer it, and nothing tells what is offered now.
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
                logger.warning("%s; what was read before is used on", failure.text)
        else:
            self._made_of = stamps
            self._warned = False
        return self._made


def _files(options: TLS) -> list[str | os.PathLike[str]]:
    return [path for path in (options.ca, options.cert, options.key) if path is not None]


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # the latter for what can be no path
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
    # Without the cause: no error of OpenSSL's shows secrets, but that is not ours to promise.
    raise CallFailure(Code.UNAVAILABLE, text, Reach.NOT_SENT, unfit=TLSFailed) from None
