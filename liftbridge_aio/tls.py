"""The TLS option: which servers the client trusts, and how it authenticates itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from ._core.addresses import is_host_name
from .errors import InvalidRequest, WrongType

if TYPE_CHECKING:
    import ssl

_PATHS: Final = ("ca", "cert", "key")
_SWITCH: Final = {"0": False, "false": False, "1": True, "true": True}
_PREFIX: Final = "LIFTBRIDGE_TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Connections over TLS 1.2 or later, to servers whose certificate is checked.

    `TLS()` trusts the authorities that the system trusts. Files are in PEM format and are read when
    a connection is made, again when they have changed, and never before: a renewed certificate
    needs no new client. Keys are named by their files and not passed as text, so that none can get
    into a log. Everything else is possible with a `context` of one's own.
    """

    ca: str | os.PathLike[str] | None = None
    """File with the certificates of the only authorities that are trusted to sign servers'
    certificates; None: those of the system."""
    cert: str | os.PathLike[str] | None = None
    """File with the certificate of this client, followed by the intermediate ones; None: the client
    presents none."""
    key: str | os.PathLike[str] | None = None
    """File with the private key of `cert`; None: it is in the same file."""
    key_password: str | None = field(default=None, repr=False)
    """Decrypts the private key, if it is encrypted."""
    server_name: str | None = None
    """The name in the servers' certificates, if it is not the host of their address. It applies to
    all servers of the cluster."""
    context: ssl.SSLContext | None = None
    """Used instead of all files. The client sets its ALPN protocols to `h2`, on this very object,
    so do not share it with clients of other protocols; everything else is left unchanged, including
    if and how it verifies servers."""

    def __post_init__(self) -> None:
        """Check every field; no file is opened.

        Raises:
            InvalidRequest: a value is invalid, or two exclude each other.
            WrongType: a value has the wrong type.
        """
        # These texts contain no values: one may be a secret in the wrong place.
        for name in _PATHS:
            check_path(getattr(self, name), name)
        for name in ("key_password", "server_name"):
            check_string(getattr(self, name), name)
        if self.server_name is not None and not _can_be_shown(self.server_name):
            raise InvalidRequest("server_name must be a name; by default it is the server's host")
        if self.key is not None and self.cert is None:
            raise InvalidRequest("key requires cert, the file of its certificate")
        if self.context is not None:
            _check_context(self.context)
            if any(getattr(self, name) is not None for name in (*_PATHS, "key_password")):
                raise InvalidRequest("give either a context or files: ca, cert, key, key_password")

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, secure: bool = False
    ) -> Self | None:
        """Read `LIFTBRIDGE_TLS_CA`, `…_CERT`, `…_KEY`, `…_KEY_PASSWORD` and `…_SERVER_NAME`.

        Any of them but the password switches TLS on; so does `LIFTBRIDGE_TLS=1`, and
        `LIFTBRIDGE_TLS=0` keeps it off.

        Args:
            environ: where to look; None means the process's environment.
            secure: True if TLS is required anyway, by a URL for example: then a password alone
                is returned, too.

        Returns:
            The options; None if nothing switches TLS on.

        Raises:
            InvalidRequest: a variable is invalid.
        """
        environ = os.environ if environ is None else environ
        switch = environ.get(_PREFIX, "").strip().lower()
        if switch and switch not in _SWITCH:
            raise InvalidRequest(f"{_PREFIX} must be 0 or 1")
        names = (*_PATHS, "key_password", "server_name")
        values: dict[str, Any] = {
            name: environ[tls_variable(name)] for name in names if tls_variable(name) in environ
        }
        empty = [tls_variable(name) for name, value in values.items() if not value]
        if empty:  # it was meant to switch TLS on, which must not be ignored silently
            raise InvalidRequest(f"{empty[0]} is empty; unset it, or set a value")
        wanted = secure or bool(values.keys() - {"key_password"})
        if not (_SWITCH[switch] if switch else wanted):
            return None
        return cls(**values)


