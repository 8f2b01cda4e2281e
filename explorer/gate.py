"""Which requests the server answers: those of its own pages, under the server's own names, with
bodies of bounded size. Otherwise any page that is open in the same browser could ask, and rate
under somebody's name."""

import os
import re

from fastapi import FastAPI, Request, Response
from starlette.datastructures import Headers
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from capgrade.schemas.hosts import address_of

LARGEST_BODY = 20 * 2**20  # bytes of a request's body: an uploaded picture
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def add_gate(app: FastAPI, host: str) -> None:
    """Guard the pages of a server that listens on `host`.

    Its names are those of loopback, the host itself, and a Space's. Other names may point here too:
    anybody can point a name anywhere (DNS rebinding), and a page under it would be of one origin
    with this server.
    """
    address, space = address_of(host), _space_host()
    named = f"[{host}]" if address is not None and address.version == 6 else host
    hosts = [*_LOOPBACK, named, *([space] if space else [])]
    everywhere = address is not None and address.is_unspecified
    trusted = _TrustedAddresses if everywhere else TrustedHostMiddleware
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=LARGEST_BODY)
    app.add_middleware(BaseHTTPMiddleware, dispatch=_refuse_other_origins)
    app.add_middleware(trusted, allowed_hosts=hosts, www_redirect=False)


class _TrustedAddresses(TrustedHostMiddleware):
    """Trusts any address beside the names: a server that listens on all of them does not know how
    it is reached, from outside of a container, say. An address, unlike a name, points nowhere else.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        is_address = address_of(re.sub(r":\d+$", "", host).strip("[]")) is not None
        await (self.app if is_address else super().__call__)(scope, receive, send)


async def _refuse_other_origins(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Browsers name the origin of the asking page in every request, except for links and pictures.
    Those only read, and do not tell the other page what they read."""
    origin = request.headers.get("origin")
    own = {request.headers.get("host"), _space_host()}  # they differ behind the proxy of a Space
    if origin is not None and origin.partition("//")[2] not in own:
        return PlainTextResponse("asked by a page of another origin", status_code=403)
    return await call_next(request)


def _space_host() -> str | None:
    """The name of the Space that this runs in, as the hub sets it."""
    return os.environ.get("SPACE_HOST") or None
