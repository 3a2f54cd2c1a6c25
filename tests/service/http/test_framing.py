"""Where requests end, in bytes that come in any pieces, and what is too doubtful to be taken."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.wire.framing import (
    MAX_HEAD_BYTES,
    ChunkedBody,
    HeadReader,
    HttpError,
    is_among,
    read_head,
    without_offer,
)

GET = b"GET / HTTP/1.1\r\nHost: localhost:8000\r\n"
# Enough for any number of splits, few enough that a kernel is seldom asked.
CUTS = st.lists(st.floats(0, 1), max_size=12)
CHUNKS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), st.sampled_from([b"", b";x", b' ; a="b"'])), max_size=6
)
TRAILERS = st.sampled_from([b"", b"x: y\r\n", b"x: y\r\nz:\r\n"])


class Counted(bytearray):
    """Bytes that count how many of them are searched."""

    searched = 0

    def find(self, sub, start=0, end=None):
        place = super().find(sub, start, len(self) if end is None else end)
        self.searched += (place + 1 if place >= 0 else min(len(self), end or len(self))) - start
        return place


def pieces(data: bytes, cuts: list[float]) -> list[bytes]:
    places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


def lines_of(head: bytes) -> list[bytes]:
    reader = HeadReader()
    assert reader.end(bytearray(head)) == len(head)
    return reader.lines


@given(st.integers(0, 2), st.lists(st.sampled_from([b"a: b", b"c:", b"d: " + b" " * 900]), max_size=20), CUTS)
def test_a_head_ends_at_its_empty_line_however_it_is_split(empty, headers, cuts):
    head = b"\r\n" * empty + GET + b"".join(b"%b\r\n" % header for header in headers) + b"\r\n"
    reader, data = HeadReader(), bytearray()

    ends = []
    for piece in pieces(head + b"GET ", cuts):
        data += piece
        ends.append(reader.end(data))
        if ends[-1]:
            break

    assert ends == [0] * (len(ends) - 1) + [len(head)]
    assert reader.lines == [b"GET / HTTP/1.1", b"Host: localhost:8000", *headers]


@given(CHUNKS, TRAILERS, CUTS)
def test_a_body_in_chunks_ends_behind_its_trailers_however_it_is_split(chunks, trailers, cuts):
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(data), extension, data) for data, extension in chunks)
    body += b"0\r\n" + trailers + b"\r\n"
    reader, taken, trailing = ChunkedBody(), 0, 0

    for piece in pieces(body + b"GET ", cuts):
        taken += reader.take(bytearray(piece))
        trailing += reader.trailing

    assert (taken, trailing, reader.is_complete) == (len(body), len(trailers) + 2, True)


@pytest.mark.parametrize("filler", [b" ", b"\t", b"x", b":", b";", b"\r", b"a:", b"\r\n"])
@pytest.mark.parametrize("step", [1, 100, 1 << 17])
@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\nHost: localhost\r\nx: ", b"GET "])
def test_each_byte_of_a_head_is_searched_a_few_times(filler, step, begin):
    """A head of spaces held the event loop for seconds once, in a regular expression that looked again and again."""
    reader, data = HeadReader(), Counted()
    rest = begin + filler * (MAX_HEAD_BYTES // len(filler))

    with contextlib.suppress(HttpError):
        for at in range(0, len(rest), step):
            data += rest[at : at + step]
            reader.end(data)

    assert data.searched <= 6 * len(data)


@pytest.mark.parametrize("filler", [b" ", b"x", b";"])
def test_each_byte_between_chunks_is_searched_once(filler):
    reader = ChunkedBody()
    pieces = [Counted(filler) for _ in range(2 * MAX_HEAD_BYTES)]

    with contextlib.suppress(HttpError):
        for piece in pieces:
            reader.take(piece)

    assert sum(piece.searched for piece in pieces) == MAX_HEAD_BYTES + 1


def test_of_small_chunks_some_are_taken_at_a_time():
    """The loop has other connections: a read of 256 KiB may be forty thousand chunks."""
    reader, data = ChunkedBody(), bytearray(b"1\r\na\r\n" * 1000 + b"0\r\n\r\n")

    taken = []
    while not reader.is_complete:
        taken.append(reader.take(data))
        del data[: taken[-1]]

    assert not data
    assert max(taken) <= 256 * len(b"1\r\na\r\n")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"\x16\x03\x01\x02",
        b"GET / HTTP/1.1\r\n\r\n",
        GET + b"Host: localhost:8000\r\n\r\n",
        GET + b"host : b\r\n\r\n",
        GET + b" folded\r\n\r\n",
        GET + b"none\r\n\r\n",
        GET + b": nameless\r\n\r\n",
        GET + b"x: a\rb: c\r\n\r\n",
        GET + b"x: a\0b\r\n\r\n",
        *(
            b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
            for host in (b"a b", b"a/b", b"a." * 200, b"a@b", b"a:b", b"[::1", b"[::1]80")
        ),
        *(
            b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n"
            for target in (b"/?" + b"&" * 300, *b"/../x /a/.. /./x /a/%2e%2E/x /a%2f..%2fx /x#y http://a/../x".split())
        ),
        *(
            GET + b"Content-Length:" + length + b"\r\n\r\n"
            for length in (b" -1", b" +1", b" 1, 1", b" 0x1", b"", b" 1_0", b" " + b"9" * 20)
        ),
        GET + b"Content-Length: 1\r\ncontent-length: 1\r\n\r\n",
        GET + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        *(
            GET + b"Transfer-Encoding:" + coding + b"\r\n\r\n"
            for coding in (b" xchunked", b" gzip, chunked", b" identity", b"\x0bchunked")
        ),
        GET + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_head_that_two_parsers_might_read_differently_is_refused(head):
    def read() -> None:
        reader = HeadReader()
        assert reader.end(bytearray(head))
        read_head(reader.lines)

    with pytest.raises(HttpError) as refusal:
        read()
    assert refusal.value.reason == "malformed"


@pytest.mark.parametrize(
    "body",
    [size + b"\r\n" for size in (b"", b"g", b"-1", b"0x1", b"1_0", b"1 0", b"+1", b"f" * 16)]
    + [b"1\n", b"1\r\nab0\r\n\r\n" * 9],
)
def test_a_size_that_is_no_number_is_refused(body):
    """The last one has no line end behind its data; sizes are searched where the parser searches them."""
    with pytest.raises(HttpError, match="chunk"):
        ChunkedBody().take(bytearray(body))


@pytest.mark.parametrize(
    ("head", "hosts"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", ()),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", ("",)),
        (b"GET / HTTP/1.1\r\nHost: LocalHost.:80\r\n\r\n", ("localhost",)),
        (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", ("::1",)),
        (b"GET http://other:1/x?y HTTP/1.1\r\nHost: a\r\n\r\n", ("a", "other")),
        (b"GET http://other?y HTTP/1.1\r\nHost: a\r\n\r\n", ("a", "other")),
        (b"GET /..a/.b/...?../#http://other HTTP/1.1\r\nHost: a\r\n\r\n", ("a",)),
        (b"GET /?next=http://other HTTP/1.1\r\nHost: a\r\n\r\n", ("a",)),
    ],
)
def test_the_hosts_of_a_request_are_those_of_its_header_and_its_address(head, hosts):
    assert read_head(lines_of(head)).hosts == hosts


def test_an_offer_of_another_protocol_is_taken_out_and_nothing_else():
    offer = GET + b"Connection: Upgrade\r\nUPGRADE: h2c\r\nX-Upgrade: y\r\n\r\n"

    assert read_head(lines_of(offer)).is_offer
    assert without_offer(lines_of(offer)) == GET + b"Connection: Upgrade\r\nX-Upgrade: y\r\n\r\n"
    assert not read_head(lines_of(GET + b"X-Upgrade: y\r\n\r\n")).is_offer


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [("localhost", True), ("a.localhost", True), ("127.0.0.1", True), ("::1", True), ("192.0.2.1", True)]
    + [(host, False) for host in ("", "rebound.example", "localhost.example", "notlocalhost", "2130706433", "127.1")],
)
def test_a_local_service_is_known_by_local_names_and_addresses_of_numbers(host, is_ours):
    assert is_among(host, frozenset({"localhost"})) == is_ours
