"""Damaged files for the decoders: `python -m tests.audio.fuzz --minutes 10`.

Each file is a good one, in which stretches are changed, doubled, moved or missing. It
must be decoded or refused; it may cost the child that decodes it, which is counted, and the file kept in ``--out``.
After each loss a good file must be decoded as before. A seed gives the same files again.
"""

import argparse
import contextlib
import io
import random
import sys
import time
from pathlib import Path

import numpy as np

from audio.errors import AudioError
from audio.limits import AudioLimits
from audio.origin import Wanted
from audio.pool import DecodePool
from tests.audio.media_files import MEDIA, sample_of
from tests.audio.sound_files import LOSSLESS, LOSSY, encoded

INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\x10\0\0")


def noise(rate: int) -> np.ndarray:
    """A second of noise."""
    return np.random.default_rng(0).normal(0, 0.1, rate).clip(-1, 1)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return a file with one to eight changes, more of them near its beginning, where headers are."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = int(len(changed) * chance.random() ** chance.choice((1, 3, 6)))
        stretch = slice(place, place + chance.choice((1, 1, 2, 4, 16, 300)))
        match chance.randrange(6):
            case 0:
                changed[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                new = chance.choice(INTERESTING)
                changed[place : place + len(new)] = new
            case 2:
                changed[stretch] = b""
            case 3:
                changed[stretch] = bytes(changed[stretch]) * chance.choice((2, 3, 50))
            case 4:
                changed[stretch] = chance.randbytes(len(changed[stretch]))
            case _:
                other = chance.randrange(len(changed) + 1)
                changed[other:other] = bytes(changed[stretch])
    return bytes(changed)


def fuzz(minutes: float, seed: int, out: Path) -> tuple[int, int]:
    """Decode damaged files for so long; return how many there were, and how many children they cost."""
    chance, losses, count = random.Random(seed), [], 0
    files = [sample_of(name, noise) for name in MEDIA]
    files += [encoded(noise(16_000), 16_000, *kind) for kind in (*LOSSLESS, *LOSSY)]
    ends = time.monotonic() + 60 * minutes
    with DecodePool(keeps_spare=True, on_loss=lambda: losses.append(1)) as pool:

        def decode(data: bytes) -> object:
            return pool.decode_into(lambda *_: None, io.BytesIO(data), Wanted(16_000, AudioLimits(max_seconds=600)))

        expected = decode(files[0])
        while time.monotonic() < ends:
            data, before = damaged(chance.choice(files), chance), len(losses)
            count += 1
            with contextlib.suppress(AudioError):
                decode(data)
            if len(losses) > before:
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{seed}-{count}").write_bytes(data)
                if decode(files[0]) != expected:
                    sys.exit(f"after file {count} of seed {seed} a good one is not decoded as before")
    return count, len(losses)


def main() -> None:
    """Parse, decode, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="for files that cost a child")
    args = parser.parse_args()
    count, losses = fuzz(args.minutes, args.seed, args.out)
    print(f"seed {args.seed}, {count} files, {losses} children lost")


if __name__ == "__main__":
    main()
