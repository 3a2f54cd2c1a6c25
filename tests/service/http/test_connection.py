"""Limits of a connection, tested with raw sockets, because no client library sends such requests."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.stub_engine import SAMPLE_RATE
from service.http.wire import connections
from service.http.wire.connection import AnswerTransport
from tests.service.http.test_framing import CUTS, pieces
from tests.service.serving import PATIENCE, ThreadedServer, form, post_bytes, serving, tone, wait_for, wav

LIMIT = 1 << 16
CLIP = wav(tone(SAMPLE_RATE // 4))
CHUNKED = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    b"content-type: multipart/form-data; boundary=b\r\n\r\n"
)


@contextlib.contextmanager
def limited(seconds: float, limit: str = "HEAD_SECONDS", **settings):
    """Serve with another limit on heads or bodies."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connections, limit, seconds)
        with serving(**settings) as served:
            yield served


@pytest.fixture(scope="module")
def service():
    with limited(60.0) as served:
        yield served


def open_connections(service: ThreadedServer) -> float:
    """As the service counts them; to ask it would be one more."""
    return service.server.metrics.registry.get_sample_value("steno_connections")


@contextlib.contextmanager
def connected(service: ThreadedServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.server.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def send(connection: socket.socket, data: bytes, cuts: list[float]) -> None:
    """Send data in pieces, cut at shares of its length."""
    with contextlib.suppress(ConnectionError):  # it may be refused before it is all sent
        for piece in pieces(data, cuts):
            connection.sendall(piece)


def rest_of(connection: socket.socket) -> bytes:
    """All remaining bytes until the server closes."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            data += piece
    return data


def answer_from(connection: socket.socket) -> httpx.Response:
    """The next answer of a connection that may stay open."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1)
        assert piece, head
        head += piece
    status, *lines = head.decode().split("\r\n")[:-2]
    headers = httpx.Headers([tuple(line.split(": ", 1)) for line in lines])
    body = b""
    while len(body) < int(headers["content-length"]):
        body += connection.recv(int(headers["content-length"]) - len(body))
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


def refused(connection: socket.socket) -> tuple[int, str]:
    """Status and code of an answer after which the connection is closed."""
    answer = answer_from(connection)
    assert answer.headers["connection"] == "close"
    assert answer.headers["x-request-id"]
    assert rest_of(connection) == b""
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    return answer.status_code, answer.json()["error"]["code"]


def get(path: str = "/healthz", *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "host: localhost", *headers, "", "")).encode()


def post(service: ThreadedServer, *more: str) -> bytes:
    """A whole POST of a clip, with more headers."""
    line, _, rest = post_bytes(service.server.port, CLIP).partition(b"\r\n")
    return line + b"\r\n" + "".join(f"{header}\r\n" for header in more).encode() + rest


def long_head(size: int, kind: str) -> bytes:
    """A request of exactly this many bytes."""
    if kind == "url":
        return get("/healthz?" + "x" * (size - len(get("/healthz?"))))
    if kind == "value":
        return get("/healthz", "x: " + "y" * (size - len(get("/healthz", "x: "))))
    value = "y" * ((size - len(get())) // 100 - 5)
    several = [f"x{number:02d}: {value}" for number in range(99)]
    return get("/healthz", *several, "x: " + "y" * (size - len(get("/healthz", *several, "x: "))))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["url", "value", "values"]), st.integers(-300, 0), CUTS)
def test_a_head_within_its_limit_is_taken_however_it_is_split(service, kind, spare, cuts):
    with connected(service) as connection:
        send(connection, long_head(LIMIT + spare, kind), cuts)

        assert answer_from(connection).status_code == 200


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["url", "value", "values"]), st.integers(1, 200_000), CUTS)
def test_a_head_over_its_limit_is_refused_however_it_is_split(service, kind, over, cuts):
    with connected(service) as connection:
        send(connection, long_head(LIMIT + over, kind), cuts)

        assert refused(connection) == ((414, "uri_too_long") if kind == "url" else (431, "head_too_large"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["get", "post"]), min_size=1, max_size=4), CUTS)
