"""A server on loopback, for tests of what asks one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers as `handler` does, says nothing, and stops when the block ends."""
    said = {"log_message": lambda *_: None, "disable_nagle_algorithm": True}  # a body need not wait for its headers
    silent = type("Silent", (handler,), said)
    with ThreadingHTTPServer(("127.0.0.1", 0), silent) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
