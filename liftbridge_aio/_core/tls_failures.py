"""Turns errors of OpenSSL into failures that say what is wrong with a TLS connection. Pure."""

from __future__ import annotations

import ssl
from typing import Final

from liftbridge_aio._core.status import CallFailure, Code, Reach
from liftbridge_aio.errors import ClientNotTrusted, ConnectionFailed, ServerNotTrusted, TLSFailed

_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAME: Final = frozenset({62, 64})  # host name, IP address
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})

_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
)
"""OpenSSL's reasons for an answer that is not TLS."""

_NO_AGREEMENT: Final = (
    "PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "NO_APPLICATION_PROTOCOL",
    "HANDSHAKE_FAILURE",
    "INSUFFICIENT_SECURITY",
    "NO_CIPHERS_AVAILABLE",
    "UNRECOGNIZED_NAME",
)

_ALERTS: Final = (
    ("CERTIFICATE_REQUIRED", "requires a certificate of the client, which presents none"),
    ("UNKNOWN_CA", "does not know the authority that signed the client's certificate"),
    ("CERTIFICATE_EXPIRED", "says that the client's certificate is not valid at this time"),
    ("CERTIFICATE_REVOKED", "says that the client's certificate was revoked"),
    ("CERTIFICATE_UNKNOWN", "does not accept the client's certificate"),
    ("UNSUPPORTED_CERTIFICATE", "does not accept the client's certificate"),
    ("BAD_CERTIFICATE", "does not accept the client's certificate"),
    ("ACCESS_DENIED", "does not accept the client's certificate"),
)
"""Alerts of servers about the client's certificate, by a part of OpenSSL's reason."""


def tls_failure(address: str, error: ssl.SSLError, *, shows_certificate: bool) -> CallFailure:
    """Return the failure for an error of a TLS connection.

    Args:
        address: the server's.
        error: OpenSSL's.
        shows_certificate: True if the client presented a certificate.
    """
    kind, text = meaning_of(error, shows_certificate=shows_certificate)
    failure = CallFailure(Code.UNAVAILABLE, f"{address} {text}", Reach.NOT_SENT, unusable=kind)
    failure.__cause__ = error
    return failure


def meaning_of(
    error: ssl.SSLError, *, shows_certificate: bool
) -> tuple[type[ConnectionFailed] | None, str]:
    """Return the error class, None for a temporary error, and a text about the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerNotTrusted, _distrust(error)
    reason = error.reason or ""
    if any(name in reason for name in _NO_TLS):
        return TLSFailed, "does not speak TLS, but this client was configured with it"
    if "ALERT" in reason:
        for name, text in _ALERTS:
            if name in reason:
                return ClientNotTrusted, text
        if "HANDSHAKE_FAILURE" in reason and not shows_certificate:
            # TLS 1.2 has no other alert for it; it can also mean that no cipher is in common.
            return (
                ClientNotTrusted,
                "aborted the handshake, perhaps for lack of a client certificate",
            )
    if any(name in reason for name in _NO_AGREEMENT):
        return TLSFailed, f"and this client have no TLS version or cipher in common ({reason})"
    # Such as an end in the middle, which happens with servers that are shutting down.
    return None, f"aborted the TLS handshake ({error})"


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    code = getattr(error, "verify_code", 0)
    said = getattr(error, "verify_message", "") or error.reason or "verification failed"
    if code in _OTHER_NAME:
        return f"presents a certificate for another name: {said}"
    if code == _EXPIRED:
        return "presents a certificate that has expired"
    if code == _NOT_YET_VALID:
        return "presents a certificate that is not valid yet"
    if code in _UNKNOWN_AUTHORITY:
        return f"presents a certificate of an authority that is not trusted: {said}"
    return f"presents a certificate that is not accepted: {said}"
