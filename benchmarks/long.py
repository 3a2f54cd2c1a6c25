"""Errors caused by cutting long recordings: joined clips against the same audio cut at the clips' edges.

A recording is made of clips with transcripts, in a random order with random pauses, and disturbed as real ones are. The
result is the ratio of errors: 1 means that cutting loses nothing. The joined recording is transcribed like a file of
`steno transcribe`; for comparison, the model gets the same samples clip by clip, each with half of the pauses around
it, at most half a second.
"""

import argparse
import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile
import torch
from av.filter import Graph
from tqdm import tqdm

from audio.decode import decode
from audio.limits import AudioLimits
from audio.resample import resampled
from audio.samples import Samples
from benchmarks.environment import describe
from benchmarks.rows import Rows, add_rows_option
from bulk.file_transcripts import Failed, Options, transcribe_files
from cli.references import Reference, read_references
from cli.scoring import Score, Scorer
from models import Transcriber, default_dtype, load_model

RATE = 16_000
_PAUSES = (0.3, 2.0)
_SILENCE_SECONDS = 60.0
_BATCH_SECONDS = 60.0
# Clipping level of a clipped recording, as a share of its loudest sample.
_CLIPPED = 0.125


@dataclass(frozen=True, slots=True)
class Joined:
    """A long recording and where its clips are.

    Attributes:
        samples: mono, float32.
        rate: samples per second.
        edges: the first sample of each clip and the one after its last, with its share of the pauses around it.
        texts: transcripts of the clips.
        subtype: subtype of the wav file.
    """

    samples: Samples
    rate: int
    edges: list[tuple[int, int]]
    texts: list[str]
    subtype: str = "PCM_16"

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return len(self.samples) / self.rate

    def at(self, rate: int) -> Iterator[Samples]:
        """Yield its clips at a rate, cut at their edges."""
        whole = np.concatenate(list(resampled([self.samples], self.rate, rate)))
        for start, stop in self.edges:
            yield whole[round(start * rate / self.rate) : round(stop * rate / self.rate)]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "clips", type=Path, metavar="MANIFEST", help="clips with transcripts, as `steno eval` takes them"
    )
    parser.add_argument("--models", nargs="+", default=["bundled"], metavar="MODEL")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--minutes", type=float, nargs="+", default=[10.0], help="length of the recording")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="order of the clips, pauses and noise")
    parser.add_argument("--split", help="only clips of this split")
    parser.add_argument("--source", help="only clips of this source")
    parser.add_argument("--utterance-seconds", type=float, help="longest utterance; default: what suits the model")
    add_rows_option(parser)
    args = parser.parse_args()

    clips = [
        clip
        for clip in read_references(args.clips)
        if args.split in (None, clip.split) and args.source in (None, clip.source)
    ]
    if not clips:
        parser.error(f"{args.clips} has no clips of split {args.split} and source {args.source}")
    scorer = Scorer()
    about = {
        "clips": str(args.clips),
        "split": args.split,
        "source": args.source,
        "utterance_seconds": args.utterance_seconds,
        **describe(torch.device("cpu")),
    }
    rows = Rows("long", about, args.rows)
    cells = rows.missing(itertools.product(args.models, args.minutes, args.seeds, args.variants))
    dtype = default_dtype(torch.device("cpu"))
    models: dict[str, Transcriber] = {}
    for cell in tqdm(cells, unit="cell", disable=None):
        name, minutes, seed, variant = cell
        model = models.setdefault(name, models.get(name) or load_model(name, dtype=dtype))
        recording = long_recording(clips, VARIANTS[variant], minutes * 60, seed)
        long, cut = _scores(model, recording, scorer, args.utterance_seconds)
        row = {"model": name, "minutes": minutes, "seed": seed, "variant": variant}
        errors = {"joined_errors": long.errors, "cut_errors": cut.errors, "words": cut.words}
        rows.add(cell, row | errors | {"seconds": recording.seconds})
        print(_line(rows_of=[row | errors]), flush=True)
    print_table(list(rows))
    print(rows.line())


