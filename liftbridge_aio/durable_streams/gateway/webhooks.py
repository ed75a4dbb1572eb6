"""Webhooks: wakes that are signed and sent over HTTP, and the keys that verify them.

Each gateway signs with a key of its own, which never leaves its process; the public halves of all
are registered beside the streams, so that any gateway can name them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from liftbridge_aio.durable_streams.core.parsing import parse_json
from liftbridge_aio.durable_streams.core.records import decode_record
from liftbridge_aio.durable_streams.core.subscriptions import is_public

from .streams import PREFIX, Streams

try:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError as error:
    raise ImportError(
        f"cryptography is missing ({error}): pip install 'liftbridge-aio[durable-streams]'"
    ) from error

logger = logging.getLogger("liftbridge_aio.durable_streams")

_KEY: Final = "key:"
_KEPT: Final = 2 * 86_400.0
"""Seconds for which a public key is named after it was registered last."""
_TIMEOUT: Final = 10.0
_MOST_ANSWERED: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Key:
    """A public key, as it is registered."""

    x: str
    """In base64, for a JSON Web Key."""
    until: float
    """When it is removed, in seconds since 1970."""


class Webhooks:
    """Signs and sends wakes.

    Args:
        streams: whose registry has the public keys.
        public_url: how receivers reach the gateway; None: as creators of subscriptions do.
    """

    # State, changed only in the event loop: `_keys` by `_apply`, `root` by requests.

    def __init__(self, streams: Streams, public_url: str | None) -> None:
        self.root = public_url
        self.key_id = ""
        self._streams = streams
        self._private = Ed25519PrivateKey.generate()
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = f"ds_{hashlib.sha256(public).hexdigest()[:16]}"
        self._x = _base64(public)
        self._keys: dict[str, _Key] = {}
        streams.registry.on_record(_KEY, self._apply)

    def _apply(self, name: str, value: bytes) -> None:
        if value:
            self._keys[name] = decode_record(_Key, value)
        else:
            self._keys.pop(name, None)

    async def register(self) -> None:
        """Register the public key, and remove those that are old. Cancelling may leave it there.

        Raises:
            LiftbridgeError: it could not be registered.
        """
        key = _Key(self._x, time.time() + _KEPT)
        value = json.dumps(asdict(key)).encode()
        await self._streams.registry.record(_KEY + self.key_id, lambda: value)
        for name, key in list(self._keys.items()):
            if key.until < time.time():
                await self._streams.registry.record(_KEY + name, lambda: b"")

    def public_keys(self) -> dict[str, Any]:
        """Return the public keys, as a set of JSON Web Keys."""
        fixed = {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig"}
        return {"keys": [{**fixed, "kid": kid, "x": key.x} for kid, key in self._keys.items()]}

    def url(self, path: str) -> str:
        """Return the URL of a path below the root of streams."""
        return f"{self.root}{PREFIX}{path}"

    def signature(self, body: bytes) -> str:
        """Return the header that signs a body now."""
        moment = int(time.time())
        signed = self._private.sign(b"%d.%b" % (moment, body))
        return f"t={moment},kid={self.key_id},ed25519={_base64(signed)}"

    async def deliver(self, name: str, url: str, wake: dict[str, Any]) -> bool | None:
        """Send a wake; return True if it is done, False if it failed, None if it goes on.

        Cancelling leaves it open if it has arrived.
        """
        callback = self.url(f"__ds/subscriptions/{name}/callback")
        body = json.dumps({**wake, "callback_url": callback}, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", "Webhook-Signature": self.signature(body)}
        try:
            await _check_host(url)
            async with (
                asyncio.timeout(_TIMEOUT),
                httpx2.AsyncClient(follow_redirects=False, trust_env=False) as http,
                http.stream("POST", url, content=body, headers=headers) as answer,
            ):
                if not answer.is_success:
                    logger.warning("the webhook of %s answered %d", name, answer.status_code)
                    return False
                said = b""
                async for part in answer.aiter_bytes():
                    said += part
                    if len(said) > _MOST_ANSWERED:
                        return None
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            logger.warning("the webhook of %s was not delivered: %s", name, error)
            return False
        try:
            found = parse_json(said)
        except ValueError:
            return None
        return True if isinstance(found, dict) and found.get("done") is True else None


async def _check_host(url: str) -> None:
    """Refuse a name that leads into a private network.

    Raises:
        OSError: it does, or leads nowhere.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        return  # of this machine
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    if not all(is_public(str(address[0])) for *_, address in found):
        raise OSError(f"{parts.hostname} is an address of a private network")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
