"""A hostile file gets an error and costs the pool a child; other files are decoded."""

import io
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np
import pytest

from audio.child_process import ChildLostError, ChildProcess, Confinement
from audio.child_protocol import HEADER, Kind, message, packed_origin
from audio.decode import Audio, decode
from audio.errors import (
    AudioTooLongError,
    AudioTooShortError,
    InvalidAudioError,
    UnsupportedFormatError,
)
from audio.limits import AudioLimits
from audio.origin import Origin, Wanted
from audio.pcm import RawFormat
from audio.pool import DecodePool, NoChildError
from tests.audio.media_files import MEDIA, media, sample_of
from tests.audio.sound_files import LOSSLESS, LOSSY, encoded, tone
from tests.service.serving import wait_for

LIMITS = AudioLimits()


def noise(rate):
    return np.random.default_rng(0).normal(0, 0.1, rate).clip(-1, 1)


WEBM = media(noise(48000), 48000, "webm", "libopus")


@pytest.fixture
def losses():
    return []


@pytest.fixture
def pool(losses):
    with DecodePool(on_loss=lambda: losses.append(1)) as pool:
        yield pool


@pytest.fixture(scope="module")
def many_files_pool():
    with DecodePool() as pool:
        yield pool


def decoded(pool, data, limits=LIMITS):
    return decoded_file(pool, io.BytesIO(data), limits)


def decoded_file(pool, file, limits=LIMITS):
    samples = bytearray()
    origin = pool.decode_into(lambda block, _: samples.extend(block), file, Wanted(16000, limits))
    return Audio(samples=np.frombuffer(samples, np.float32), **asdict(origin))


def only(children):
    """The one that there is, once those that are dismissed are gone."""
    wait_for(lambda: len(children()) == 1)
    (child,) = children()
    return child


def end(child):
    """Kill a process, and wait until it has ended; who started it can still ask how."""
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("name", [*MEDIA, *LOSSLESS, *LOSSY], ids=str)
def test_a_child_gives_the_samples_that_this_process_would(many_files_pool, name):
    pool = many_files_pool
    data = sample_of(name, noise) if isinstance(name, str) else encoded(noise(16000), 16000, *name)

    apart, here = decoded(pool, data), decode(io.BytesIO(data), rate=16000, limits=LIMITS)

    np.testing.assert_array_equal(apart.samples, here.samples)
    assert apart.samples.dtype == np.float32
    for field in ("seconds", "container", "channels", "source_rate", "truncated"):
        assert getattr(apart, field) == getattr(here, field)


def test_long_recordings_come_in_blocks_that_a_cache_holds(many_files_pool):
    sizes = []
    file = io.BytesIO(encoded(np.resize(noise(16000), 50 * 16000), 16000, "FLAC", "PCM_16"))

    many_files_pool.decode_into(lambda block, _: sizes.append(len(block)), file, Wanted(16000))

    assert sum(sizes) == 50 * 16000 * 4
    assert max(sizes) == 1 << 20


def test_no_child_is_started_for_16_bit_pcm(pool, children):
    decoded(pool, encoded(tone(440, 0.5, 16000), 16000, "WAV", "PCM_16"))
    pool.decode_into(lambda samples, channel: None, io.BytesIO(bytes(32000)), Wanted(16000), RawFormat(1, 16000))

    assert not children()


def test_a_child_is_replaced_after_its_number_of_files(children):
    with DecodePool(Confinement(files=2)) as pool:
        decoded(pool, WEBM)
        first = only(children)
        decoded(pool, WEBM)
        wait_for(lambda: not children())
        decoded(pool, WEBM)

        assert only(children) != first


GARBAGE = b"\x1a\x45\xdf\xa3" + bytes(range(256))


@pytest.mark.parametrize(
    ("data", "limits", "error", "says"),
    [
        (WEBM, AudioLimits(max_seconds=0.5), AudioTooLongError, r"longer than 0\.5 s"),
        (WEBM, AudioLimits(min_seconds=5), AudioTooShortError, "less than 5 s"),
        (media(noise(400_000), 400_000, "mov", "pcm_s16be"), LIMITS, UnsupportedFormatError, "400000 Hz"),
        (GARBAGE, LIMITS, InvalidAudioError, "cannot be decoded"),
    ],
    ids=["too long", "too short", "rate", "garbage"],
)
def test_a_refusal_comes_through_and_the_child_stays(pool, children, losses, data, limits, error, says):
    decoded(pool, WEBM)
    child = only(children)

    with pytest.raises(error, match=says):
        decoded(pool, data, limits)

    assert decoded(pool, WEBM).seconds == pytest.approx(1, abs=0.001)
    assert only(children) == child
    assert not losses


# Losses


def test_children_that_die_while_they_start_are_replaced(pool, losses, monkeypatch):
    start, started = subprocess.Popen, []

    def starting(*arguments, **options):
        child = start(*arguments, **options)
        started.append(child)
        if len(started) < 3:
            child.kill()
        return child

    monkeypatch.setattr(subprocess, "Popen", starting)

    assert decoded(pool, WEBM).seconds == pytest.approx(1, abs=0.001)

    assert not losses
    assert len(started) == 3


