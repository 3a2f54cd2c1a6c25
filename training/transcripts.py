"""From the transcript of a clip to labels."""

from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.clip import Clip
from training.errors import ManifestError
from transcripts.prompt import PromptError


def labels_of(clip: Clip, text: str, vocabulary: TrainingVocabulary) -> tuple[list[int], list[int]]:
    """Return the labels of a clip's transcript; and for an attention decoder prompt, transcript and end, else nothing.

    Raises:
        ManifestError: if the vocabulary cannot express the manifest's prompt, such as its language.
    """
    if not isinstance(vocabulary, AttentionVocabulary):
        return vocabulary.encode(text), []
    try:
        question = vocabulary.question(clip.prompt)
    except PromptError as error:
        raise ManifestError(f"{clip}: {error}") from error
    tokens = vocabulary.encode(text, clip.prompt)
    return tokens, [*question, *tokens, vocabulary.end]
