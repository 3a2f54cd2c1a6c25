"""A stub engine without a model or torch: the same process and protocol, to measure and test everything around it.

Its transcript of an utterance is the number of samples and their sum, so that mixed-up answers are caught, and after
these the phrases of its prompt. Its tokens are bytes. Some numbers of samples have special effects:

    CRASH_SAMPLES   the process dies at once, as by a native fault
    FAIL_SAMPLES    the batch raises an ordinary error
    DEVICE_SAMPLES  the batch raises an error that the device does not survive

So have some names of checkpoints, whatever their folder:

    unreadable      cannot be loaded
    fatal           ends the process
    endless         loads for ever
    deadly-path     ends the process in the trial of a fast path, unless that is barred
    endless-path    never ends such a trial
    late-path       fails in the warm-up after such a trial, unless that is barred
    hopeless-path   fails there in any case
    remote          is downloaded first
    *.stub          is a file that must exist
    *ctc*           has two decoders, and transcripts say which one was used
    *polyglot*      writes a phrase in German, English or French, which the number of samples selects
    *scripted*      the same, except that it writes Greek if asked for letters of Greek alone
    *prompted*      writes the phrase in the language that the prompt names, or else in its default, English
    *french*        has French as its default
    *telephone*     takes audio at 8 kHz
    *heavy*         has weights of twice the size
    *untimed*       gives no times of words, as Canary may with some utterances
    *forgetful*     writes nothing after the first second of an utterance that begins at a loud sample

As a language identifier, any checkpoint finds the language of the phrase that the number of samples selects; with
"japanese" in its name, it says that Japanese is the only language it knows.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from audio.samples import Samples
from service.engine import loop
from service.engine.download import DownloadReport
from service.engine.loop import Collated, Recognized
from service.engine.protocol import Capabilities, FailureKind, Load, ModelInfo, Ready, Trying
from transcripts.prompt import Prompt
from transcripts.spoken_language import Probabilities
from transcripts.transcript import Transcript, Word

STUB_ENGINE = "benchmarks.stub_engine"
SAMPLE_RATE = 16_000
RTFX = 1000.0
WEIGHT_BYTES = 1_000_000
GRAPHS = {"encoder": {"captured": 5, "refused": 1}}
CRASH_SAMPLES = 16_001
FAIL_SAMPLES = 16_002
LOUD = 0.5
DEVICE_SAMPLES = 16_003


def transcript(samples: Samples, mark: str = "") -> Transcript:
    """Return the stub's transcript of an utterance, with a mark after its last word."""
    count, total = str(len(samples)), f"{float(samples.sum()):.3f}{mark}"
    end = len(samples) / SAMPLE_RATE
    text = f"{count} {total}"
    first, last = len(count), len(text.encode())
    return Transcript(
        text=text,
        tokens=list(text.encode()),
        token_confidence=[0.9] * first + [0.8] * (last - first),
        words=[Word(count, 0.0, end / 2, 0.9, (0, first)), Word(total, end / 2, end, 0.8, (first, last))],
    )


def _forgetful(whole: Transcript, samples: Samples) -> Transcript:
    if not len(samples) or abs(samples[0]) < LOUD:
        return whole
    (word, *_), (text, *_) = whole.words, whole.text.split()
    first = word._replace(end=1.0)
    return Transcript(text, whole.tokens[: len(text)], whole.token_confidence[: len(text)], [first])


def _untimed(timed: Transcript) -> Transcript:
    return timed._replace(words=[word._replace(start=None, end=None) for word in timed.words])


PHRASES = (
    "Guten Morgen, wie geht es Ihnen heute?",
    "Good morning, how are you doing today?",
    "Bonjour, comment allez-vous aujourd'hui?",
)


LANGUAGES = ("de", "en", "fr")
TAGS = {256 + place: code for place, code in enumerate(LANGUAGES)}  # tokens that say the language of a text
GREEK = "Καλημέρα, πώς είστε σήμερα;"
SURE, UNSURE = 0.9, 0.6
UNSURE_LEVEL = 0.5  # with a sample as loud as this, an identifier is not sure


def phrase(samples: Samples, language: str | None = None) -> Transcript:
    """Return the phrase in a language, or else the one that the number of samples selects."""
    return _said(samples, PHRASES[len(samples) % len(PHRASES) if language is None else LANGUAGES.index(language)])


def greek(samples: Samples) -> Transcript:
    """Return the phrase in Greek."""
    return _said(samples, GREEK)


def _said(samples: Samples, text: str) -> Transcript:
    spoken, words, place = text.split(), [], 0
    each = len(samples) / SAMPLE_RATE / len(spoken)
    for number, word in enumerate(spoken):
        end = place + len(word.encode()) + (number > 0)
        words.append(Word(word, number * each, (number + 1) * each, 0.9, (place, end)))
        place = end
    return Transcript(text, list(text.encode()), [0.9] * place, words)


def _tagged(samples: Samples) -> Transcript:
    """Return a phrase in a language, and another language's tag behind it, if the samples are louder than half."""
    said = phrase(samples)
    is_loud = bool(np.abs(samples).max(initial=0.0) >= UNSURE_LEVEL)
    tag = 256 + (len(samples) + is_loud) % len(LANGUAGES)
    return said._replace(tokens=[*said.tokens, tag], token_confidence=[*said.token_confidence, SURE])


def languages(samples: Samples) -> Probabilities:
    """Return an identifier's probabilities: the number of samples selects the language."""
    best = len(samples) % len(LANGUAGES)
    probability = UNSURE if np.abs(samples).max(initial=0.0) >= UNSURE_LEVEL else SURE
    others = (1 - probability) / len(LANGUAGES)  # the last share is Japanese
    return {code: probability if place == best else others for place, code in enumerate(LANGUAGES)} | {"ja": others}


