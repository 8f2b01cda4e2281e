"""Which requests the server answers: those that its own pages make, under the server's own names, with bodies of
bounded size. Otherwise any page that is open in the same browser could ask, and rate under somebody's name."""

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

    Its names are those of loopback, the host itself, and a Space's. Other names may point here too, and a page under
    one of them would be of one origin with this server: a name that anybody can point anywhere (DNS rebinding).
    """
    space, address = os.environ.get("SPACE_HOST", ""), address_of(host)  # the former as the hub sets it
    named = f"[{host}]" if address is not None and address.version == 6 else host
    everywhere = address is not None and address.is_unspecified
    names = [name for name in (*_LOOPBACK, named, space) if name]
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=LARGEST_BODY)
    app.add_middleware(BaseHTTPMiddleware, dispatch=_refuse_other_origins)
    app.add_middleware(_TrustedAddresses if everywhere else TrustedHostMiddleware, names, www_redirect=False)


class _TrustedAddresses(TrustedHostMiddleware):
    """Trusts any address beside the names, as a server that listens on all of them does not know how it is reached
    (from outside of a container, say). An address, unlike a name, points nowhere else."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = re.sub(r":\d+$", "", Headers(scope=scope).get("host", "")) if scope["type"] == "http" else ""
        trusted = address_of(asked.strip("[]")) is not None
        await (self.app if trusted else super().__call__)(scope, receive, send)


async def _refuse_other_origins(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Browsers name the origin of the asking page in every request, except for links and pictures. Those only read,
    and do not tell the other page what they read."""
    origin = request.headers.get("origin")
    own = {request.headers.get("host"), os.environ.get("SPACE_HOST") or None}  # behind the proxy of a Space they differ
    if origin is not None and origin.partition("//")[2] not in own:
        return PlainTextResponse("asked by a page of another origin", status_code=403)
    return await call_next(request)
