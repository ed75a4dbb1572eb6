"""The TLS option of a broker: its certificate, and whether clients need one."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field

from liftbridge_aio.errors import WrongType
from liftbridge_aio.tls import NoPassword, ask_for, check_path, check_string, file_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTLS:
    """TLS 1.2 or later for all connections of a broker.

    Files are in PEM format, and are read by each start of the broker.
    """

    cert: str | os.PathLike[str]
    """File with the broker's certificate, followed by the intermediate ones (`tls.cert` of a real
    server)."""
    key: str | os.PathLike[str] | None = None
    """File with its private key (`tls.key`); None: it is in the file of the certificate."""
    key_password: str | None = field(default=None, repr=False)
    """Password of an encrypted private key."""
    client_ca: str | os.PathLike[str] | None = None
    """File with the authorities of client certificates: clients without one are refused
    (`tls.client.auth.ca`); None: clients need no certificate."""

    def __post_init__(self) -> None:
        """Check every field; no file is opened.

        Raises:
            InvalidRequest: a path is not valid.
            WrongType: a value has the wrong type.
        """
        if self.cert is None:
            raise WrongType("cert is the path of a PEM file, not None")
        for name in ("cert", "key", "client_ca"):
            check_path(getattr(self, name), name)
        check_string(self.key_password, "key_password")

    def context(self) -> ssl.SSLContext:
        """Read the files and return the context.

        Raises:
            OSError: one of them cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # TLS 1.2 has it, HTTP/2 forbids it
        context.set_alpn_protocols(["h2"])
        key_apart = self.key is not None
        try:
            context.load_cert_chain(self.cert, self.key, ask_for(self.key_password))
        except (OSError, ValueError, NoPassword) as error:
            files = f"cert={self.cert!s}" + (f" with key={self.key!s}" if key_apart else "")
            raise OSError(
                f"{files} cannot be used for TLS: {file_problem(error, key_apart=key_apart)}"
            ) from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                problem = file_problem(error, authorities=True)
                raise OSError(
                    f"client_ca={self.client_ca!s} cannot be used for TLS: {problem}"
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context
