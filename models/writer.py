"""Transcription with an attention decoder: prompts in, transcripts out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.config import ModelConfig
from models.graphs.sizes import Sizes
from models.heads.attention_decoder import AttentionDecoder
from models.recognition import Recognition
from models.search.attention import length_bound
from models.search.attention_search import AttentionSearch
from models.search.phrases import BatchPhrases
from models.search.result import UtteranceTokens
from models.text.prompt_writer import PromptWriter
from models.text.tokenizers import PromptedVocabulary
from models.text.written_words import written_words
from transcripts.prompt import Prompt
from transcripts.transcript import Transcript


class Writer:
    """Runs an attention decoder over encoded batches with their prompts."""

    def __init__(
        self, decoder: AttentionDecoder, config: ModelConfig, prompts: PromptWriter, vocabulary: PromptedVocabulary
    ) -> None:
        """Prepare the search, on the decoder's device."""
        self._decoder = decoder
        self._config = config
        self._prompts = prompts
        self._vocabulary = vocabulary
        graphed = decoder.embedding.weight.device.type != "cpu"
        self._search = AttentionSearch(decoder, prompts.end, graphed=graphed)
        # Samples of the shortest utterance: NeMo pads audio for Canary to a second.
        self._least = 0 if config.prompts and config.prompts.format == "cohere" else config.features.sample_rate

    @property
    def sizes(self) -> Sizes[Any]:
        """What the search has prepared for each size of batch."""
        return self._search.sizes

    def check(self, prompt: Prompt) -> None:
        """Raise PromptError if the model cannot do what a prompt asks for."""
        self._prompts.tokens(prompt)

    def lengthened(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Put silence around short rows of waveforms [batch, samples]; return all rows, and their lengths [batch]."""
        return with_silence_around(waveforms, lengths, self._least)

    def lengths(self, lengths: Tensor) -> Tensor:
        """Return the samples of each row after ``lengthened``, [batch]."""
        return lengths_with_silence(lengths, self._least)

    def write(
        self,
        encoded: Tensor,
        encoder_frames: Tensor,
        frames: Tensor,
        lengths: Tensor,
        prompts: Sequence[Prompt],
        phrases: BatchPhrases | None = None,
    ) -> Recognition:
        """Write the transcripts of a batch.

        Args:
            encoded: [batch, encoder frames, width], from waveforms that were ``lengthened``.
            encoder_frames: encoder frames of each row, [batch].
            frames: feature frames of each row, [batch].
            lengths: samples of each row before it was lengthened, [batch], on the host.
            prompts: the prompt of each row.
            phrases: the phrases of the rows.
        """
        bound = length_bound(self._decoder.config, frames, self._config.encoder.subsampling_factor, encoded.size(1))
        # Pinned memory, so that the host does not wait for the copy.
        prompt_tokens = torch.tensor([self._prompts.tokens(prompt) for prompt in prompts], pin_memory=encoded.is_cuda)
        tokens = prompt_tokens.to(encoded.device, non_blocking=True)
        found = self._search.search(encoded, encoder_frames, tokens, bound, phrases)
        silence = silence_before(lengths, self._least).tolist()
        edges = list(zip(silence, lengths.tolist(), strict=True))
        return Recognition(
            found, lambda rows: [self._text(rows.row(index), *of_row) for index, of_row in enumerate(edges)]
        )

    def _text(self, row: UtteranceTokens, silence: int, length: int) -> Transcript:
        """Return the transcript of an utterance of ``length`` samples with ``silence`` samples of silence before it."""

        def seconds(frame: int) -> float:
            # The model may write times in the silence around, or behind the end; they move to the utterance's edge.
            rate = self._config.features.sample_rate
            return min(max(0, round(self._config.seconds(frame) * rate) - silence), length) / rate

        return row.transcript(self._vocabulary.text(row.tokens), written_words(row, self._vocabulary, seconds))


def with_silence_around(waveforms: Tensor, lengths: Tensor, least: int) -> tuple[Tensor, Tensor]:
    """Put short utterances into the middle of ``least`` samples of silence, as NeMo does for Canary.

    Args:
        waveforms: [batch, samples]; padding may hold anything.
        lengths: samples of each row, int64 [batch]; an empty row stays empty.
        least: fewest samples of an utterance.

    Returns:
        Waveforms of at least ``least`` samples, and their lengths.
    """
    before = silence_before(lengths, least)
    waveforms = pad(waveforms, (0, max(0, least - waveforms.size(1))))
    source = torch.arange(least, device=lengths.device) - before[:, None]
    silent = (source < 0) | (source >= lengths[:, None])
    start = waveforms[:, :least].gather(1, source.clamp(min=0)).masked_fill(silent, 0.0)
    return torch.cat((start, waveforms[:, least:]), dim=1), lengths_with_silence(lengths, least)


def lengths_with_silence(lengths: Tensor, least: int) -> Tensor:
    """Return the lengths after ``with_silence_around``, int64 [batch]."""
    return lengths.clamp(min=least).where(lengths > 0, lengths)


def silence_before(lengths: Tensor, least: int) -> Tensor:
    """Return the samples of silence before each utterance, [batch]: half of the missing ones, rounded down."""
    return ((least - lengths).clamp(min=0) // 2).where(lengths > 0, 0)
