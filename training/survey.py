"""A survey of the training data before the first step: what is used and what is left out."""

import itertools
from collections.abc import Iterable, Sequence

from models.config import ModelConfig
from training.clip import Clip
from training.errors import ManifestError
from training.examples import Examples
from training.recipe import TrainingData
from training.takes import Take
from training.vocabulary import TrainingVocabulary


def survey(
    clips: Sequence[Clip],
    takes: Sequence[Take],
    data: TrainingData,
    examples: Examples,
    vocabulary: TrainingVocabulary,
    config: ModelConfig,
) -> list[str]:
    """Return lines about the number and length of clips, and problems of some of them.

    Files are not decoded; only their existence is checked.

    Args:
        clips: the clips of the manifests.
        takes: the takes to train on.
        data: the recipe's training data.
        examples: makes labels of transcripts.
        vocabulary: the vocabulary.
        config: the student's configuration.

    Raises:
        ManifestError: if none of the files exists.
    """
    lines = [f"{_amount(clips)}; trained on: {len(takes):,} takes, {_hours(take.seconds for take in takes)}"]
    missing = [clip for clip in clips if not clip.audio.is_file()]
    if len(missing) == len(clips):
        raise ManifestError(f"{clips[0]}: No such file or directory (nor any other clip's)")
    short = [clip for clip in clips if clip.seconds < data.min_seconds * min(data.speeds)]
    long = [clip for clip in clips if clip.seconds > data.max_seconds * max(data.speeds)]
    lines += _line("left out", [(f"under {data.min_seconds:g} s", short), (f"over {data.max_seconds:g} s", long)])
    lines += _line("skipped", [(f"no file, such as {missing[0]}", missing)] if missing else [])
    return lines + _line("transcripts", list(_odd_transcripts(takes, examples, vocabulary, config).items()))


def _odd_transcripts(
    takes: Sequence[Take], examples: Examples, vocabulary: TrainingVocabulary, config: ModelConfig
) -> dict[str, list[Clip]]:
    """Return the clips with unusable transcripts, by problem."""
    empty: list[Clip] = []
    unknown: list[Clip] = []
    crowded: list[Clip] = []
    endless: list[Clip] = []
    for take in takes:
        text = take.clip.text
        if text is None:
            continue
        tokens = examples.tokens(take.clip, text)
        if not text.strip():
            empty.append(take.clip)
        if vocabulary.lacks(text, take.clip.prompt):
            unknown.append(take.clip)
        repeats = sum(one == other for one, other in itertools.pairwise(tokens))
        features = int(take.seconds * config.features.sample_rate) // config.features.hop
        frames = -(-features // config.encoder.subsampling_factor)
        if config.ctc and len(tokens) + repeats > frames:
            crowded.append(take.clip)
        if config.attention and len(examples.sequence(take.clip, tokens)) > config.attention.positions:
            endless.append(take.clip)
    return {
        "empty": empty,
        "with characters that the vocabulary lacks": unknown,
        "longer than their clip's frames, which CTC leaves out": crowded,
        "longer than the decoder's positions, which are skipped": endless,
    }


def _line(what: str, groups: Iterable[tuple[str, Sequence[Clip]]]) -> list[str]:
    """Return a line about the groups that are not empty, if any."""
    told = [f"{_amount(group)} {name}" for name, group in groups if group]
    return [f"{what}: " + ", ".join(told)] if told else []


def _amount(clips: Sequence[Clip]) -> str:
    return f"{len(clips):,} clip{'s' * (len(clips) != 1)} ({_hours(clip.seconds for clip in clips)})"


def _hours(seconds: Iterable[float]) -> str:
    total = sum(seconds)
    return f"{total / 3600:.1f} h" if total >= 3600 else f"{total / 60:.1f} min" if total >= 60 else f"{total:.1f} s"