def _known(name: str, *, identifies: bool) -> list[str]:
    """Return the languages that a checkpoint says it knows."""
    if not identifies:
        return list(LANGUAGES)
    return [*(() if "japanese" in name else LANGUAGES), "ja"]


class StubRecognizer:
    """Answers from samples and prompts alone."""

    def __init__(self, load: Load, on_download: DownloadReport) -> None:
        name = Path(load.checkpoint).name
        if name == "fatal":
            os.abort()
        if name == "unreadable":
            raise ValueError("unreadable: not a checkpoint")
        if load.checkpoint.endswith(".stub") and not Path(load.checkpoint).exists():
            raise ValueError(f"{load.checkpoint}: no such file")
        if name == "endless":
            threading.Event().wait()
        if name.endswith("path") and not load.barred:
            on_download.send(Trying("stub", "loop"))
            if name == "deadly-path":
                os.abort()
            if name == "endless-path":
                threading.Event().wait()
            on_download.send(Trying("stub", None))
        self._fails_late = name == "hopeless-path" or (name == "late-path" and not load.barred)
        if name == "remote":
            on_download(1, 2)
            on_download(2, 2)
        self._identifies = load.identifies
        self._is_scripted = "scripted" in name
        self._is_polyglot = "polyglot" in name
        self._is_prompted = "prompted" in name
        self._is_untimed = "untimed" in name
        self._is_forgetful = "forgetful" in name
        self._is_tagged = "tagged" in name
        decoders = ["aed"] if self._is_prompted else ["tdt", "ctc"] if "ctc" in name else []
        self._default = "fr" if "french" in name else "en"
        has_languages = self._identifies or self._is_polyglot or self._is_prompted
        scripted = [*LANGUAGES, "el"] if self._is_scripted else None
        info = ModelInfo(
            "stub",
            "none",
            "float32",
            decoders=decoders,
            languages=_known(name, identifies=self._identifies) if has_languages else scripted,
            scripts=["GREEK", "LATIN"] if self._is_scripted else [],
            default_language=self._default if self._is_prompted else None,
            capabilities=Capabilities(translation=self._is_prompted, language=self._is_tagged),
            language_tags=TAGS if self._is_tagged else {},
        )
        self.ready = partial(
            Ready,
            model=load.model,
            info=info,
            token_bytes=[*(bytes([token]) for token in range(256)), *[b""] * len(TAGS)],
            sample_rate=8_000 if "telephone" in name else SAMPLE_RATE,
            batch_seconds=load.batch_seconds or 120.0,
            slots=1,
            weight_bytes=2 * WEIGHT_BYTES if "heavy" in name else WEIGHT_BYTES,
            checkpoint=load.checkpoint,
            graphs=GRAPHS,
            fast_paths=load.barred,
        )

    def warm_up(self) -> Iterator[tuple[float, float]]:
        """Pretend to warm up."""
        yield RTFX, 1.0
        if self._fails_late:
            raise RuntimeError("too many resources requested for launch")

    def collate(self, utterances: Sequence[Samples]) -> Collated:
        """Copy the samples."""
        lengths = [len(samples) for samples in utterances]
        return Collated([samples.copy() for samples in utterances], max(lengths) * len(lengths) / SAMPLE_RATE)

    def share_processors(self, engines: int) -> None:
        """Do nothing: it needs no threads."""

    def recognize(self, collated: Collated, prompts: Sequence[Prompt], decoder: str | None) -> Recognized:
        """Answer, or have the special effect of a number of samples."""
        lengths = [len(samples) for samples in collated.batch]
        if CRASH_SAMPLES in lengths:
            os.abort()
        if FAIL_SAMPLES in lengths:
            raise ArithmeticError("an utterance that fails its batch")
        if DEVICE_SAMPLES in lengths:
            raise ConnectionResetError("an utterance that poisons the device")
        answers = self._answers(collated.batch, prompts, decoder)
        return Recognized(lambda: None, lambda: answers)

    def _answers(
        self, utterances: Sequence[Samples], prompts: Sequence[Prompt], decoder: str | None
    ) -> Sequence[Transcript | Probabilities]:
        if self._identifies:
            return [languages(samples) for samples in utterances]
        if self._is_prompted:
            wanted = [prompt.target_language or prompt.language or self._default for prompt in prompts]
            return [phrase(*pair) for pair in zip(utterances, wanted, strict=True)]
        if self._is_scripted:
            asked = [prompt.written_languages == ("el",) for prompt in prompts]
            return [greek(samples) if one else phrase(samples) for samples, one in zip(utterances, asked, strict=True)]
        if self._is_polyglot:
            return [phrase(samples) for samples in utterances]
        if self._is_tagged:
            return list(map(_tagged, utterances))
        marks = [(decoder or "") + prompt.phrases.replace("\n", "|") for prompt in prompts]
        found = [transcript(*pair) for pair in zip(utterances, marks, strict=True)]
        if self._is_forgetful:
            found = list(map(_forgetful, found, utterances))
        return list(map(_untimed, found)) if self._is_untimed else found

    def kind_of(self, error: Exception) -> FailureKind:
        """Trust the device after all errors except one."""
        return FailureKind.DEVICE if isinstance(error, ConnectionResetError) else FailureKind.BATCH

    def release(self) -> None:
        """Do nothing: there is no memory to free."""


if __name__ == "__main__":
    loop.main(StubRecognizer, lambda: False)
