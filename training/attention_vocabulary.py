"""The vocabulary of an attention decoder: special pieces for prompts, and pieces of one or several languages."""

from collections.abc import Mapping
from itertools import accumulate

from models.config import PromptConfig
from models.text.prompt_writer import PromptWriter, required_pieces, with_vocabulary
from models.text.tokenizers import AggregateTokenizer
from training.errors import RecipeError
from training.vocabulary import CharacterVocabulary, PieceVocabulary, new_vocabulary
from transcripts.prompt import DEFAULT_PROMPT, Prompt

# NeMo's name of an aggregate vocabulary's first part, which has the special pieces. Here a single part has it too.
SPECIAL = "spl_tokens"
PAD = "<pad>"
# The first pieces of NeMo's builder, in its order, so that ids are those of released models.
_PIECES = (
    "<|nospeech|>", PAD, "<|endoftext|>", "<|startoftranscript|>", "<|pnc|>", "<|nopnc|>", "<|startofcontext|>",
    "<|itn|>", "<|noitn|>", "<|timestamp|>", "<|notimestamp|>", "<|diarize|>", "<|nodiarize|>", "<|spkchange|>",
    "<|audioseparator|>", "<|emo:undefined|>", "<|emo:neutral|>", "<|emo:happy|>", "<|emo:sad|>", "<|emo:angry|>",
    "<|unklang|>",
)  # fmt: skip


class AttentionVocabulary:
    """Labels of special pieces, and of text in one or several languages.

    Attributes:
        parts: the vocabularies by name, in the order of their labels: one of special pieces and one for each
            language, or a single one for all.
        prompts: the configuration of prompts.
        tokenizer: the tokenizer, from labels to text.
        size: number of labels.
        end: the label that ends a text.
        pad: the label of padding.
    """

    def __init__(self, parts: Mapping[str, bytes], prompts: PromptConfig) -> None:
        """Parse the models.

        Raises:
            ValueError: if one of them is not a SentencePiece model.
            RecipeError: if a piece that prompts need is missing.
        """
        self.parts = {name: PieceVocabulary(model) for name, model in parts.items()}
        tokenizers = [part.tokenizer for part in self.parts.values()]
        self.tokenizer = tokenizers[0] if len(tokenizers) == 1 else AggregateTokenizer(tokenizers)
        pieces = self.tokenizer.pieces
        self.prompts = with_vocabulary(prompts, pieces)
        missing = [piece for piece in (PAD, *required_pieces(self.prompts)) if piece not in pieces]
        if missing:
            raise RecipeError(f"the vocabulary of an attention decoder needs {missing[0]}", "vocabulary")
        self.size = len(pieces)
        self.pad = pieces.index(PAD)
        self._writer = PromptWriter(self.prompts, self.tokenizer)
        self.end = self._writer.end
        starts = accumulate((part.size for part in self.parts.values()), initial=0)
        # Each part and its first label, by the two-letter code of its language: en, also for en-US.
        self._texts = {name.split("-")[0]: (part, start) for (name, part), start in zip(self.parts.items(), starts)}  # noqa: B905  # one start more

    def question(self, prompt: Prompt) -> list[int]:
        """Return the labels of a prompt; all prompts have the same number of labels.

        Raises:
            PromptError: if the model cannot do what it asks for.
        """
        return self._writer.tokens(prompt)

    def encode(self, text: str, prompt: Prompt = DEFAULT_PROMPT) -> list[int]:
        """Return the labels of a transcript, in the language of the prompt."""
        part, start = self.part(prompt)
        return [start + label for label in part.encode(text)]

    def part(self, prompt: Prompt) -> tuple[PieceVocabulary, int]:
        """Return the vocabulary of a prompt's language, and its first label."""
        if len(self._texts) == 1:
            return next(iter(self._texts.values()))
        return self._texts[prompt.target_language or prompt.language or self.prompts.default_language]


# The vocabularies that a model may be trained with.
TrainingVocabulary = PieceVocabulary | CharacterVocabulary | AttentionVocabulary


def vocabulary_of_languages(models: Mapping[str, bytes]) -> AttentionVocabulary:
    """Return the vocabulary of a new attention decoder, with the prompts of Canary's flash models.

    Args:
        models: SentencePiece models of the languages, by code; the first is the default language.

    Raises:
        ValueError: if one is not a SentencePiece model.
    """
    config = PromptConfig("canary2", tuple(models), next(iter(models)), timestamps=False)
    return AttentionVocabulary({SPECIAL: _special_model(tuple(models)), **models}, config)


def _special_model(languages: tuple[str, ...]) -> bytes:
    """Return a SentencePiece model of the special pieces, which are never split."""
    pieces = [*_PIECES, *(f"<|{language}|>" for language in languages)]
    usual = {"normalization_rule_name": "nmt_nfkc", "hard_vocab_limit": False}
    return new_vocabulary(["a"], len(pieces) + 3, model_type="bpe", user_defined_symbols=pieces, **usual)
