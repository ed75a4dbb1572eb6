"""The endpoints of subscriptions, below `/v1/stream/__ds/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from liftbridge_aio.durable_streams.core.requests import RequestRefused
from liftbridge_aio.durable_streams.core.subscriptions import (
    Subscription,
    SubscriptionRefused,
    parse_answer,
    parse_object,
    parse_paths,
    parse_subscription,
)
from liftbridge_aio.errors import LiftbridgeError

from .bodies import Bodies, Body
from .responses import NO_STORE, refusal, unavailable
from .streams import PREFIX
from .subscriptions import Subscriptions

_MOST: Final = 65_536
RESERVED: Final = f"{PREFIX}__ds"
"""The path below which no streams are."""
_METHODS: Final = ["GET", "PUT", "POST", "DELETE"]
_ONE: Final = f"{RESERVED}/subscriptions/{{id}}"

Handler = Callable[[Request], Awaitable[Response]]


class SubscriptionEndpoint:
    """The routes of subscriptions.

    Args:
        subscriptions: the subscriptions.
        bodies: what reads bodies.
    """

    def __init__(self, subscriptions: Subscriptions, bodies: Bodies) -> None:
        self._subscriptions = subscriptions
        self._bodies = bodies

    def routes(self) -> Iterator[Route]:
        """Return the routes."""
        yield Route(f"{RESERVED}/jwks.json", _answering(self._keys), methods=["GET"])
        one: dict[str, Handler] = {"PUT": self._put, "GET": self._get, "DELETE": self._delete}
        for method, handler in one.items():
            yield Route(_ONE, _answering(handler), methods=[method])
        yield Route(f"{_ONE}/streams", _answering(self._add), methods=["POST"])
        yield Route(f"{_ONE}/streams/{{path:path}}", _answering(self._remove), methods=["DELETE"])
        actions: dict[str, Handler] = {
            "claim": self._claim,
            "ack": self._ack,
            "release": self._release,
            "callback": self._callback,
        }
        for name, handler in actions.items():
            yield Route(f"{_ONE}/{name}", _answering(handler), methods=["POST"])
        yield Route(RESERVED, _answering(_nothing), methods=_METHODS)
        yield Route(f"{RESERVED}/{{rest:path}}", _answering(_nothing), methods=_METHODS)

    async def _body(self, request: Request) -> bytes:
        return await self._bodies.read(Body(request, _MOST))

    async def _keys(self, _: Request) -> Response:
        webhooks = self._subscriptions.webhooks
        keys = {"keys": []} if webhooks is None else webhooks.public_keys()
        return JSONResponse(keys, media_type="application/jwk-set+json")

    async def _put(self, request: Request) -> Response:
        webhooks = self._subscriptions.webhooks
        if webhooks is not None and webhooks.root is None:
            webhooks.root = f"{request.url.scheme}://{request.url.netloc}"
        wanted = parse_subscription(_name(request), await self._body(request))
        found, new = await self._subscriptions.create(wanted)
        return JSONResponse(self._shown(found), 201 if new else 200, NO_STORE)

    async def _get(self, request: Request) -> Response:
        return JSONResponse(self._shown(self._subscriptions.find(_name(request))), headers=NO_STORE)

    def _shown(self, subscription: Subscription) -> dict[str, Any]:
        """Return a subscription as it is shown, without what only its worker knows."""
        shown: dict[str, Any] = {
            "id": subscription.id,
            "type": subscription.kind,
            "streams": [
                {
                    "path": path,
                    "link_type": "explicit" if link.explicit else "glob",
                    "acked_offset": link.acked,
                }
                for path, link in subscription.links.items()
            ],
            "lease_ttl_ms": subscription.lease_ms,
            "created_at": subscription.created_at,
            "status": "failed" if subscription.failures else "active",
        }
        for name in ("pattern", "wake_stream", "description"):
            if (value := getattr(subscription, name)) is not None:
                shown[name] = value
        webhooks = self._subscriptions.webhooks
        if subscription.webhook is not None:
            shown["webhook"] = {"url": subscription.webhook}
            if webhooks is not None:
                shown["webhook"]["signing"] = {
                    "alg": "ed25519",
                    "kid": webhooks.key_id,
                    "jwks_url": webhooks.url("__ds/jwks.json"),
                }
        return shown

    async def _delete(self, request: Request) -> Response:
        await self._subscriptions.delete(_name(request))
        return Response(status_code=204)

    async def _add(self, request: Request) -> Response:
        paths = parse_paths(parse_object(await self._body(request)))
        await self._subscriptions.add(_name(request), paths)
        return Response(status_code=204)

    async def _remove(self, request: Request) -> Response:
        await self._subscriptions.remove(_name(request), request.path_params["path"].strip("/"))
        return Response(status_code=204)

    async def _claim(self, request: Request) -> Response:
        worker = parse_object(await self._body(request)).get("worker")
        if not isinstance(worker, str) or not worker:
            raise SubscriptionRefused(400, "INVALID_REQUEST", "a claim names its worker")
        return JSONResponse(await self._subscriptions.claim(_name(request), worker), 200, NO_STORE)

    async def _ack(self, request: Request) -> Response:
        return await self._answer(request, pulled=True)

    async def _callback(self, request: Request) -> Response:
        return await self._answer(request, pulled=False)

    async def _answer(self, request: Request, *, pulled: bool) -> Response:
        answer = parse_answer(await self._body(request))
        more = await self._subscriptions.answer(
            _name(request), answer, _token(request), pulled=pulled
        )
        return JSONResponse({"ok": True, "next_wake": more}, 200, NO_STORE)

    async def _release(self, request: Request) -> Response:
        answer = parse_answer(await self._body(request))
        await self._subscriptions.release(_name(request), answer, _token(request))
        return Response(status_code=204)


def _name(request: Request) -> str:
    name: str = request.path_params["id"]
    return name


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise SubscriptionRefused(401, "TOKEN_INVALID", "the token of the wake is missing")
    return token.strip()


async def _nothing(_: Request) -> Response:
    raise RequestRefused(404, "there is nothing below __ds but subscriptions")


def _answering(handler: Handler) -> Handler:
    """Return a handler that answers what is refused."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except SubscriptionRefused as refused:
            error = {"code": refused.code, "message": refused.text, **refused.more}
            return JSONResponse({"error": error}, refused.status, NO_STORE)
        except RequestRefused as refused:
            return refusal(refused)
        except LiftbridgeError as error:
            return unavailable(error)

    return answer
