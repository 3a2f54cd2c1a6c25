"""Words that models lose, before and after speech without words is transcribed again (`STENO_RESCUE`).

Each clip is one utterance, as it is and with what makes models lose words: zeros behind it, a shift, other clips before
and behind it, a quiet voice behind a loud one. The texts of the clips are compared as they are, with numbers in words:
a number in figures is one word, and one of its digits that is found does not count.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jiwer
import numpy as np

from audio.samples import Samples
from audio.segment.voice_activity import RATE, SpeechDetector
from models import Transcriber, load_model
from service.dispatch.rescue import Rescue
from training.manifest import read_manifest
from transcripts.transcript import Transcript


class Utterance(NamedTuple):
    """Samples, and what is said in them."""

    samples: Samples
    text: str


def variants(clips: Sequence[Utterance]) -> Iterator[tuple[str, list[Utterance]]]:
    """Yield each variant's name and utterances."""
    for before, behind in ((0, 0), (0.04, 0), (0, 0.4), (0.04, 0.4), (0, 2)):
        zeros = [np.zeros(round(seconds * RATE), np.float32) for seconds in (before, behind)]
        padded = [Utterance(np.concatenate([zeros[0], clip.samples, zeros[1]]), clip.text) for clip in clips]
        yield f"{behind} s of zeros" + (f", shifted by {before} s" if before else ""), padded
    for count, decibels in ((2, 0), (4, 0), (2, 30), (2, 40)):
        groups = [clips[first : first + count] for first in range(0, len(clips), count)]
        yield f"joined by {count}, the last {decibels} dB lower", [_joined(of, decibels) for of in groups]


def _joined(clips: Sequence[Utterance], decibels: float) -> Utterance:
    *loud, last = [clip.samples for clip in clips]
    quiet = (last * 10 ** (-decibels / 20)).astype(np.float32)
    return Utterance(np.concatenate([*loud, quiet]), " ".join(clip.text for clip in clips))


def measure(model: Transcriber, rescue: Rescue, utterances: Sequence[Utterance]) -> str:
    """Return the cells of a variant's row."""
    decoder = "ctc" if "ctc" in model.decoders else None
    tried: list[Samples] = []

    async def again(samples: Samples) -> Transcript:
        tried.append(samples)
        return model.transcribe([samples], decoder=decoder)[0]

    lost, errors, better, worse = [0, 0], [0, 0], 0, 0
    firsts = model.transcribe([one.samples for one in utterances])
    for one, first in zip(utterances, firsts, strict=True):
        second = asyncio.run(rescue.rescue(one.samples, RATE, first, again)).transcript
        found = [jiwer.process_words(one.text, transcript.text) for transcript in (first, second)]
        counts = [each.substitutions + each.deletions + each.insertions for each in found]
        lost = [total + each.deletions for total, each in zip(lost, found, strict=True)]
        errors = [total + each for total, each in zip(errors, counts, strict=True)]
        better, worse = better + (counts[1] < counts[0]), worse + (counts[1] > counts[0])
    return " | ".join(map(str, (len(utterances), *lost, *errors, len(tried), better, worse)))


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=Path, metavar="MANIFEST", help="clips, as `steno eval` takes them")
    parser.add_argument("--split", help="only clips of this split")
    parser.add_argument("--models", nargs="+", default=["bundled"], metavar="MODEL")
    args = parser.parse_args()
    clips = [Utterance(one.samples(RATE), one.text or "") for one in read_manifest(args.clips, args.split)]
    print("| model | variant | utterances | lost | after | errors | after | stretches | better | worse |")
    with ThreadPoolExecutor(1) as threads:
        rescue = Rescue(SpeechDetector(), threads)
        for name in args.models:
            model = load_model(name, device="cpu")
            for variant, utterances in variants(clips):
                print(f"| {Path(name).stem} | {variant} | {measure(model, rescue, utterances)} |", flush=True)


if __name__ == "__main__":
    main()