def tls_variable(name: str) -> str:
    """Return the environment variable for a field of `TLS`."""
    return f"{_PREFIX}_{name.upper()}"


class NoPassword(Exception):
    """OpenSSL asks for a password, and none was given."""


def ask_for(password: str | None) -> Callable[[], str]:
    """Return the password callback of a key; without one OpenSSL prompts at the terminal."""

    def answer() -> str:
        if password is None:
            raise NoPassword
        return password

    return answer


def file_problem(error: Exception, *, authorities: bool = False, key_apart: bool = True) -> str:
    """Return what is wrong with files that OpenSSL could not use, without any secret.

    Args:
        error: raised by loading them.
        authorities: True for a file of authorities, False for a certificate with its key.
        key_apart: True if the key was given as a file of its own.
    """
    import ssl  # noqa: PLC0415 - see below

    if isinstance(error, NoPassword):
        return "the private key is encrypted; give its key_password"
    if isinstance(error, ssl.SSLError):
        return _problem_of_ssl(error, authorities=authorities, key_apart=key_apart)
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if authorities:
        return "it contains no certificates"
    return "the password is none that a key can have"  # longer than OpenSSL takes


def _problem_of_ssl(error: ssl.SSLError, *, authorities: bool, key_apart: bool) -> str:
    said = f" ({error.reason})" if error.reason else ""
    if authorities:
        return f"it is no PEM file of certificates{said}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the certificate"
    if error.reason in {"BAD_DECRYPT", "BAD_PASSWORD_READ"}:
        return "the private key cannot be opened with this key_password"
    if not key_apart:
        problem = "it is no PEM file with a certificate and its private key, or that is opened by"
        return f"{problem} another key_password; give key, if it is in another file{said}"
    # Some versions of OpenSSL give the same error for a wrong password.
    return f"it is no PEM file of that kind, or is opened by another password{said}"


def check_string(value: object, name: str) -> None:
    """Refuse a value that is neither None nor a string for UTF-8, without repeating it.

    Raises:
        WrongType: it is neither a string nor None.
        InvalidRequest: it contains a lone surrogate.
    """
    if value is not None and not isinstance(value, str):
        raise WrongType(f"{name} must be a string, not {type(value).__name__}")
    if value is not None:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                f"{name} cannot be encoded as UTF-8: it contains a lone surrogate"
            ) from None


def _can_be_shown(name: str) -> bool:
    """Return True if a certificate can be for this name or address."""
    return is_host_name(name) or (":" in name and "\0" not in name)


def check_path(value: object, name: str) -> None:
    """Refuse a value that is neither a path nor None, without repeating it.

    Raises:
        InvalidRequest: it is not a path, but perhaps the content of the file.
        WrongType: it is something else.
    """
    if value is None:
        return
    if not isinstance(value, str | os.PathLike):
        raise WrongType(f"{name} is the path of a PEM file, not {type(value).__name__}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise WrongType(f"{name} is the path of a PEM file, not one in bytes")
    if not path or "-----BEGIN" in path:
        raise InvalidRequest(f"{name} is the path of a PEM file, not its content")
    if "\0" in path:
        raise InvalidRequest(f"{name} has a NUL in it, which no path has")


def _check_context(context: object) -> None:
    import ssl  # noqa: PLC0415 - who has a context has imported it; others need it when they connect

    if not isinstance(context, ssl.SSLContext):
        raise WrongType(f"context is an ssl.SSLContext, not {type(context).__name__}")
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        raise InvalidRequest("context is for servers; use ssl.create_default_context()")
    oldest = context.minimum_version
    if ssl.TLSVersion.SSLv3 <= oldest < ssl.TLSVersion.TLSv1_2:
        raise InvalidRequest("context allows versions before TLS 1.2, which HTTP/2 forbids")
