"""From the transcript of a clip to labels."""

from training.attention_vocabulary import AttentionVocabulary, TrainingVocabulary
from training.clip import Clip
from training.errors import ManifestError
from transcripts.prompt import PromptError


class Transcripts:
    """Makes labels of transcripts. Threads may share it.

    Attributes:
        vocabulary: the vocabulary.
    """

    def __init__(self, vocabulary: TrainingVocabulary) -> None:
        self.vocabulary = vocabulary

    def tokens(self, clip: Clip, text: str) -> list[int]:
        """Return the labels of a clip's transcript.

        Raises:
            ManifestError: if the vocabulary does not have its language.
        """
        self.sequence(clip, [])
        return self.vocabulary.encode(text, clip.prompt)

    def sequence(self, clip: Clip, tokens: list[int]) -> list[int]:
        """Return prompt, transcript and end for an attention decoder; empty without one.

        Raises:
            ManifestError: if the vocabulary cannot express the manifest's prompt.
        """
        if not isinstance(self.vocabulary, AttentionVocabulary):
            return []
        try:
            return [*self.vocabulary.question(clip.prompt), *tokens, self.vocabulary.end]
        except PromptError as error:
            raise ManifestError(f"{clip}: {error}") from error
