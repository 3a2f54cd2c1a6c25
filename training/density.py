"""Leaving out clips with transcripts that are too long for their audio: a batch with one needs far more memory."""

from collections import Counter
from collections.abc import Sequence

from models.prompt import PromptError
from training.takes import Take
from training.vocabulary import TrainingVocabulary

# Bounds of the histogram, in multiples of ``most``.
_MULTIPLES = (1, 1.5, 2, 4, 8)


def without_dense(
    takes: Sequence[Take], vocabulary: TrainingVocabulary, most: float | None
) -> tuple[list[Take], str | None]:
    """Return the takes with at most ``most`` labels in a second, and a line about the others, if any.

    Args:
        takes: the takes; one without a transcript stays.
        vocabulary: the vocabulary; labels of prompts do not count, because their number does not depend on length.
        most: most labels in a second; None keeps all takes.
    """
    if most is None:
        return list(takes), None
    rates = [_labels(take, vocabulary) / take.seconds for take in takes]
    dropped = [(take, rate) for take, rate in zip(takes, rates, strict=True) if rate > most]
    if not dropped:
        return list(takes), None
    histogram = Counter(max(bound for bound in _MULTIPLES if rate >= bound * most) for _, rate in dropped)
    seconds = sum(take.seconds for take, _ in dropped)
    told = ", ".join(f"{count} from {bound * most:g} on" for bound, count in sorted(histogram.items()))
    line = f"left out: {len(dropped):,} takes ({seconds:.1f} s) with over {most:g} labels a second: {told}"
    return [take for take, rate in zip(takes, rates, strict=True) if rate <= most], line


def _labels(take: Take, vocabulary: TrainingVocabulary) -> int:
    try:
        return len(vocabulary.encode(take.clip.text or "", take.clip.prompt))
    except (PromptError, KeyError):  # an unsupported language is refused later, with the name of the clip
        return 0
