"""How much of the interpreter's time detokenizing a batch takes, and how much is left for launching the next batch.

A thread of an engine detokenizes a batch while another launches the next, and both need the interpreter lock.
Operations on tensors of a few numbers stand in for launches; on a CPU they take as long as launches on a GPU.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import torch

from benchmarks.environment import describe
from benchmarks.timing import WARM_UPS
from models import Recognition, load_model
from models.search.result import SearchResult
from models.text.detokenizer import Detokenizer
from models.text.tokenizers import Vocabulary
from service.engine.loop import SWITCH_INTERVAL, keep_interpreter_free
from service.engine.process import Sanity, transcripts_of

_MEASURED_SECONDS = 1.0
_OPERATIONS = 100


def main() -> None:
    """Parse, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--clips", type=int, default=192, help="clips of a batch")
    parser.add_argument("--tokens", type=int, default=40, help="tokens of a clip")
    parser.add_argument("--period", type=float, default=0.04, help="seconds from one batch to the next")
    parser.add_argument("--intervals", type=float, nargs="+", default=[0.005, SWITCH_INTERVAL])
    parser.add_argument("--rounds", type=int, default=9, help="measured turns")
    args = parser.parse_args()

    keep_interpreter_free()
    torch.set_num_threads(1)
    model = load_model(args.model)
    vocabulary, seconds = model.model._vocabulary, model.model._config.seconds  # noqa: SLF001
    fetched, detokenizer = found(vocabulary, args.clips, args.tokens).fetched(), Detokenizer(vocabulary, seconds)
    batch, encoder = Recognition(fetched, detokenizer), msgspec.msgpack.Encoder()
    one_by_one = Recognition(fetched, detokenizer.one_by_one)

    def detokenize() -> None:
        encoder.encode(transcripts_of(batch, Sanity()))

    taken = seconds_of(detokenize, args.rounds)
    taken_one_by_one = seconds_of(lambda: encoder.encode(transcripts_of(one_by_one, Sanity())), args.rounds)
    rates: dict[str, list[float]] = {name: [] for name in ("alone", *map("{:g}".format, args.intervals))}
    for _ in range(args.rounds):
        rates["alone"].append(launches_a_second())
        for interval in args.intervals:
            with switching(interval):
                rates[f"{interval:g}"].append(launches_a_second(detokenize, args.period))
    kept: dict[str, float] = {
        name: statistics.median(beside / alone for beside, alone in zip(rate, rates["alone"], strict=True))
        for name, rate in rates.items()
    }
    print(f"{args.clips} clips of {args.tokens} tokens take {1000 * taken:.2f} ms of the interpreter")
    print(f"one utterance after the other: {1000 * taken_one_by_one:.2f} ms")
    print(f"launches alone: {statistics.median(rates['alone']):.0f} a second")
    for name, share in list(kept.items())[1:]:
        print(
            f"a batch every {1000 * args.period:.0f} ms, switching after {name} s: {100 * share:.1f} % of the launches"
        )
    about = {"model": args.model, "clips": args.clips, "tokens": args.tokens, "period": args.period}
    row = {
        "detokenizing_seconds": taken,
        "one_by_one": taken_one_by_one,
        "launches": statistics.median(rates["alone"]),
        "kept": kept,
    }
    print(json.dumps({"benchmark": "detokenize", **about, **row, **describe(torch.device("cpu"))}))


def found(vocabulary: Vocabulary, clips: int, tokens: int) -> SearchResult:
    """Return a typical search result: words of a piece or two, without rare cases."""
    usual = [token for token, text in enumerate(vocabulary.texts) if text.isalpha() and text.isascii()]
    starts = [token for token in usual if vocabulary.begin_words[token]]
    others = [token for token in usual if not vocabulary.begin_words[token]]
    drawn = torch.Generator().manual_seed(0)
    of_starts, of_others = (
        torch.tensor(some)[torch.randint(len(some), (clips, tokens), generator=drawn)] for some in (starts, others)
    )
    is_start = torch.rand(clips, tokens, generator=drawn) < 0.6  # English: 1.6 pieces a word
    frames = 3 * torch.arange(tokens).expand(clips, tokens)
    return SearchResult(
        tokens=of_starts.where(is_start, of_others),
        frames=frames,
        ends=frames + 1,
        durations=None,
        confidence=torch.rand(clips, tokens, generator=drawn),
        counts=torch.full((clips,), tokens),
    )


def seconds_of(detokenize: Callable[[], object], rounds: int) -> float:
    """Return the least processor time of this thread for a call, so that other programs do not count."""
    times = []
    for _ in range(WARM_UPS + rounds):
        began = time.thread_time()
        detokenize()
        times.append(time.thread_time() - began)
    return min(times[WARM_UPS:])


def launches_a_second(detokenize: Callable[[], None] | None = None, period: float = 1.0) -> float:
    """Return the number of small operations in a second while another thread detokenizes a batch in each period.

    Seconds are processor time of this process, so that other programs do not count.
    """
    numbers, wanted, ended = torch.ones(16), threading.Semaphore(0), threading.Event()

    def detokenizing() -> None:
        while wanted.acquire() and not ended.is_set():
            assert detokenize is not None
            detokenize()

    thread = threading.Thread(target=detokenizing)
    thread.start()
    done, began, batches = 0, time.process_time(), 0
    try:
        while (passed := time.process_time() - began) < _MEASURED_SECONDS:
            if detokenize is not None and passed >= batches * period:
                batches += 1
                wanted.release()
            for _ in range(_OPERATIONS):
                numbers.mul_(1.0)
            done += _OPERATIONS
    finally:
        ended.set()
        wanted.release()
        thread.join()
    return done / passed


@contextmanager
def switching(interval: float) -> Iterator[None]:
    """Set Python's switch interval within the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


if __name__ == "__main__":
    main()
