"""Where the stand-ins for artifact actions put files: ``PUT`` and ``GET /RUN/NAME/FILE``; ``GET /RUN`` lists."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Store:
    """An artifact store on this machine. Used as a context manager; ``url`` is its address, ``files`` its content."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Store:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        files = self.files

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                files[self.path.strip("/")] = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(b"")

            def do_GET(self) -> None:
                path = self.path.strip("/")
                run = f"{path}/"
                listed = json.dumps([name.removeprefix(run) for name in files if name.startswith(run)])
                self._answer(files.get(path, listed.encode()))

            def _answer(self, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler
