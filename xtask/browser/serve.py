"""Serves a folder to pages on this machine, also ranges of files: python3 serve.py FOLDER PORT."""

import functools
import http.server
import io
import os
import re
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def send_head(self):
        path = self.translate_path(self.path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked or not os.path.isfile(path):
            return super().send_head()
        size = os.path.getsize(path)
        first, last = int(asked[1]), min(int(asked[2]), size - 1)
        if first > last:
            self.send_error(416)
            return None
        with open(path, "rb") as file:
            file.seek(first)
            part = file.read(last + 1 - first)
        self.send_response(206)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        return io.BytesIO(part)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, address):
        # A page that is closed or loaded again no longer wants its files.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)


folder, port = sys.argv[1:]
handler = functools.partial(Handler, directory=folder)
server = Server(("127.0.0.1", int(port)), handler)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    pass