def print_table(rows: Sequence[dict[str, object]]) -> None:
    """Print a line for each variant, and the mean ratio for each model and length."""
    by_length: dict[tuple[str, float], list[dict[str, object]]] = {}
    for row in rows:
        by_length.setdefault((str(row["model"]), float(str(row["minutes"]))), []).append(row)
    for (model, minutes), of_model in by_length.items():
        print(f"{model}, {minutes:g} min: {'variant':12} {'cut %':>7} {'joined %':>9} {'ratio':>6}")
        ratios = []
        for variant in dict.fromkeys(row["variant"] for row in of_model):
            same = [row for row in of_model if row["variant"] == variant]
            print(_line(same))
            ratios.append(ratio(same))
        print(f"{'mean of the ratios':36} {np.mean(ratios):6.3f}   greatest {max(ratios):.3f}")


def ratio(rows: Sequence[dict[str, object]]) -> float:
    """Return the errors of joined recordings over those of the same clips cut at their edges."""
    joined_errors, cut_errors = (sum(int(str(row[key])) for row in rows) for key in ("joined_errors", "cut_errors"))
    return joined_errors / cut_errors if cut_errors else float(joined_errors > 0) + 1.0


def _line(rows_of: Sequence[dict[str, object]]) -> str:
    words = sum(int(str(row["words"])) for row in rows_of)
    cut, long = (100 * sum(int(str(row[key])) for row in rows_of) / words for key in ("cut_errors", "joined_errors"))
    return f"  {rows_of[0]['variant']!s:18} {cut:8.2f} {long:9.2f} {ratio(rows_of):6.3f}"


