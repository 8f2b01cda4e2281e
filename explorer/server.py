"""The app on a socket: loopback unless asked otherwise, no telemetry, nothing loaded from elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Callable

import gradio as gr
import uvicorn
from fastapi import FastAPI, Response

from capgrade.explorer.answers import Explorer
from capgrade.explorer.app import CSS, THEME, TITLE, build
from capgrade.explorer.gate import LARGEST_UPLOAD, Gate
from capgrade.explorer.judgements import judgements_csv
from capgrade.explorer.reviews import Review
from capgrade.schemas.errors import InputError


def make_app(explorer: Explorer, review: Review, host: str) -> FastAPI:
    """The page, its pictures and the export, and nothing else that Gradio would serve (`Gate`)."""
    app = FastAPI(title=TITLE, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Gate, uploads=explorer.looks_at_pictures, host=host)

    @app.get("/picture/{number}")
    def picture(number: int) -> Response:
        if number not in explorer.thumbnails:
            return Response(status_code=404)
        try:
            return Response(explorer.thumbnails.jpeg(number), media_type="image/jpeg")
        except InputError:  # damaged, or its address does not answer
            return Response(status_code=404)

    @app.get("/judgements.csv")
    def judgements() -> Response:
        try:
            text, _ = judgements_csv(review.ratings)
        except InputError as error:
            return Response(str(error), status_code=409, media_type="text/plain")
        headers = {"Content-Disposition": 'attachment; filename="judgements.csv"'}
        return Response(text, media_type="text/csv", headers=headers)

    return gr.mount_gradio_app(
        app, build(explorer, review), path="", server_name=host, footer_links=[], css_paths=CSS, theme=THEME,
        ssr_mode=False, show_error=True, max_file_size=LARGEST_UPLOAD, run_history=False, pwa=False, mcp_server=False,
        enable_monitoring=False,
    )  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one. InputError when that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
    except OSError as error:
        problem = f"{host}:{port} cannot be listened on ({error.strerror or error})"
        raise InputError(problem, remedy="give another --port, or --port 0 for any") from error
    return found


def serve(explorer: Explorer, review: Review, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` is told the address just before."""
    app = make_app(explorer, review, host)
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
