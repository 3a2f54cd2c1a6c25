"""Requests to untrusted URLs go to public addresses only, whatever a name server says and however a URL is spelt."""

import asyncio
import contextlib
import http.server
import ipaddress
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.outbound import ForbiddenUrlError, NoLookupError, Outbound, UnreachableError, check_allowed, is_public
from tests.asynchronous import asynchronous
from tests.service.serving import listening

PRIVATE = (
    *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fd00::1"),
    *("fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    "2002:7f00:1::",
)
PUBLIC = ("93.184.215.14", "2606:4700::1111", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e")


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.headers["host"], body))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def receiver():
    with listening(Receiver) as server:
        server.received = []
        yield server


@pytest.fixture
def port(receiver):
    return receiver.server_port


def at(*addresses: str):
    """Resolves every name to these addresses."""
    return lambda host, port: addresses


THIS_MACHINE = at("127.0.0.1")


def post(url: str, *allowed: str, resolve=THIS_MACHINE, silence_seconds: float = 10.0) -> tuple[int, bytes]:
    """Post through an `Outbound`."""

    async def run() -> tuple[int, bytes]:
        asked = {"content": b"words", "silence_seconds": silence_seconds, "client": ""}
        async with (
            contextlib.aclosing(Outbound(allowed, resolve=resolve)) as outbound,
            outbound.request("POST", url, **asked) as response,
        ):
            return response.status, b"".join([piece async for piece in response.aiter_stream()])

    return asyncio.run(run())


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are(address):
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_as_public_as_by_itself(address):
    inside = f"::ffff:{address}", str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(address)))

    assert {is_public(one) for one in inside} == {is_public(str(address))}


@pytest.mark.parametrize(
    "url",
    [
        *("http://hooks.example/", "ftp://hooks.example/", "file:///etc/passwd", "https://", "https:///x", "words", ""),
        *("https://name:word@hooks.example/", "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]:8/"),
        *(
            "https://169.254.169.254/latest",
            "https://hooks.example:99999/",
            "https://a\n.example/",
            "https://" + "a" * 3000,
        ),
        *("https://xn--/", "https://xn--a.example/", "https://\u2488.example/"),  # which IDNA cannot read
    ],
)
def test_a_url_that_can_be_seen_to_be_wrong_is_refused_at_once(url):
    outbound = Outbound()

    with pytest.raises(ForbiddenUrlError):
        outbound.check(url)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_that_leads_to_a_private_address_is_refused_where_it_is_connected_to(address):
    with pytest.raises(ForbiddenUrlError, match="no public address"):
        post("https://hooks.example/", resolve=at(address))


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "localhost"])
def test_other_spellings_of_this_machine_are_refused_by_what_the_system_makes_of_them(host):
    with pytest.raises((ForbiddenUrlError, UnreachableError), match=r"public address|not a public|not known"):
        post(f"https://{host}/", resolve=None)


@pytest.mark.parametrize(
    ("host", "asked"), [("receiver", "receiver"), ("[::1]", "[::1]"), ("bücher", "xn--bcher-kva")], ids=str
)
def test_a_named_origin_may_be_plain_and_private(receiver, port, host, asked):
    answered = post(f"http://{host}:{port}/hook?a=b", f"http://{host}:{port}")

    assert answered == (200, b"words")
    assert receiver.received == [(f"{asked}:{port}", b"words")]


def test_a_named_origin_opens_no_other_port_scheme_or_host(receiver, port):
    for url in (f"http://receiver:{port + 1}/", f"https://receiver:{port + 1}/", f"http://other:{port}/"):
        with pytest.raises(ForbiddenUrlError):
            post(url, f"http://receiver:{port}")
    assert receiver.received == []


def test_only_hosts_of_the_list_are_taken():
    outbound = Outbound(["hooks.example", "*.inner.example"])

    outbound.check("https://hooks.example/x")
    outbound.check("https://HOOKS.example./x")
    outbound.check("https://a.b.inner.example:8443/")
    for host in ("inner.example", "example", "xhooks.example", "hooks.example.evil", "xinner.example"):
        with pytest.raises(ForbiddenUrlError, match="not one that"):
            outbound.check(f"https://{host}/")


def test_a_host_that_does_not_answer_is_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UnreachableError, match="did not answer"):
            post(f"http://receiver:{port}/", f"http://receiver:{port}", silence_seconds=0.2)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        post(f"http://receiver:{port}/", f"http://receiver:{port}")


def test_a_name_that_is_not_known_is_unreachable():
    def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(UnreachableError, match="not known"):
        post("https://nowhere.example/", resolve=resolve)


@pytest.mark.parametrize(
    "entry", ["hooks.example", "*.example", "*", "http://receiver:9000", "https://10.0.0.1", "localhost"]
)
def test_entries_of_the_list(entry):
    assert check_allowed(entry) == entry


@pytest.mark.parametrize("entry", ["", "https://a/path", "a b", "*.*.example", "ftp://a", "-a", "https://u:p@a"])
def test_invalid_entries_are_refused(entry):
    with pytest.raises(ValueError, match="neither"):
        check_allowed(entry)


@asynchronous
async def test_names_that_are_not_answered_hold_only_look_ups_of_the_client_who_gave_them(port):
    answered, looked_up = threading.Event(), []

    def resolve(host, port):
        looked_up.append(host)
        if host == "slow":
            answered.wait(60)
        return ["127.0.0.1"]

    async def ask(host, client):
        async with outbound.request("POST", f"http://{host}:{port}/", content=b"", client=client) as response:
            return response.status

    allowed = [f"http://slow:{port}", f"http://quick:{port}"]
    async with contextlib.aclosing(Outbound(allowed, resolve=resolve)) as outbound:
        slow = [asyncio.create_task(ask("slow", "one")) for _ in range(4)]
        while len(looked_up) < 4:
            await asyncio.sleep(0.01)
        with pytest.raises(NoLookupError, match="too many names"):
            await ask("quick", "one")
        assert await ask("quick", "two") == 200
        answered.set()
        assert await asyncio.gather(*slow) == [200] * 4
        assert await ask("quick", "one") == 200
