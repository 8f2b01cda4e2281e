"""The app on a socket: loopback unless asked otherwise."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from capgrade.explorer.answers import Explorer
from capgrade.explorer.app import make_app
from capgrade.schemas.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one. InputError when that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        problem = f"{host}:{port} cannot be listened on ({error.strerror or error})"
        raise InputError(problem, remedy="set another explore.port, or 0 for any") from error


def serve(explorer: Explorer, reviews: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted, with the ratings in the folder `reviews`; `ready` is told the address just before."""
    app = make_app(explorer, reviews, host)
    with listen(host, port) as bound:
        ready(address(bound))
        uvicorn_server(app).run(sockets=[bound])


def uvicorn_server(app: FastAPI) -> uvicorn.Server:
    """Uvicorn's own logging settings would close every handler of the process, and with absl's its stderr."""
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", log_config=None))


def address(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
