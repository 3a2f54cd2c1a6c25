"""Processor time of the dispatcher for a clip, without HTTP: what several HTTP processes would leave to one process.

    python -m benchmarks dispatching

One process forms batches, writes samples into shared memory, speaks to the stub engine and hands transcripts back; no
request is received, parsed or decoded. So HTTP processes could take over what `front` costs beyond this, and this
bounds the clips of one dispatcher, however many HTTP processes it has.
"""

import argparse
import asyncio
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from audio.recording import Recording
from audio.segment.voice_activity import SpeechDetector
from benchmarks.environment import describe
from service.dispatch.cut_recording import CutRecording
from service.dispatch.recordings import Options, Recordings
from service.dispatch.utterance import Lane
from service.engine.supervisor import STUB_ENGINE
from service.server import Server
from service.settings import Settings

_RATE = 16_000
_TARGET_RTFX = 20_000


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each clip")
    parser.add_argument("--clips", type=int, default=2000, help="of each run")
    parser.add_argument("--under-way", type=int, default=64, help="clips at the same time")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()

    found = asyncio.run(_measured(args))
    milliseconds = statistics.median(found)
    clips = 1000 / milliseconds
    print(f"{milliseconds:.2f} ms a clip ({min(found):.2f} to {max(found):.2f}): {clips:.0f} clips a second and core,")
    cores = _TARGET_RTFX / args.seconds / clips
    print(f"an RTFx of {clips * args.seconds:.0f}; {_TARGET_RTFX} would take {cores:.1f} cores")
    about = describe(torch.device("cpu")) | {"seconds": args.seconds, "under_way": args.under_way}
    print(json.dumps({"benchmark": "dispatching", **about, "milliseconds": found}))


async def _until_ready(server: Server, supervising: asyncio.Task[None]) -> None:
    while not server.dispatcher.is_ready:
        await asyncio.wait({supervising}, timeout=0.05)
        if supervising.done():  # no engine starts
            supervising.result()


async def _measured(args: argparse.Namespace) -> list[float]:
    server = Server(Settings(model="stub.nemo", port=0, max_requests=4096), STUB_ENGINE)
    supervising = asyncio.create_task(server.fleet.run())
    await _until_ready(server, supervising)
    samples = np.random.default_rng(0).standard_normal(round(args.seconds * _RATE)).astype(np.float32)
    detector, left = SpeechDetector(), iter(range(0))
    lane = Lane(next(iter(server.dispatcher.catalog)).id)
    with ThreadPoolExecutor(2) as threads:
        recordings = Recordings(server.dispatcher, threads)

        async def ask() -> None:
            for number in left:
                recording = Recording(_RATE, 2 * args.seconds)
                recording.append(samples.tobytes())
                cut = CutRecording(recording, None, detector, threads)
                async for _ in recordings.transcribe(cut, Options(str(number), lane, most_seconds=600.0)):
                    pass
                recording.close()

        found = []
        for run in range(args.runs + 1):
            left = iter(range(args.clips))
            began = time.process_time()
            await asyncio.gather(*(ask() for _ in range(args.under_way)))
            if run:  # the first one warms up
                found.append(1000 * (time.process_time() - began) / args.clips)
    await server.fleet.stop()
    await supervising
    return found


if __name__ == "__main__":
    main()