def test_requests_behind_each_other_are_answered_in_turn_however_they_are_split(service, kinds, cuts):
    with connected(service) as connection:
        send(connection, b"".join({"get": get(), "post": post(service)}[kind] for kind in kinds), cuts)

        for kind in kinds:
            assert answer_from(connection).json().get("status", "text") == {"get": "ok", "post": "text"}[kind]


LINE = b"x: " + b"y" * 1000 + b"\r\n"
HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: "


@pytest.mark.parametrize(
    ("begin", "line"),
    [(b"", b"\r\n")]
    + [(begin, line) for begin in (HEAD, CHUNKED + b"0\r\nx: ", CHUNKED + b"1;x=") for line in (LINE, b"y" * 1000)],
)
def test_headers_trailers_and_extensions_without_end_are_refused_soon(service, begin, line):
    with connected(service) as connection:
        connection.sendall(begin)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 200_000_000:
                connection.sendall(line * 100)
                sent += 100 * len(line)

        assert sent < 20_000_000  # what the two kernels hold


def test_many_headers_are_refused(service):
    with connected(service) as connection:
        connection.sendall(get("/healthz", *("x: y" for _ in range(300))))

        assert refused(connection) == (431, "head_too_large")


def test_a_trailer_is_not_used_as_a_header(service):
    fields = httpx.Request("POST", "http://any", **form(CLIP))
    body = fields.read()
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: [::1]\r\ncontent-type: {fields.headers['content-type']}\r\n"
    )
    with connected(service) as connection:
        connection.sendall(head.encode() + b"transfer-encoding: chunked\r\n\r\n")
        connection.sendall(b"%x\r\n%b\r\n0\r\nx-request-id: late\r\nauthorization: late\r\n\r\n" % (len(body), body))

        answer = answer_from(connection)

    assert answer.status_code == 200
    assert answer.headers["x-request-id"] != "late"


H2C: tuple[str, ...] = (
    "connection: Upgrade, HTTP2-Settings",
    "upgrade: h2c",
    "http2-settings: AAEAAEAAAAIAAAABAAMAAABk",
)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([H2C, ("connection: upgrade", "upgrade: websocket"), ("connection: Upgrade", "upgrade: x/1")]), CUTS
)
def test_an_offered_upgrade_changes_nothing_however_it_is_split(service, offer, cuts):
    with connected(service) as connection:
        send(connection, post(service, *offer) + get("/healthz", *offer) + post(service), cuts)

        answers = [answer_from(connection) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200] * 3
    assert answers[0].json() == answers[2].json() == service.post(**form(CLIP)).json()


@pytest.mark.parametrize("offer", [(), H2C])
def test_a_body_in_chunks_is_read_past_an_offered_upgrade(service, offer):
    with connected(service) as connection:
        connection.sendall(chunked(service, 1000, *offer))

        assert answer_from(connection).json() == service.post(**form(CLIP)).json()


def test_a_thousand_offers_at_once_are_a_thousand_requests(service):
    with connected(service) as connection:
        connection.sendall(get("/healthz", "connection: upgrade", "upgrade: x") * 1000)

        assert all(answer_from(connection).status_code == 200 for _ in range(1000))


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"EHLO mail.example\r\n\r\n", 400),
        (b"CONNECT inside:80 HTTP/1.1\r\nhost: inside:80\r\n\r\n", 405),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost: rebound.example\r\n\r\n", 421),
        (b"GET http://rebound.example/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", 421),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nb\xe4d name: x\r\n\r\n", 400),
        (b"GET /healthz?\xff HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"BREW /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
    ],
)
def test_a_doubtful_request_is_answered_and_closed(service, request_bytes, status):
    with connected(service) as connection:
        connection.sendall(request_bytes)

        code = {400: "malformed_request", 405: "method_not_allowed", 421: "host_not_allowed"}[status]
        assert refused(connection) == (status, code)


