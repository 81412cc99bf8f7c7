"""Python's http.server as a peer of the interop suite: files as `python3 -m http.server` sends them, and uploads.

    python3 server.py ROOT [CERT KEY]

Speaks HTTP/1.1 in cleartext or over TLS. Prints "listening on URL", and for each body that it was sent
"upload NAME BYTES SHA256". It answers an upload with that digest. Bodies are hashed as they pass and never held.
"""

import functools
import hashlib
import http.server
import os
import ssl
import sys

PIECE = 1 << 18


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        digest, count = hashlib.sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            count += len(piece)
        name = os.path.basename(self.path)
        print(f"upload {name} {count} {digest.hexdigest()}", flush=True)
        answer = f"{digest.hexdigest()}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT

    def pieces(self):
        """The body, by its length or in chunks (RFC 9112 section 7.1)."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield from self.exactly(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            yield from self.exactly(int(self.headers.get("content-length", "0")))

    def exactly(self, left):
        while left:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise ConnectionError(f"the body ended {left} bytes early")
            left -= len(piece)
            yield piece

    def log_message(self, *_):
        pass


def main():
    root, *tls = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=root)
    )
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        context.set_alpn_protocols(["http/1.1"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "https" if tls else "http"
    print(f"listening on {scheme}://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


main()
