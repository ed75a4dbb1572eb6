"""Certificates for tests: authorities, and what they sign, as files."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

PASSWORD: Final = "correct-horse-battery-staple"  # noqa: S105 - of keys made here


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    cert: Path
    key: Path


class Certificates:
    """An authority and what it has signed, and another authority that nobody trusts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self._stranger = trustme.CA()
        self.ca = folder / "ca.pem"
        self.other_ca = folder / "other-ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)
        self._stranger.cert_pem.write_to_path(self.other_ca)
        self.server = self.signed("server", "127.0.0.1", "localhost", "brokers.example")

    def signed(
        self, name: str, *identities: str, expired: bool = False, by_stranger: bool = False
    ) -> Pair:
        """Sign a certificate; `name` is its common name, and that of its files."""
        authority = self._stranger if by_stranger else self._authority
        now = dt.datetime.now(dt.UTC)
        leaf = authority.issue_cert(
            *(identities or (f"{name}@tests",)),
            common_name=name,
            not_before=now - dt.timedelta(days=3),
            not_after=now + dt.timedelta(days=-1 if expired else 1),
        )
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        leaf.cert_chain_pems[0].write_to_path(pair.cert)
        leaf.private_key_pem.write_to_path(pair.key)
        return pair

    def locked(self, pair: Pair) -> Path:
        """Encrypt a private key with PASSWORD; return the file."""
        path = pair.key.with_suffix(".locked")
        key = load_pem_private_key(pair.key.read_bytes(), None)
        protection = BestAvailableEncryption(PASSWORD.encode())
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))
        return path
