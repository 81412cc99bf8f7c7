"""The service test.Echo and its client on grpcio. `serve [CERT KEY]` prints its address, `call ADDRESS [CERT]` makes calls
of all kinds and fails on the first answer that is wrong. Messages are octets."""

import sys
import threading
from concurrent import futures

import grpc

# The text of every status that is asked for. It has to be escaped in grpc-message.
WISH = "wie gewünscht: 100 %"

# The largest message that both sides take by default.
LARGEST = 4 << 20

CODES = {code.value[0]: code for code in grpc.StatusCode}


def unary(message, context):
    fields = dict(context.invocation_metadata())
    if "want-status" in fields:
        context.abort(CODES[int(fields["want-status"])], WISH)
    names = ("x-text", "x-octets-bin")
    context.send_initial_metadata(tuple((name, fields[name]) for name in names if name in fields))
    return message


def told_of_end(context):
    """Says when the call has ended. A generator is not resumed then."""
    ended = threading.Event()

    def end():
        print("canceled", flush=True)
        ended.set()

    if not context.add_callback(end):
        end()
    return ended


def wait(_, context):
    ended = told_of_end(context)
    print("waiting", flush=True)
    ended.wait()
    return b""


def expand(message, _):
    count, size = map(int, message.split())
    for _ in range(count):
        yield b"x" * size


def collect(messages, _):
    sizes = [len(message) for message in messages]
    return b"%d %d" % (len(sizes), sum(sizes))


def both(messages, _):
    yield from messages


def drip(message, context):
    ended = told_of_end(context)
    yield message
    ended.wait()


class Echo(grpc.GenericRpcHandler):
    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Wait": grpc.unary_unary_rpc_method_handler(wait),
        "Expand": grpc.unary_stream_rpc_method_handler(expand),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        "Drip": grpc.unary_stream_rpc_method_handler(drip),
    }

    def service(self, call):
        _, service, method = call.method.split("/")
        return self.methods.get(method) if service == "test.Echo" else None


def read(path):
    with open(path, "rb") as file:
        return file.read()


def serve(cert=None, key=None):
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Echo(),))
    if cert:
        tls = grpc.ssl_server_credentials([(read(key), read(cert))])
        port = server.add_secure_port("127.0.0.1:0", tls)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


def check(got, wanted):
    if got != wanted:
        sys.exit(f"{got!r:.200} and not {wanted!r:.200}")


def call(address, cert=None):
    if cert:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(read(cert)))
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        call_unary(channel)
        call_statuses(channel)
        call_streams(channel)
        call_thousand(channel)
        call_canceled(channel)


def call_unary(channel):
    echo = channel.unary_unary("/test.Echo/Unary")
    for size in (0, 1, 16_384, 65_536, LARGEST):
        check(echo(b"m" * size), b"m" * size)
    fields = {"x-text": "a text", "x-octets-bin": b"\x00\x01\xfe\xff"}
    answer, got = echo.with_call(b"fields", metadata=tuple(fields.items()))
    check(answer, b"fields")
    head = dict(got.initial_metadata())
    check({name: head.get(name) for name in fields}, fields)


def call_statuses(channel):
    echo = channel.unary_unary("/test.Echo/Unary")
    for code in range(1, 17):
        try:
            check(echo(b"", metadata=(("want-status", str(code)),)), "a status")
        except grpc.RpcError as error:
            check((error.code(), error.details()), (CODES[code], WISH))
    try:
        check(channel.unary_unary("/test.Echo/Nothing")(b""), "no method")
    except grpc.RpcError as error:
        check(error.code(), grpc.StatusCode.UNIMPLEMENTED)


def call_streams(channel):
    for count, size in ((0, 0), (1, 1), (100, 10_000), (5, 1 << 20)):
        answers = channel.unary_stream("/test.Echo/Expand")(b"%d %d" % (count, size))
        check([len(answer) for answer in answers], [size] * count)
        answer = channel.stream_unary("/test.Echo/Collect")(iter([b"s" * size] * count))
        check(answer, b"%d %d" % (count, count * size))

    # Each message is sent when the answer to the one before has come.
    answered = threading.Semaphore(1)

    def messages():
        for number in range(20):
            answered.acquire()
            yield b"%d" % number

    numbers = []
    for answer in channel.stream_stream("/test.Echo/Both")(messages()):
        numbers.append(int(answer))
        answered.release()
    check(numbers, list(range(20)))


def call_thousand(channel):
    echo = channel.unary_unary("/test.Echo/Unary")
    calls = [echo.future(b"call %d" % number) for number in range(1_000)]
    check([call.result() for call in calls], [b"call %d" % number for number in range(1_000)])


def call_canceled(channel):
    """A call that is canceled in its messages, and one whose deadline passes."""
    answers = channel.unary_stream("/test.Echo/Drip")(b"one")
    check(next(answers), b"one")
    answers.cancel()
    check(answers.code(), grpc.StatusCode.CANCELLED)
    try:
        check(channel.unary_unary("/test.Echo/Wait")(b"", timeout=5), "the deadline")
    except grpc.RpcError as error:
        check(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


if __name__ == "__main__":
    {"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])
