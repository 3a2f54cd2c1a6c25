import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from service.dispatch.window import Window
from tests.asynchronous import asynchronous
from tests.service.dispatch.fake_engine import settle


async def enter(window: Window, samples: int) -> asyncio.Future[None]:
    """Wait for room, as a recording does for each part, and return it."""
    room = window.acquire(samples)
    try:
        await room
    except asyncio.CancelledError:
        window.release(room)
        raise
    return room


@asynchronous
async def test_audio_enters_in_order_as_other_audio_leaves():
    window = Window()
    window.samples = 10
    first = await enter(window, 6)
    large, small = (asyncio.create_task(enter(window, samples)) for samples in (5, 1))
    await settle()
    assert not large.done()
    assert not small.done()  # it would fit, but stands behind

    window.release(first)
    await settle()

    assert large.done()
    assert small.done()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["enter", "cancel", "leave"]), st.integers(1, 12)), max_size=60))
@asynchronous
async def test_the_window_is_never_overfull_and_everything_enters_in_the_end(events):
    window = Window()
    window.samples = 10
    guests: list[tuple[int, asyncio.Task]] = []
    for event, number in events:
        if event == "enter":
            guests.append((number, asyncio.create_task(enter(window, number))))
        elif guests:
            samples, guest = guests.pop(number % len(guests))
            if event == "leave" and guest.done():
                window.release(guest.result())
            else:
                guests += [(samples, guest)] if guest.done() else []
                guest.cancel()  # without effect on one that is inside
        await settle()
        inside = [samples for samples, guest in guests if guest.done()]
        assert sum(inside) <= 10 or len(inside) == 1

    while guests:
        inside = next(guest for guest in guests if guest[1].done())
        guests.remove(inside)
        window.release(inside[1].result())
        await settle()
