"""Word error rate of a model in training, by the same code that transcribes for users."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from audio.samples import Samples
from models import Transcriber, Transcript
from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.features import LogMelFeatures
from models.model import Model
from training.ahead import ahead
from training.attention_vocabulary import TrainingVocabulary
from training.errors import ManifestError, TrainingError
from training.takes import Take

# Returns errors and number of words, given a reference and a transcript. The caller defines what an error is.
WordErrors = Callable[[str, str], tuple[int, int]]

_CLIPS_AT_A_TIME = 64


def transcribing(
    config: ModelConfig,
    vocabulary: TrainingVocabulary,
    state: Mapping[str, Tensor],
    front_end: LogMelFeatures,
    device: torch.device,
) -> Transcriber:
    """Return a model that transcribes with a copy of these weights."""
    copied = {name: value.clone() for name, value in state.items()}
    checkpoint = Checkpoint(config, vocabulary.tokenizer, copied, front_end.window, front_end.mel_bank)
    return Transcriber(Model(checkpoint, device, torch.float32))


def word_error_rates(
    model: Transcriber, clips: Sequence[Take], word_errors: WordErrors, skip: Callable[[str], None]
) -> dict[str, float]:
    """Return the word error rate of each source with words, and of all clips as ``all``, even if a source is named so.

    ``skip`` gets the reason for each clip that cannot be read and is left out.

    Raises:
        TrainingError: if no clip can be read.
    """
    groups = [clips[start : start + _CLIPS_AT_A_TIME] for start in range(0, len(clips), _CLIPS_AT_A_TIME)]
    counts: dict[str, tuple[int, int]] = {}
    reason = ""
    decoded = ahead(lambda group: [_samples(take, model.sample_rate) for take in group], groups, held=1)
    for group, found in zip(groups, decoded, strict=True):
        takes, samples = [], []
        for take, one in zip(group, found, strict=True):
            if isinstance(one, ManifestError):
                reason = str(one)
                skip(reason)
            else:
                takes.append(take)
                samples.append(one)
        for take, hypothesis in zip(takes, _transcripts(model, takes, samples), strict=True):
            wrong, spoken = word_errors(take.clip.text or "", hypothesis.text)
            before = counts.get(take.clip.source, (0, 0))
            counts[take.clip.source] = (before[0] + wrong, before[1] + spoken)
    if not counts:
        raise TrainingError(f"no clip of dev can be read; the last: {reason}")
    total = (sum(errors for errors, _ in counts.values()), sum(words for _, words in counts.values()))
    rates = {**dict(sorted(counts.items())), "all": total}
    return {name: errors / words for name, (errors, words) in rates.items() if words}


def _samples(take: Take, rate: int) -> Samples | ManifestError:
    """Return a take's samples, or why it cannot be read."""
    try:
        return take.samples(rate)
    except ManifestError as error:
        return error


def _transcripts(model: Transcriber, takes: Sequence[Take], samples: Sequence[Samples]) -> list[Transcript]:
    """Transcribe clips, with the prompts of their manifests if the model has an attention decoder."""
    if "aed" not in model.decoders:
        return model.transcribe(samples)
    found: dict[int, Transcript] = {}
    for prompt in dict.fromkeys(take.clip.prompt for take in takes):
        rows = [row for row, take in enumerate(takes) if take.clip.prompt == prompt]
        hypotheses = model.transcribe(
            [samples[row] for row in rows],
            language=prompt.language,
            target_language=prompt.target_language,
            punctuation=prompt.punctuation,
        )
        found.update(zip(rows, hypotheses, strict=True))
    return [found[row] for row in range(len(takes))]