def _scores(
    model: Transcriber, recording: Joined, scorer: Scorer, utterance_seconds: float | None
) -> tuple[Score, Score]:
    """Return the scores of a model on a recording, and on its clips."""
    reference = " ".join(recording.texts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.wav"
        soundfile.write(path, recording.samples, recording.rate, subtype=recording.subtype)
        options = Options(batch_seconds=_BATCH_SECONDS, utterance_seconds=utterance_seconds)
        (outcome,) = transcribe_files(model, [str(path)], options)
        samples, rate = soundfile.read(path, dtype="float32")
    if isinstance(outcome, Failed):
        raise SystemExit(outcome.error)
    long = scorer.score(reference, outcome.transcript.text, recording.seconds)
    cut = replace(recording, samples=samples, rate=rate).at(model.sample_rate)
    texts = [found.text for found in model.transcribe(list(cut), batch_seconds=_BATCH_SECONDS)]
    scores = [scorer.score(text, transcript, 0.0) for text, transcript in zip(recording.texts, texts, strict=True)]
    return long, sum(scores, Score())


@dataclass(frozen=True, slots=True)
class Variant:
    """How a recording is made and disturbed.

    Attributes:
        pauses: shortest and longest silence between two clips, in seconds.
        tempo: factor of the clips' speed.
        silence: seconds of silence in the middle.
        disturbed: disturbs the whole recording.
    """

    pauses: tuple[float, float] = _PAUSES
    tempo: float = 1.0
    silence: float = 0.0
    disturbed: Callable[[Joined, np.random.Generator], Joined] = lambda recording, _: recording


def long_recording(clips: Sequence[Reference], variant: Variant, seconds: float, seed: int) -> Joined:
    """Join clips to a recording of ``seconds`` or a little more.

    Args:
        clips: the clips, repeated in another order if there are too few.
        variant: the variant.
        seconds: the length.
        seed: seed of order, pauses and noise.
    """
    draw, noise = random.Random(seed), np.random.default_rng(seed)  # noqa: S311
    pieces: list[Samples] = []
    lengths: list[tuple[int, int]] = []  # of each clip and of the pause after it
    texts: list[str] = []
    order: list[Reference] = []
    while sum(map(sum, lengths)) < seconds * RATE:
        if not order:
            order = list(clips)
            draw.shuffle(order)
        clip = order.pop()
        samples = at_tempo(_read(clip.audio), variant.tempo)
        pause = round(draw.uniform(*variant.pauses) * RATE)
        pieces += [samples, np.zeros(pause, np.float32)]
        lengths.append((len(samples), pause))
        texts.append(clip.text)
    if variant.silence:
        middle = max(1, len(lengths) // 2)  # after a clip
        added = round(variant.silence * RATE)
        pieces.insert(2 * middle, np.zeros(added, np.float32))
        lengths[middle - 1] = (lengths[middle - 1][0], lengths[middle - 1][1] + added)
    recording = Joined(np.concatenate(pieces), RATE, _edges(lengths), texts)
    return variant.disturbed(recording, noise)


def _edges(lengths: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges of each clip, with half of the pauses around it, at most half a second of each."""
    most = RATE // 2
    edges, start, before = [], 0, 0
    for length, pause in lengths:
        edges.append((start - min(before // 2, most), start + length + min(pause // 2, most)))
        start, before = start + length + pause, pause
    return edges


def _read(path: Path) -> Samples:
    with path.open("rb") as file:
        return decode(file, rate=RATE, limits=AudioLimits()).samples


def at_tempo(samples: Samples, tempo: float) -> Samples:
    """Return samples with the tempo changed by a factor at the same pitch (FFmpeg's atempo)."""
    if tempo == 1.0:
        return samples
    graph = Graph()
    source = graph.add_abuffer(sample_rate=RATE, format="flt", layout="mono", time_base=Fraction(1, RATE))
    graph.link_nodes(source, graph.add("atempo", str(tempo)), graph.add("abuffersink")).configure()
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[None]), format="flt", layout="mono")
    frame.sample_rate = RATE
    graph.push(frame)
    graph.push(None)
    pieces: list[Samples] = []
    while True:
        try:
            pieces.append(graph.pull().to_ndarray()[0])
        except (av.BlockingIOError, av.EOFError):
            return np.concatenate(pieces)


def _with_noise(decibels: float) -> Callable[[Joined, np.random.Generator], Joined]:
    """Return a function that adds white noise at ``decibels`` below the mean power of the clips."""

    def disturbed(recording: Joined, noise: np.random.Generator) -> Joined:
        power = _power(recording) / 10 ** (decibels / 10)
        added = noise.normal(0, np.sqrt(power), len(recording.samples)).astype(np.float32)
        return replace(recording, samples=recording.samples + added)

    return disturbed


def _at_level(decibels: float) -> Callable[[Joined, np.random.Generator], Joined]:
    """Return a function that sets the mean power of the clips to ``decibels`` of full scale."""

    def disturbed(recording: Joined, _: np.random.Generator) -> Joined:
        gain = np.sqrt(10 ** (decibels / 10) / _power(recording))
        return replace(recording, samples=recording.samples * np.float32(gain))

    return disturbed


def _clipped(recording: Joined, _: np.random.Generator) -> Joined:
    most = _CLIPPED * np.abs(recording.samples).max()
    return replace(recording, samples=(recording.samples.clip(-most, most) / most).astype(np.float32))


def _over_a_telephone(recording: Joined, _: np.random.Generator) -> Joined:
    """Convert a recording to 8 kHz in 8 bits of mu-law."""
    rate = 8_000
    samples = np.concatenate(list(resampled([recording.samples], recording.rate, rate)))
    edges = [
        (round(start * rate / recording.rate), round(stop * rate / recording.rate)) for start, stop in recording.edges
    ]
    return replace(recording, samples=samples, rate=rate, edges=edges, subtype="ULAW")


def _power(recording: Joined) -> float:
    spoken = np.concatenate([recording.samples[slice(*edge)] for edge in recording.edges])
    return float(np.square(spoken).mean())


VARIANTS = {
    "plain": Variant(),
    "no-pauses": Variant(pauses=(0.0, 0.0)),
    "noise-20": Variant(disturbed=_with_noise(20)),
    "noise-10": Variant(disturbed=_with_noise(10)),
    "quiet": Variant(disturbed=_at_level(-50)),
    "clipped": Variant(disturbed=_clipped),
    "telephone": Variant(disturbed=_over_a_telephone),
    "tempo-0.8": Variant(tempo=0.8),
    "tempo-1.3": Variant(tempo=1.3),
    "silence": Variant(silence=_SILENCE_SECONDS),
}

if __name__ == "__main__":
    main()
