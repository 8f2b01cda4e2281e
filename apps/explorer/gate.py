"""Which requests the server answers: those of its own pages, under the server's own names, with
bodies of bounded size. Otherwise any page that is open in the same browser could send requests, and
rate under somebody's name."""

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

    It answers under the names of loopback, of the host, and of a Space. Anybody can point another
    name to this server (DNS rebinding), and a page under that name would be of the same origin.
    """
    address, space = address_of(host), _space_host()
    host_name = f"[{host}]" if address is not None and address.version == 6 else host
    hosts = [*_LOOPBACK, host_name, *([space] if space else [])]
    everywhere = address is not None and address.is_unspecified
    trusted = _TrustedAddresses if everywhere else TrustedHostMiddleware
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=LARGEST_BODY)
    app.add_middleware(BaseHTTPMiddleware, dispatch=_refuse_other_origins)
    app.add_middleware(trusted, allowed_hosts=hosts, www_redirect=False)


class _TrustedAddresses(TrustedHostMiddleware):
    """Trusts every IP address beside the names. A server that listens on all addresses does not
    know under which it is reached, for example from outside a container; and nobody can point an
    address elsewhere, as a name."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        is_address = address_of(re.sub(r":\d+$", "", host).strip("[]")) is not None
        await (self.app if is_address else super().__call__)(scope, receive, send)


async def _refuse_other_origins(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Browsers name the origin of the requesting page, except in requests for links and pictures,
    which change nothing and whose answers the other page cannot read."""
    origin = request.headers.get("origin")
    # Behind the proxy of a Space, the host that this server sees is not that of the page.
    own = {request.headers.get("host"), _space_host()}
    if origin is not None and origin.partition("//")[2] not in own:
        return PlainTextResponse("asked by a page of another origin", status_code=403)
    return await call_next(request)


def _space_host() -> str | None:
    """The name of the Space that this runs in, as the hub sets it."""
    return os.environ.get("SPACE_HOST") or None