def test_a_pool_that_closes_does_not_wait_for_a_child_that_starts(monkeypatch):
    start, started = subprocess.Popen, []

    def never_ready(*arguments, **options):
        started.append(start(*arguments, **options))
        started[-1].send_signal(signal.SIGSTOP)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", never_ready)
    monkeypatch.setattr("audio.child_process._START_SECONDS", 86_400.0)
    with ThreadPoolExecutor(1) as threads, DecodePool() as pool:
        decoding = threads.submit(decoded, pool, WEBM)
        wait_for(lambda: len(started) == 1)
        threading.Thread(target=pool.close, daemon=True).start()
        wait_for(decoding.done)

        with pytest.raises(NoChildError):
            decoding.result()


def test_an_idle_child_that_died_is_replaced_without_an_error(pool, children, losses):
    decoded(pool, WEBM)
    dead = only(children)
    end(dead)

    assert decoded(pool, WEBM).seconds == pytest.approx(1, abs=0.001)

    assert only(children) != dead
    assert not losses


@pytest.mark.slow
def test_a_file_that_takes_too_long_is_refused_and_the_limit_named(children, losses):
    with DecodePool(Confinement(seconds=3), on_loss=lambda: losses.append(1)) as pool:
        decoded(pool, WEBM)
        stuck = only(children)
        os.kill(stuck, signal.SIGSTOP)

        with pytest.raises(InvalidAudioError, match="more than 3 s"):
            decoded(pool, WEBM)

        assert len(losses) == 1
        wait_for(lambda: stuck not in children())
        assert decoded(pool, WEBM).seconds == pytest.approx(1, abs=0.001)


def write_mp4_of(file, samples):
    """Write an MP4 that is all index: FFmpeg reads a size for each sample into memory."""
    sizes = b"stsz" + bytes(8) + samples.to_bytes(4, "big")
    length = 4 + len(sizes) + 4 * samples
    head = length.to_bytes(4, "big") + sizes
    for name in (b"stbl", b"minf", b"mdia", b"trak", b"moov"):
        length += 8
        head = length.to_bytes(4, "big") + name + head
    brand = b"\0\0\0\x10ftypM4A \0\0\0\0"
    file.write(brand + head)
    file.truncate(len(brand) + length)


def test_a_file_that_takes_too_much_memory_is_refused_and_the_next_one_works():
    with DecodePool(Confinement(memory_bytes=400 << 20)) as pool, tempfile.TemporaryFile() as file:
        write_mp4_of(file, samples=50_000_000)

        with pytest.raises(InvalidAudioError, match="more than 400 MiB of memory"):
            decoded_file(pool, file)

        assert decoded(pool, WEBM).seconds == pytest.approx(1, abs=0.001)


def full(*arguments, **options):
    raise BlockingIOError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("owner", "name", "value", "says"),
    [
        (sys, "executable", shutil.which("false"), "does not start"),
        (subprocess, "Popen", full, "temporarily unavailable"),
    ],
    ids=["dies", "no room"],
)
def test_a_child_that_cannot_start_is_not_the_fault_of_the_file(pool, children, monkeypatch, owner, name, value, says):
    monkeypatch.setattr(owner, name, value)

    with pytest.raises(NoChildError, match=says):
        decoded(pool, WEBM)

    assert not children()


def origin(seconds=0.5, channels=1, tracks=1):
    return packed_origin(Origin(seconds, "webm", channels, 16000, truncated=False, track=1, tracks=tracks))


# Says that it is ready, and answers the first file with what it is given.
TAKEN_OVER = """
import socket, sys
pool = socket.socket(fileno=0)
for answer in sys.argv[1:]:
    pool.recv(100)
    pool.sendall(bytes.fromhex(answer))
pool.recv(1)
"""


@pytest.mark.parametrize(
    "answer",
    [
        HEADER.pack(4, 65535, 65535) + bytes(5000),
        HEADER.pack(0, 0, 0),
        message(Kind.READY),
        message(Kind.FULL),
        message(Kind.DONE, [(0, 16000 * 2)], origin()),
        message(Kind.DONE, [(1, 1)], origin()),
        message(Kind.DONE, [(0, 2**32 - 1)], origin()),
        message(Kind.DONE, [(0, 1)], origin()[:-1]),
        message(Kind.DONE, [(0, 1)], origin(seconds=math.nan)),
        message(Kind.DONE, [(0, 1)], origin(seconds=1e9)),
        message(Kind.DONE, [(0, 1)], origin(channels=0)),
        message(Kind.DONE, [(0, 1)], origin(tracks=0)),
        message(Kind.DONE, [(0, 1)], origin()) + message(Kind.DONE, [(0, 1)], origin()),
        message(Kind.REFUSED),
        message(Kind.REFUSED, [], b"\x09no such error"),
        message(Kind.REFUSED, [], b"\x00a line\nand another"),
    ],
)
def test_a_child_that_was_taken_over_cannot_fill_memory_or_confuse_the_pool(answer, monkeypatch):
    start, answers = subprocess.Popen, [message(Kind.READY).hex(), answer.hex()]
    monkeypatch.setattr(
        subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", TAKEN_OVER, *answers], **options)
    )
    child = ChildProcess(Confinement())
    child.wait_until_ready()

    with tempfile.TemporaryFile() as file, pytest.raises(ChildLostError, match="nonsense"):
        child.decode_into(lambda samples, channel: None, file, "webm", Wanted(16000, AudioLimits(max_seconds=0.5)))

    assert not child.is_usable
    child.close()


