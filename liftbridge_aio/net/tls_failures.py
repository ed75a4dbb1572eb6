"""What a failed TLS connection means: from OpenSSL's words to ours. Pure."""

from __future__ import annotations

import ssl
from typing import Final

from liftbridge_aio.errors import ClientNotTrusted, ConnectionFailed, ServerNotTrusted, TLSFailed
from liftbridge_aio.status import CallFailure, Code, Reach

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
"""What OpenSSL says of an answer that is no TLS."""

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
    ("CERTIFICATE_REQUIRED", "asks for a certificate of the client, which shows none"),
    ("UNKNOWN_CA", "does not know the authority that signed the client's certificate"),
    ("CERTIFICATE_EXPIRED", "says that the client's certificate is not valid at this time"),
    ("CERTIFICATE_REVOKED", "says that the client's certificate was revoked"),
    ("CERTIFICATE_UNKNOWN", "does not accept the client's certificate"),
    ("UNSUPPORTED_CERTIFICATE", "does not accept the client's certificate"),
    ("BAD_CERTIFICATE", "does not accept the client's certificate"),
    ("ACCESS_DENIED", "does not accept the client's certificate"),
)
"""What servers say of the client's certificate, by a part of OpenSSL's name for it."""


def tls_failure(address: str, error: ssl.SSLError, *, shows_certificate: bool) -> CallFailure:
    """Turn the error of a TLS connection into our failure.

    Args:
        address: the server's.
        error: what OpenSSL said.
        shows_certificate: whether the client showed a certificate.
    """
    kind, text = _meaning(error, shows_certificate=shows_certificate)
    failure = CallFailure(Code.UNAVAILABLE, f"{address} {text}", Reach.NOT_SENT, unfit=kind)
    failure.__cause__ = error
    return failure


def _meaning(
    error: ssl.SSLError, *, shows_certificate: bool
) -> tuple[type[ConnectionFailed] | None, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerNotTrusted, _distrust(error)
    reason = error.reason or ""
    if any(name in reason for name in _NO_TLS):
        return TLSFailed, "does not speak TLS, and this client is set up to do so"
    if "ALERT" in reason:
        for name, text in _ALERTS:
            if name in reason:
                return ClientNotTrusted, text
        if "HANDSHAKE_FAILURE" in reason and not shows_certificate:
            # All that TLS 1.2 has for it; it may mean that there is no cipher in common, too.
            return ClientNotTrusted, "broke the handshake off, perhaps for want of a certificate"
    if any(name in reason for name in _NO_AGREEMENT):
        return TLSFailed, f"and this client have no way of TLS in common ({reason})"
    # Such as an end in the middle: that happens to servers which are just ending.
    return None, f"broke the TLS handshake off ({error})"


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    code = getattr(error, "verify_code", 0)
    said = getattr(error, "verify_message", "") or error.reason or "verification failed"
    if code in _OTHER_NAME:
        return f"shows a certificate for another name: {said}"
    if code == _EXPIRED:
        return "shows a certificate that has expired"
    if code == _NOT_YET_VALID:
        return "shows a certificate that is not valid yet"
    if code in _UNKNOWN_AUTHORITY:
        return f"shows a certificate of an authority that is not trusted: {said}"
    return f"shows a certificate that is not accepted: {said}"
