# ruff: noqa: PTH102, PTH104, PTH108, PTH211
"""A decoder whose file is a list of attempts at what a decoder may not do: `python -m tests.audio.probe`.

It is `audio.child`, confined as always, but where that would decode a file, this tries, and its samples are the
outcomes: 0 where an attempt succeeded, else the error's number. The file names what to try it on.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import threading
from pathlib import Path

import numpy as np

import audio.child
from audio.origin import Origin

LIBC = ctypes.CDLL(None, use_errno=True)
O_PATH = 0o10000000


def call(number, *arguments):
    """A call of the system by its number, which is the same on x86-64 and aarch64 from 424 on."""
    if LIBC.syscall(ctypes.c_long(number), *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def libc(name, *arguments):
    if getattr(LIBC, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def fork():
    if os.fork() == 0:
        os._exit(0)


def write_into(path):
    descriptor = os.open(path, os.O_RDWR)
    mmap.mmap(descriptor, 4096)[:1] = b"!"


def connect(kind, address):
    with socket.socket(*kind) as one:
        one.connect(address)


ATTEMPTS = {
    # others' secrets
    "read the environment of the service": lambda on: Path(f"/proc/{on['pid']}/environ").read_bytes(),
    "read the memory of the service": lambda on: os.open(f"/proc/{on['pid']}/mem", os.O_RDONLY),
    "list the descriptors of the service": lambda on: os.listdir(f"/proc/{on['pid']}/fd"),
    "open others' samples": lambda on: os.open(f"/proc/{on['pid']}/fd/{on['samples']}", os.O_RDONLY),
    "overwrite others' samples": lambda on: write_into(f"/proc/{on['pid']}/fd/{on['samples']}"),
    "read its own environment": lambda on: Path("/proc/self/environ").read_bytes(),
    "read the keys": lambda on: Path(on["keys"]).read_bytes(),
    "have a path to the keys": lambda on: os.open(on["keys"], O_PATH),
    "list a folder": lambda on: os.listdir(on["folder"]),
    # others' files
    "write a file": lambda on: Path(on["folder"], "new").write_bytes(b"!"),
    "delete a recording": lambda on: os.unlink(on["recording"]),
    "rename the jobs": lambda on: os.rename(on["recording"], on["recording"] + "x"),
    "empty a file": lambda on: os.truncate(on["recording"], 0),
    "make a link": lambda on: os.link(on["recording"], on["recording"] + "x"),
    "make a symbolic link": lambda on: os.symlink("/", on["recording"] + "y"),
    "make a folder": lambda on: os.mkdir(on["folder"] + "/new"),
    "make a pipe with a name": lambda on: os.mkfifo(on["folder"] + "/pipe"),
    # the upload itself
    "write into its file": lambda on: os.write(on["file"], b"!"),
    "shrink its file": lambda on: os.ftruncate(on["file"], 0),
    "open its file to write": lambda on: os.open(f"/proc/self/fd/{on['file']}", os.O_RDWR),
    "map its file to write": lambda on: mmap.mmap(on["file"], 4),
    # the network
    "connect to the service": lambda on: connect((socket.AF_INET, socket.SOCK_STREAM), ("127.0.0.1", on["port"])),
    "bind a port": lambda on: socket.socket().bind(("127.0.0.1", 0)),
    "send a datagram": lambda on: connect((socket.AF_INET, socket.SOCK_DGRAM), ("127.0.0.1", on["port"])),
    "connect to a local socket": lambda on: connect((socket.AF_UNIX, socket.SOCK_STREAM), on["folder"] + "/socket"),
    "open a raw socket": lambda on: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "make a pair of sockets": lambda on: socket.socketpair(),
    "pass a descriptor on": lambda on: libc("sendmsg", -1, None, 0),
    # processes
    "run a shell": lambda on: os.execv("/bin/sh", ["/bin/sh", "-c", "exit 3"]),
    "fork": lambda on: fork(),
    "start a thread": lambda on: threading.Thread(target=int).start(),
    "signal the service": lambda on: os.kill(on["pid"], 0),
    "stop the service": lambda on: signal.pthread_kill(threading.get_ident(), 0),
    "have signals sent to the service": lambda on: fcntl.fcntl(0, fcntl.F_SETOWN, on["pid"]),
    "limit the service": lambda on: resource.prlimit(on["pid"], resource.RLIMIT_NICE, (0, 0)),
    "trace the service": lambda on: libc("ptrace", 16, on["pid"], None, None),
    "leave its session": lambda on: os.setsid(),
    "be killed last": lambda on: Path("/proc/self/oom_score_adj").write_text("-1000"),
    "raise its limits": lambda on: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1)),
    "dump core": lambda on: libc("prctl", 4, 1, 0, 0, 0),
    # the kernel
    "make memory with a descriptor": lambda on: os.memfd_create("x"),
    "set up io_uring": lambda on: call(425, 1, None),
    "open a process": lambda on: call(434, on["pid"], 0),
    "open by openat2": lambda on: call(437, -100, b"/", ctypes.create_string_buffer(24), 24),
    "take a descriptor of the service": lambda on: call(438, 0, on["samples"], 0),
    "make a namespace": lambda on: libc("unshare", 0x10000000),
    "mount": lambda on: libc("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "change the root": lambda on: os.chroot("/"),
    "choose another user": lambda on: os.setuid(65534),
}


def outcome(attempt, on):
    try:
        attempt(on)
    except OSError as error:
        return error.errno
    except (RuntimeError, ValueError):  # no thread; no higher limit
        return errno.EPERM
    return 0


def probe(container, sink, file, *_):
    on = json.load(file) | {"file": file.fileno()}
    outcomes = [outcome(attempt, on) for attempt in ATTEMPTS.values()]
    sink(np.array([*outcomes, *(b"".join(name.encode() + b" " for name in os.environ))], np.float32).tobytes(), 0)
    return Origin(1.0, container, 1, 16000, truncated=False)


if __name__ == "__main__":
    audio.child.decode_as = probe
    if "--without-seccomp" in os.environ.get("LANG", ""):
        platform.machine = lambda: "unknown"
    audio.child.main()
