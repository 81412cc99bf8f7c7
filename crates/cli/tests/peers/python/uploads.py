"""An application of the interop suite that takes uploads: prints "begun" when the first octets have come, and answers with their
number.
"""

import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        count = 0
        while size := int(self.rfile.readline().split(b";")[0], 16):
            if count == 0:
                print("begun", flush=True)
            count += len(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        answer = str(count).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


main()
