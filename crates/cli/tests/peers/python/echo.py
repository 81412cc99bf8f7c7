"""Python's http.server as an origin of the interop suite: prints "request JSON" for each request whose body is whole, and
answers with that. Octets are the characters U+0000 to U+00FF.
"""

import http.server
import json
import re
import sys


def say(line):
    # At once: print writes the end of a line apart from it, and another thread may come between.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.echo
        raise AttributeError(name)

    def echo(self):
        fields = [[name.lower(), value] for name, value in self.headers.items()]
        try:
            body, trailers = self.body()
        except (ConnectionError, ValueError):
            say(f"broken {self.path}")
            self.close_connection = True
            return
        seen = json.dumps(
            {
                "method": self.command,
                "target": self.requestline.split(" ")[1],
                "fields": fields,
                "body": body.decode("latin-1"),
                "trailers": trailers,
            }
        )
        say(f"request {seen}")
        answer = seen.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def body(self):
        """The body, by its length or in chunks (RFC 9112 section 7.1), and the trailers."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.exactly(int(self.headers.get("content-length", "0"))), []
        body, trailers = b"", []
        while True:
            line = self.rfile.readline()
            if not re.fullmatch(rb"[0-9a-fA-F]+(;[^\r\n]*)?\r\n", line):
                raise ValueError("no chunk")
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            body += self.exactly(size)
            self.exactly(2)
        while line := self.rfile.readline().rstrip(b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            trailers.append([name.lower(), value.strip()])
        return body, trailers

    def exactly(self, count):
        data = self.rfile.read(count)
        if len(data) < count:
            raise ConnectionError("the body broke off")
        return data

    def log_error(self, format, *args):
        # What is no HTTP.
        say("refused " + (format % args).encode("unicode_escape").decode())

    def log_request(self, code="-", size="-"):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


def main():
    server = Server(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


main()
