"""From the transcript of a clip to labels."""

from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.clip import Clip
from training.errors import ManifestError
from transcripts.prompt import PromptError


def tokens_of(clip: Clip, text: str, vocabulary: TrainingVocabulary) -> list[int]:
    """Return the labels of a clip's transcript.

    Raises:
        ManifestError: if the vocabulary does not have its language.
    """
    sequence_of(clip, [], vocabulary)
    return vocabulary.encode(text, clip.prompt)


def sequence_of(clip: Clip, tokens: list[int], vocabulary: TrainingVocabulary) -> list[int]:
    """Return prompt, transcript and end for an attention decoder; empty without one.

    Raises:
        ManifestError: if the vocabulary cannot express the manifest's prompt.
    """
    if not isinstance(vocabulary, AttentionVocabulary):
        return []
    try:
        return [*vocabulary.question(clip.prompt), *tokens, vocabulary.end]
    except PromptError as error:
        raise ManifestError(f"{clip}: {error}") from error