def test_samples_of_a_child_are_checked_after_they_were_copied(pool):
    nan = np.zeros(16000, np.float32)
    nan[9000] = np.nan

    with pytest.raises(InvalidAudioError, match="not numbers"):
        decoded(pool, encoded(nan, 16000, "WAV", "FLOAT"))


def test_threads_wait_for_each_other_where_all_children_are_busy(children, losses):
    files = [sample_of(name, noise) for name in sorted(MEDIA)]
    pool = DecodePool(most=2, keeps_spare=True, on_loss=lambda: losses.append(1))
    with pool, ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda data: decoded(pool, data).samples, files))
        assert len(children()) <= 2
    assert not losses
    for data, samples in zip(files, together, strict=True):
        np.testing.assert_array_equal(samples, decode(io.BytesIO(data), rate=16000, limits=LIMITS).samples)


def test_a_spare_takes_the_place_of_a_child_that_refused_a_file(children):
    def is_replaced():
        with pytest.raises(InvalidAudioError):
            decoded(pool, GARBAGE)
        return len(before & children()) == 1

    with DecodePool(keeps_spare=True) as pool:
        decoded(pool, WEBM)
        wait_for(lambda: len(children()) == 2)  # the spare is started meanwhile
        before = children()

        wait_for(is_replaced)


# Nothing is left behind


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_thirty_files_leave_neither_descriptors_nor_processes_behind(children):
    files = [sample_of(name, noise) for name in sorted(MEDIA)] + [WEBM[: len(WEBM) // 3], b"\x1a\x45\xdf\xa3"]
    before = open_descriptors()

    with DecodePool() as pool:
        for n in range(30):
            try:
                decoded(pool, files[n % len(files)])
            except InvalidAudioError:
                continue
        pid = only(children)
        assert open_descriptors() == before + 4  # the socket to the child, its ring, and both ends of its copies
        assert len(os.listdir(f"/proc/{pid}/fd")) <= 4

    assert open_descriptors() == before
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_closed_pool_ends_what_it_decodes_and_takes_no_more(children):
    pool = DecodePool()
    decoded(pool, WEBM)
    os.kill(only(children), signal.SIGSTOP)
    asked = threading.Event()

    class Asking(io.BytesIO):
        def seek(self, offset, whence=os.SEEK_SET):
            if whence == os.SEEK_END:  # its size is asked for when a child has been found
                asked.set()
            return super().seek(offset, whence)

    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(decoded_file, pool, Asking(WEBM))
        asked.wait()
        pool.close()

        assert isinstance(work.exception(), NoChildError)

    assert not children()
    with pytest.raises(NoChildError, match="closed"):
        decoded(pool, WEBM)


def test_children_end_with_a_process_that_is_killed():
    script = (
        "import io, os, sys; from audio.pool import DecodePool; from audio.origin import Wanted\n"
        "from tests.soak.processes import decoders\n"
        "pool, file = DecodePool(), io.BytesIO(sys.stdin.buffer.read())\n"
        "pool.decode_into(lambda *_: None, file, Wanted(16000))\n"
        "print(*decoders(os.getpid()), flush=True); os.kill(os.getpid(), 9)"
    )

    run = subprocess.run([sys.executable, "-c", script], input=WEBM, capture_output=True)

    assert run.returncode == -signal.SIGKILL
    try:
        child = os.pidfd_open(int(run.stdout))
    except ProcessLookupError:
        return
    ended, _, _ = select.select([child], [], [], 60)
    os.close(child)
    assert ended


DECODE = """
import sys
from audio.child_process import ChildProcess, Confinement
from audio.limits import AudioLimits
from audio.origin import Wanted
samples = []
sink = lambda data, channel: samples.append(len(data))
child = ChildProcess(Confinement())
child.wait_until_ready()
child.decode_into(sink, open(0, "rb"), "webm", Wanted(16000, AudioLimits()))
print(sum(samples))
"""


@pytest.mark.skipif(shutil.which("prlimit") is None or shutil.which("setpriv") is None, reason="needs util-linux")
def test_lower_limits_of_the_system_stay(tmp_path):
    (tmp_path / "clip.webm").write_bytes(WEBM)
    unprivileged = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    if subprocess.run([*unprivileged, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the privilege to drop privileges (CAP_SETPCAP)")
    limits = ["prlimit", "--cpu=1000:1000", f"--as={900 << 20}:{900 << 20}"]
    with (tmp_path / "clip.webm").open("rb") as file:
        command = [*unprivileged, *limits, sys.executable, "-c", DECODE]
        decoded = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)

    assert int(decoded.stdout) == 4 * 16000, decoded.stderr