@pytest.mark.parametrize(
    "chunk", [b"xyz\r\n", b"-1\r\n", b"1;\x00\r\na\r\n", b"1\r\nabc\r\n", b"fffffffffffffffffff\r\n"]
)
def test_an_error_behind_the_head_is_answered_before_the_connection_is_closed(service, chunk):
    with connected(service) as connection:
        connection.sendall(CHUNKED + b"3\r\n--b\r\n")
        wait_for(lambda: service.server.dispatcher.admission.requests == 1)
        connection.sendall(chunk)

        assert refused(connection) == (400, "malformed_request")
    wait_for(lambda: service.server.dispatcher.admission.requests == 0)


def chunked(service: ThreadedServer, size: int, *more: str) -> bytes:
    """A whole POST of a clip in chunks of this size, with more headers."""
    head, _, body = post(service, "transfer-encoding: chunked", *more).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"\r\n".join(lines) + b"\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_chunked_request_may_have_another_one_behind_it(service, size):
    with connected(service) as connection:
        connection.sendall(chunked(service, size) * 2 + get() + b"GET / HTTP/1.1\r\n\r\n")

        assert [answer_from(connection).status_code for _ in range(3)] == [200] * 3
        assert refused(connection) == (400, "malformed_request")


def test_a_refusal_is_read_by_a_client_that_sends_on_and_wants_to_close(service):
    """With data in the kernel that nobody read, closing would be a reset, and the answer would be lost."""
    with connected(service) as connection:
        connection.sendall(
            b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 300000\r\n\r\n"
        )
        for _ in range(3):
            connection.sendall(bytes(100_000))

        assert answer_from(connection).status_code == 404


@pytest.mark.parametrize(
    ("hosts", "status"), [((), 421), (("*",), 200), (("Rebound.example",), 200), (("a.example",), 421)]
)
def test_a_service_answers_for_its_own_hosts_alone(hosts, status):
    with serving(hosts=hosts) as service:
        answers = [
            service.client.get("/healthz", headers={"host": host}).status_code
            for host in ("rebound.example", "192.0.2.1:80")
        ]

    assert answers == [status, 200]


def test_answers_of_the_api_are_not_read_as_another_type(service):
    for path in ("/healthz", "/nowhere", "/v1/models", "/"):
        assert service.client.get(path).headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.slow
def test_two_thousand_heads_that_never_end_cost_others_nothing():
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    heads = min(2_000, files // 4)  # two sockets each, and half of the files are for uploads
    with limited(5.0) as service:
        assert service.post(**form(CLIP)).status_code == 200
        before = len(os.listdir("/proc/self/fd"))
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(connected(service)) for _ in range(heads)]
            for number, connection in enumerate(waiting):
                connection.sendall(b"GET / HTTP/1.1\r\n"[: number % 16])  # some of them send nothing

            assert service.post(**form(CLIP)).status_code == 200
            assert [refused(connection) for connection in waiting] == [(408, "request_timeout")] * heads
        wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert service.metric('steno_connections_refused_total{reason="head_timeout"}') == heads


@pytest.mark.parametrize("waits", [True, False], ids=["behind the answer", "with the first"])
@pytest.mark.parametrize("first", [get(), get("/v1/models")], ids=["answered at once", "answered later"])
def test_a_head_behind_another_request_must_end_in_its_time_too(first, waits):
    with limited(0.3, keep_alive_seconds=5) as service, connected(service) as connection:
        connection.sendall(first if waits else first + b"GET / HT")
        assert answer_from(connection).status_code == 200
        if waits:
            connection.sendall(b"GET / HT")

        assert refused(connection) == (408, "request_timeout")


def test_connections_are_limited():
    with serving(max_connections=6) as service:
        with contextlib.ExitStack() as stack:
            service.client.close()
            wait_for(lambda: open_connections(service) == 0)
            open_ones = [stack.enter_context(connected(service)) for _ in range(3)]
            for connection in open_ones:  # each is counted before the next comes
                connection.sendall(get())
                answer_from(connection)
            with connected(service) as one_too_many:
                one_too_many.sendall(get())
                answer = answer_from(one_too_many)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
            assert answer.headers["retry-after"] == "1"
            open_ones[0].close()
            wait_for(lambda: open_connections(service) == 2)
            with connected(service) as next_one:
                next_one.sendall(get())
                assert answer_from(next_one).status_code == 200


