"""Takes away from a process what a decoder does not need, so that code smuggled in by a file can do nothing with it.

All of it is for unprivileged processes, within the default profiles of container engines. Rights that are given up here
cannot be had again. Linux alone has most of this: `confine` says what does not hold.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# What may be missing, from the strongest: calls of the system but those below; files, network and signals; gains of
# rights by programs that run as others; memory, size of files, processes, time; being the first that is killed.
LAYERS = ("seccomp", "landlock", "no_new_privs", "limits", "oom_score")
# A decoder's environment: where programs and libraries are, and one thread for each file, because the stacks of more
# would count as memory. Keys, secrets and tokens of the service stay outside.
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")
_MOST_DESCRIPTORS = 32

_SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 4, 22, 38  # of prctl(2)
_FILTER = 2
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_VERSION = 1
# Kinds of access to files that each version of Landlock knows; later ones know no more.
_KINDS_OF_ACCESS = {1: 13, 2: 14, 3: 15, 4: 15}
_MOST_KINDS = 16
_TCP, _SCOPES = 3, 3  # bind and connect; abstract sockets and signals

# What a decoder calls: memory, its one file, its socket, clocks and its end. A signal to another process, a limit of
# another, a descriptor that is passed on, a path: nothing of it. By the names of the kernel, x86-64 and then aarch64.
_CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "newfstatat": (262, 79),  # what the C library's fstat is
    "lseek": (8, 62),
    "pread64": (17, 67),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "sendto": (44, 206),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "clock_gettime": (228, 113),
    "gettimeofday": (96, 169),
    "rseq": (334, 293),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # place in the table; the kernel's name
# Steps of a filter: load a word of the call, jump if equal, answer. Answers: allowed, EPERM, killed.
_LOAD, _JUMP, _ANSWER = 0x20, 0x15, 0x06
_ALLOWED, _REFUSED, _KILLED = 0x7FFF_0000, 0x0005_0001, 0x8000_0000
_NUMBER_AT, _MACHINE_AT = 0, 4  # in struct seccomp_data


def environment(of: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a decoder: five names, and no secret of the process that starts it."""
    kept = {name: of[name] for name in _KEPT if name in of}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def hide_from_siblings() -> None:
    """Close this process's memory, environment and descriptors (/proc/PID) to other processes of the same user.

    It dumps no core, either. A process that it starts must do this for itself.
    """
    if sys.platform == "linux":
        _prctl(_SET_DUMPABLE, 0)


def confine(memory_bytes: int, processor_seconds: int) -> tuple[str, ...]:
    """Confine this process for the rest of its life, and return which of `LAYERS` do not hold.

    Its address space includes libraries, and its processor time counts from its start.
    """
    hide_from_siblings()
    does_hold = {
        "oom_score": _be_killed_first(),
        "limits": _limit_resources(memory_bytes, processor_seconds),
        "no_new_privs": sys.platform == "linux" and _prctl(_SET_NO_NEW_PRIVS, 1),
        "landlock": sys.platform == "linux" and _forbid_access(),
        "seccomp": sys.platform == "linux" and _forbid_calls(),
    }
    return tuple(layer for layer in LAYERS if not does_hold[layer])


def _be_killed_first() -> bool:
    """Have the kernel choose this process where memory is short."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
        return True
    return False


def _limit_resources(memory_bytes: int, processor_seconds: int) -> bool:
    wanted = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _MOST_DESCRIPTORS,
        resource.RLIMIT_NPROC: 0,
    }
    do_hold = True
    for kind, most in wanted.items():
        _, highest = resource.getrlimit(kind)
        if highest != resource.RLIM_INFINITY:  # a lower one of the system stays: to raise it takes privileges
            most = min(most, highest)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # another system than Linux
            do_hold = False
    return do_hold


def _forbid_access() -> bool:
    """Forbid, by Landlock without any rule, what takes a path; TCP and signals to others, where the kernel can."""
    version = _syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    if version < 1:
        return False
    accesses = (1 << _KINDS_OF_ACCESS.get(version, _MOST_KINDS)) - 1
    rules = struct.pack("QQQ", accesses, _TCP, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _syscall(_LANDLOCK_CREATE, rules, len(rules), 0)
    if ruleset < 0:
        return False
    try:
        return _syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _forbid_calls() -> bool:
    """Have the kernel refuse all calls but `_CALLS`, with EPERM."""
    if platform.machine() not in _MACHINES or struct.calcsize("P") != 8:
        return False
    column, machine = _MACHINES[platform.machine()]
    numbers = sorted(call[column] for call in _CALLS.values())
    steps = [(_LOAD, 0, 0, _MACHINE_AT), (_JUMP, 1, 0, machine), (_ANSWER, 0, 0, _KILLED), (_LOAD, 0, 0, _NUMBER_AT)]
    steps += [(_JUMP, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_ANSWER, 0, 0, _REFUSED), (_ANSWER, 0, 0, _ALLOWED)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    return _prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(program))


def _prctl(option: int, *arguments: int) -> bool:
    filled = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return int(ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(option), *filled)) == 0


def _syscall(number: int, *arguments: bytes | int | None) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments))
