"""A server on loopback, for tests of what asks one."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

NONE: Mapping[str, str] = MappingProxyType({})


class Handler(BaseHTTPRequestHandler):
    """A request and its reply. Connections stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body need not wait for its headers

    def log_message(self, *_: object) -> None: ...

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] = NONE) -> None:
        """One that is shorter than its Content-Length breaks off."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = self.command != "HEAD" and "Content-Length" in headers


@contextmanager
def serving(answer: Callable[[Handler], None]) -> Iterator[str]:
    """The address of a server that answers every request so, and stops when the block ends. Where
    there is no reply the connection breaks."""

    def answered(handler: Handler) -> None:
        handler.close_connection = True
        answer(handler)

    methods = dict.fromkeys(("do_GET", "do_HEAD", "do_POST", "do_PUT", "do_DELETE"), answered)
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (Handler,), methods)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
