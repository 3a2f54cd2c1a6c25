"""Descriptors on their way to the main process."""

import asyncio
import os
import socket

from service.workers.descriptors import DescriptorReceiver, send_descriptor

MANY = 2000  # more than a socket holds


def test_all_descriptors_arrive_with_their_numbers_though_the_socket_is_full_meanwhile():
    open_before = len(os.listdir("/proc/self/fd"))

    async def scenario() -> list[tuple[int, bytes]]:
        ours, theirs = socket.socketpair()
        arrived, all_arrived = [], asyncio.Event()

        def take(number: int, descriptor: int) -> None:
            arrived.append((number, os.pread(descriptor, 9, 0)))
            os.close(descriptor)
            if len(arrived) == MANY:
                all_arrived.set()

        def send() -> None:
            for number in range(MANY):
                file = os.memfd_create("test")
                os.write(file, b"%d" % number)
                send_descriptor(theirs, number, file)
                os.close(file)

        with theirs:
            receiver = DescriptorReceiver(ours, take)
            await asyncio.to_thread(send)
            await all_arrived.wait()
            receiver.close()
        return arrived

    assert asyncio.run(scenario()) == [(number, b"%d" % number) for number in range(MANY)]
    assert len(os.listdir("/proc/self/fd")) == open_before
