"""Bodies that no client would send: every one gets an answer, and none leaves anything behind."""

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.serving import ServerProcess, form, serving, steno_serve, tone, wait_for, wav

BOUNDARY = "boundary"
RECORDING = wav(tone(1000), 8000, "PCM_16")
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
CODES = {
    "malformed_body",
    "missing_required_parameter",
    "invalid_value",
    "unsupported_value",
    "unsupported_format",
    "invalid_audio",
    "audio_too_short",
    "audio_too_long",
    "model_not_found",
    "file_too_large",
    "url_not_allowed",
}

NAMES = st.sampled_from(
    ["file", "model", "response_format", "timestamp_granularities[]", "include[]", "stream", "temperature", "language"]
) | st.text(max_size=8)
VALUES = st.sampled_from(
    [RECORDING, b"whisper-1", b"verbose_json", b"word", b"logprobs", b"true", b"0.5", b"en", b"", b"auto", b"{"]
) | st.binary(max_size=64)
FILE_TYPES = st.sampled_from(
    ["", "audio/wav", "audio/pcm; rate=16000; channels=1", "audio/l16; rate=0", "text/html", ";"]
)


def part(name: str, value: bytes, file_type: str, is_file: bool) -> bytes:
    file_name = '; filename="a"' if is_file else ""
    head = f'content-disposition: form-data; name="{name}"{file_name}\r\ncontent-type: {file_type}\r\n\r\n'
    return f"--{BOUNDARY}\r\n".encode() + head.encode(errors="surrogatepass") + value + b"\r\n"


PARTS = st.lists(st.builds(part, NAMES, VALUES, FILE_TYPES, st.booleans()), max_size=6)
GOOD = part("file", RECORDING, "audio/wav", True) + part("model", b"whisper-1", "text/plain", False)
ENDING = f"--{BOUNDARY}--\r\n".encode()


@st.composite
def bodies(draw) -> bytes:
    """A form of some parts, of which a stretch may be missing, doubled or replaced."""
    body = b"".join(draw(st.permutations([GOOD, *draw(PARTS)]))) + ENDING
    for _ in range(draw(st.integers(0, 3))):
        begin, end = sorted(draw(st.tuples(st.integers(0, len(body)), st.integers(0, len(body)))))
        between = draw(
            st.sampled_from([b"", body[begin:end] * 2, b"\r\n", b"--", b"\x00" * 10]) | st.binary(max_size=20)
        )
        body = body[:begin] + between + body[end:]
    return body


CONTENT_TYPES = (
    st.just(TYPE)
    | st.sampled_from(
        [
            TYPE.upper(),
            f'multipart/form-data; boundary="{BOUNDARY}"',
            f"{TYPE}; charset=utf-16",
            "multipart/form-data",
            "audio/wav",
            "audio/pcm; rate=8000; channels=1",
            "application/json",
            "",
        ]
    )
    | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40).map(str.strip)
)


def post_and_check(client: httpx.Client, body: bytes, content_type: str) -> None:
    answer = client.post("/v1/audio/transcriptions", content=body, headers={"content-type": content_type})

    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
    if answer.status_code != 200:
        assert answer.json()["error"]["code"] in CODES


@pytest.fixture(scope="module")
def service():
    with serving() as served:
        yield served


@settings(max_examples=150, deadline=None)
@given(body=bodies(), content_type=CONTENT_TYPES)
def test_every_body_gets_an_answer(service, body, content_type):
    admission = service.server.dispatcher.admission

    post_and_check(service.client, body, content_type)

    wait_for(lambda: admission.requests == admission.stored_bytes == 0)  # a stream ends a moment after its last byte


def resident_bytes(service: ServerProcess) -> float:
    return service.metric("process_resident_memory_bytes")


@pytest.mark.long
def test_thousands_of_bodies_leave_no_memory_and_no_files_behind(golden, tmp_path):
    checkpoint = golden / "fastconformer-ctc-bpe" / "model.nemo"
    with steno_serve(tmp_path / "log", "--model", str(checkpoint)) as service:

        @settings(max_examples=5000, deadline=None)
        @given(body=bodies(), content_type=CONTENT_TYPES)
        def hold(body: bytes, content_type: str) -> None:
            post_and_check(service.client, body, content_type)

        upload = form(RECORDING, response_format="verbose_json")  # the first loads what detects a text's language
        for _ in range(200):
            assert service.client.post("/v1/audio/transcriptions", **upload).status_code == 200
        memory, files = resident_bytes(service), service.metric("process_open_fds")
        hold()

        assert resident_bytes(service) - memory < 50e6
        # Two decoding processes, which may have begun meanwhile, have four each.
        assert service.metric("process_open_fds") <= files + 10
        assert service.client.post("/v1/audio/transcriptions", **form(RECORDING)).status_code == 200