def test_a_client_that_does_not_read_its_answers_is_disconnected():
    with serving(receive_timeout_seconds=0.3) as service:
        service.client.close()
        wait_for(lambda: open_connections(service) == 0)
        connection = socket.create_connection(("127.0.0.1", service.server.port), timeout=PATIENCE)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wait_for(lambda: open_connections(service) == 1)
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.settimeout(5)
            connection.sendall(get("/web/swagger-ui-bundle.js") * 20)  # megabytes of answers

        wait_for(lambda: open_connections(service) == 0)
        connection.close()


def test_a_client_that_reads_its_answers_too_slowly_is_disconnected():
    """It reads enough for never being silent, and so little that it would hold its connection for minutes."""
    with limited(1.0, "BODY_SECONDS", receive_timeout_seconds=0.5) as service:
        service.client.close()
        wait_for(lambda: open_connections(service) == 0)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", service.server.port))
            connection.sendall(get("/web/swagger-ui-bundle.js") * 100)  # a hundred megabytes of answers
            wait_for(lambda: open_connections(service) == 1)

            def is_let_go() -> bool:
                with contextlib.suppress(ConnectionError):
                    connection.recv(1 << 11)
                return open_connections(service) == 0

            wait_for(is_let_go)


@pytest.mark.parametrize(("silence", "whole"), [(0.3, 600.0), (30.0, 0.5)])
def test_the_rest_of_a_body_that_was_answered_early_has_limits_too(silence, whole):
    with (
        limited(whole, "BODY_SECONDS", receive_timeout_seconds=silence) as service,
        connected(service) as connection,
    ):
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
        assert answer_from(connection).status_code == 404
        connection.settimeout(0.02)
        closed = False
        for _ in range(int(PATIENCE / 0.02)):
            try:
                if whole < silence:
                    connection.sendall(b"x")
                closed = connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            break
        assert closed


def test_a_connection_whose_body_ends_after_its_answer_stays_open_until_idle():
    with serving(keep_alive_seconds=1) as service, connected(service) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n")
        assert answer_from(connection).status_code == 404
        connection.sendall(b"hello" + get())
        assert answer_from(connection).status_code == 200
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n")
        assert answer_from(connection).status_code == 404
        connection.sendall(b"hello")

        assert rest_of(connection) == b""


def test_a_client_that_leaves_with_a_request_behind_another_frees_both_places():
    with serving() as service:
        with service.held():
            with connected(service) as connection:
                connection.sendall(post(service) * 2)
                wait_for(lambda: service.server.dispatcher.admission.requests == 1)
            wait_for(lambda: service.server.dispatcher.admission.requests == 0)


class Written(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def write(self, data):
        self.pieces.append(data)

    def is_closing(self):
        return False


class Idle:
    """A guard whose parser does nothing."""

    is_parsing = False

    def close(self):
        pass


@pytest.mark.parametrize(
    ("parts", "sent"),
    [
        (["head", "body", "more"], [b"headbodymore"]),
        (["head", None, "body"], [b"head", b"body"]),
        (["head"], [b"head"]),
        (["head", "close", "more"], [b"head"]),
        (["x" * 70_000, "more"], [b"x" * 70_000, b"more"]),
    ],
    ids=["whole", "late body", "no body", "closed", "long"],
)
def test_what_an_answer_writes_in_one_turn_of_the_loop_is_sent_at_once(parts, sent):
    transport = Written()

    async def answer():
        held = AnswerTransport(Idle(), transport, asyncio.get_running_loop())
        for part in parts:
            if part is None:
                await asyncio.sleep(0)  # another round of the loop
            elif part == "close":
                held.close()
            else:
                held.write(part.encode())

    asyncio.run(answer())

    assert transport.pieces == sent
