"""An ASGI application of the interop suite: what a page of a browser asks for, and echoes.

    uvicorn application:app

`/seen` answers with the scheme, the client, the host and the length of the body. `/images/N.bmp` is an image, `/sound` is
sought by ranges, `/upload` counts octets, `/socket` echoes over a WebSocket. What is posted to `/report` is printed.
"""

import json
import struct

# Ten minutes of 8,000 samples a second, one octet each.
SECONDS, RATE = 600, 8_000
WAVE = struct.pack(
    "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + SECONDS * RATE, b"WAVE", b"fmt ", 16, 1, 1, RATE, RATE, 1, 8, b"data", SECONDS * RATE
) + bytes(range(256)) * (SECONDS * RATE // 256)


def image(number):
    side = 8
    head = struct.pack("<2sIIIIIIHHIIIIII", b"BM", 54 + 3 * side * side, 0, 54, 40, side, side, 1, 24, 0, 3 * side * side, 0, 0, 0, 0)
    return head + bytes([number % 256, number // 256 * 64, 255 - number % 256]) * side * side


async def body(receive):
    count = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the body broke off")
        count += len(message.get("body", b""))
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({**{key: message.get(key) for key in ("text", "bytes")}, "type": "websocket.send"})
        return
    fields = dict(scope["headers"])
    path, status, kind, more = scope["path"], 200, b"text/plain", []
    pieces = [piece async for piece in body(receive)]
    if path == "/seen":
        answer = json.dumps(
            {
                "scheme": scope["scheme"],
                "client": (scope["client"] or [""])[0],
                "host": fields.get(b"host", b"").decode(),
                "bytes": sum(map(len, pieces)),
            }
        ).encode()
    elif path == "/upload":
        answer = str(sum(map(len, pieces))).encode()
    elif path == "/report":
        print("report", b"".join(pieces).decode(), flush=True)
        answer = b"thanks"
    elif path.startswith("/images/"):
        answer, kind = image(int(path[8:].split(".")[0])), b"image/bmp"
    elif path == "/sound":
        answer, kind = WAVE, b"audio/wav"
        more.append((b"accept-ranges", b"bytes"))
        if wanted := fields.get(b"range", b"").decode().removeprefix("bytes="):
            first, last = wanted.split("-")
            first, last = int(first), min(int(last or len(WAVE) - 1), len(WAVE) - 1)
            print("range", first, flush=True)
            answer, status = WAVE[first : last + 1], 206
            more.append((b"content-range", f"bytes {first}-{last}/{len(WAVE)}".encode()))
    elif path == "/":
        with open(__file__.replace("python/application.py", "page.html"), "rb") as page:
            answer, kind = page.read(), b"text/html"
    else:
        answer, status = b"there is no such thing", 404
    more += [(b"content-type", kind), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": more})
    await send({"type": "http.response.body", "body": answer})
