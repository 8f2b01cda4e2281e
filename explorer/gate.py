"""Which requests the server answers: those that its own pages make, under the server's own names, with bodies of
bounded size. Otherwise any page that is open in the same browser could ask, and rate under somebody's name."""

import os
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from capgrade.schemas.hosts import address_of

LARGEST_UPLOAD, LARGEST_FORM = 20 * 2**20, 64 * 2**10  # bytes of a request's body
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Gate:
    """ASGI middleware; `upload` is the path that takes a picture, `host` that of `explore`.

    The names of a server are those of loopback, the host it was told, a Space's, and of all addresses any address.
    Other names may point here too, and a page under one of them would be of one origin with this server: a name that
    anybody can point anywhere (DNS rebinding). An address points nowhere else.
    """

    def __init__(self, app: ASGIApp, upload: str, host: str) -> None:
        space, address = os.environ.get("SPACE_HOST", ""), address_of(host)  # the former as the hub sets it
        self.app, self.upload, self.names = app, upload, {*LOOPBACK, host.lower(), space.lower()} - {""}
        self.any_address = address is not None and address.is_unspecified

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope) if scope["type"] == "http" else None
        answer = PlainTextResponse(refused[1], refused[0]) if refused else self.app
        await answer(scope, receive, send)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers, reads = Headers(scope=scope), scope["method"] in ("GET", "HEAD")
        if not self._named(headers.get("host")):
            return 400, "asked by a name that is not this server's; --set explore.host=NAME gives it one"
        # Browsers name the origin of the asking page in every request, except for links and pictures. Those only read,
        # and do not tell the other page what they read.
        forwarded = headers.get("x-forwarded-host")  # behind the proxy of a Space
        hosts = {headers.get("host"), *([forwarded] if self._named(forwarded) else [])}
        asks = headers.get("origin", f"//{headers['host']}").partition("//")[2]
        if asks not in hosts or (not reads and headers.get("sec-fetch-site", "none") not in ("same-origin", "none")):
            return 403, "asked by a page of another origin"
        length = headers.get("content-length", "0" if reads else "")
        if not length.isdecimal():
            return 411, "give the length of the body"
        most = LARGEST_UPLOAD if scope["path"] == self.upload else LARGEST_FORM
        return (413, f"more than {most} bytes") if int(length) > most else None

    def _named(self, given: str | None) -> bool:
        """Whether a header is of one of the names, with any port."""
        try:
            name = urlsplit(f"//{given}").hostname if given is not None else None
        except ValueError:
            return False
        return name is not None and (name in self.names or (self.any_address and address_of(name) is not None))
