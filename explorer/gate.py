"""Which requests the server answers: those that its own page makes, under the server's own names, for known paths, with
bodies of bounded size.

Gradio serves much more than a page needs (uploads, files, a proxy, endpoints for programs), and takes a request from
any page that is open in the same browser.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from capgrade.schemas.hosts import address_of

LARGEST_QUESTION = 64 * 2**10  # bytes of a request that carries no picture
LARGEST_UPLOAD = 20 * 2**20
LOOPBACK = ("localhost", "127.0.0.1", "::1")
API, UPLOAD = "/gradio_api", "/gradio_api/upload"
READ = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt|judgements\.csv)|/(assets|static|svelte)/.+"
    rf"|/picture/[^/]+|{API}/(startup-events|theme\.css|queue/data|heartbeat/\w+|upload_progress)"
)
ASK = re.compile(rf"{API}/(queue/join|run/\w+|reset|cancel)/?")


class Gate:
    """ASGI middleware; `uploads`: whether anything can look at an uploaded picture; `host`: that of `explore`."""

    def __init__(self, app: ASGIApp, uploads: bool, host: str) -> None:
        self.app, self.uploads, self.names = app, uploads, Names(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope) if scope["type"] == "http" else None
        if scope["type"] == "websocket":  # the page opens none
            await send({"type": "websocket.close", "code": 1008})
        elif refused:
            await PlainTextResponse(refused[1], status_code=refused[0])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason, or None."""
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        if headers.get("host") not in self.names:
            return 400, "asked by a name that is not this server's; --set explore.host=NAME gives it one"
        if not same_origin(headers, reads := method in ("GET", "HEAD"), self.names):
            return 403, "asked by a page of another origin"
        if reads:
            return None if READ.fullmatch(path) else (404, "no such page")
        upload = self.uploads and path == UPLOAD
        if method != "POST" or not (upload or ASK.fullmatch(path)):
            return 404, "nothing here takes this"
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return 411, "give the length of the body"
        most = LARGEST_UPLOAD if upload else LARGEST_QUESTION
        return (413, f"more than {most} bytes") if int(length) > most else None


class Names:
    """The names a server has: those of loopback, the host it was told, a Space's, and of all addresses any address.

    Other names may point here too, and a page under one of them would be of one origin with this server: a name that
    anybody can point anywhere (DNS rebinding). An address points nowhere else.
    """

    def __init__(self, host: str) -> None:
        space = os.environ.get("SPACE_HOST")  # as the hub sets it
        self.names = {*LOOPBACK, host.lower(), *([space.lower()] if space else [])}
        self.any_address = (found := address_of(host)) is not None and found.is_unspecified

    def __contains__(self, given: object) -> bool:
        """Whether a header `Host` is of one of them, with any port."""
        name = _hostname(given) if isinstance(given, str) else None
        return name is not None and (name in self.names or (self.any_address and address_of(name) is not None))


def _hostname(given: str) -> str | None:
    try:
        return urlsplit(f"//{given}").hostname
    except ValueError:
        return None


def same_origin(headers: Headers, reads: bool, names: Names) -> bool:
    """Whether the server's own page asks. Browsers name the origin of the asking page in every request, except for
    links and pictures. Those only read, and do not tell the other page what they read."""
    forwarded = headers.get("x-forwarded-host")  # behind the proxy of a Space
    hosts = {headers.get("host"), *([forwarded] if forwarded in names else [])}
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc not in hosts:
        return False
    return reads or headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
