"""A speech recognition network on its device, with its searches: from batches of samples to transcripts."""

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.comparison import compare_kernels
from models.config import ConformerConfig, Decoder
from models.device.memory import weight_bytes
from models.device.precision import (
    DTYPES,
    check_overflow,
    check_range,
    checked_precision,
    default_dtype,
)
from models.device_model import DeviceModel, Waveform, check_samples
from models.features import LogMelFeatures
from models.graphs.passes import MOST_SECONDS, GraphedPasses, Pass
from models.network import Network
from models.recognition import Recognition
from models.search.ctc import FIELDS as CTC_FIELDS
from models.search.ctc import ctc_greedy
from models.search.ctc_search import ctc_search, greedy_ctc
from models.search.result import FetchedResult, Search, SearchResult
from models.search.transducer import transducer_search
from models.text.aligner import Aligner, KnownWords, Span
from models.text.detokenizer import Detokenizer
from models.text.phrases import PhraseTrees
from models.text.prompt_writer import PromptWriter, check_unprompted, translates
from models.text.script_masks import ScriptMasks
from models.text.tokenizers import AggregateTokenizer, PromptedVocabulary, PromptTokenizer, Vocabulary
from models.text.word_ngrams import open_language_model
from models.writer import Writer
from transcripts.languages import NAMES
from transcripts.prompt import Prompt
from transcripts.spoken_language import language_of_label

# A model that writes one of these punctuates; apostrophe and hyphen are left out, because they are part of words.
_SENTENCE_MARKS = ".,?!。、，？！।؟"


class Model(DeviceModel):
    """A speech recognition model on its device; takes over the tensors of a checkpoint.

    Attributes:
        dtype: dtype of its weights and activations; with int8, activations have the dtype that the CPU is fastest in.
        network: its encoder and heads, folded, packed and converted for the device.
        vocabulary: the texts of its tokens.
        weight_bytes: memory of its weights on the device, with its language model.
        seconds_per_frame: seconds from one encoder frame to the next.
        piece_seconds: the longest part of a recording that it transcribes well; None for any length.
        decoders: its decoders, the default first.
        languages: ISO 639-1 codes of the languages that it transcribes; None if they are unknown.
        default_language: the language that a prompt without one asks for; None without prompts.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        dtype: torch.dtype | str,
        languages: Sequence[str] | None = None,
        language_model: str | Path | None = None,
    ) -> None:
        self.precision = checked_precision(dtype, device)
        self.dtype = dtype = DTYPES[self.precision]
        self.languages = languages
        self.default_language: str | None = None
        self._config = checkpoint.config
        if dtype is torch.int8 and not isinstance(self._config.encoder, ConformerConfig):
            raise ValueError("int8 is for Conformers; use another dtype for this model")
        if language_model is not None and self._config.attention:
            raise ValueError("a language model is for CTC and transducers, and this model has an attention decoder")
        self.vocabulary = Vocabulary(checkpoint.tokenizer)
        self._front_end = LogMelFeatures(self._config.features, checkpoint.window, checkpoint.mel_bank).to(device)
        self.network = Network.without_weights(self._config)
        self.network.load_state_dict(checkpoint.hand_over(), assign=True)
        self._parameters = sum(parameter.numel() for parameter in self.network.parameters())
        self.network.fold()
        self._activations = default_dtype(device) if dtype is torch.int8 else dtype
        if dtype is torch.int8:
            self.network.quantize(self._activations)
        if dtype is torch.float16:
            check_range(self.network)
        self.network.to(device, self._activations).eval().requires_grad_(requires_grad=False)
        if device.type == "cpu":
            self.network.pack(self._activations)
        self.device = device
        with self._as_current_device():
            compare_kernels(self.network.encoder, self.network.attention_decoder, device, self._activations)
        self._language_model = None
        if language_model is not None:
            self._language_model = open_language_model(Path(language_model), self.vocabulary, device)
        self._writer: Writer | None = None
        if self._config.prompts and self.network.attention_decoder:
            assert isinstance(checkpoint.tokenizer, PromptTokenizer)
            self.vocabulary = vocabulary = PromptedVocabulary(checkpoint.tokenizer)
            prompts = PromptWriter(self._config.prompts, checkpoint.tokenizer)
            self._writer = Writer(self.network.attention_decoder, self._config, prompts, vocabulary)
            self.languages = self._config.prompts.languages
            self.default_language = self._config.prompts.default_language
        if self._config.language_prompts:
            self.languages = self._config.language_prompts.languages
        self._token_languages: dict[int, str] = {}
        if isinstance(checkpoint.tokenizer, AggregateTokenizer) and not self._config.prompts:
            self._token_languages = checkpoint.tokenizer.languages
            if len(self._token_languages) == len(self.vocabulary.pieces):
                self.languages = self.languages or list(dict.fromkeys(self._token_languages.values()))
        self.weight_bytes = sum(tensor.nbytes for tensor in chain(self.network.parameters(), self.network.buffers()))
        if self._language_model:
            self.weight_bytes += self._language_model.nbytes
        self.sample_rate = self._config.features.sample_rate
        self.seconds_per_frame = self._config.seconds(1)
        self.piece_seconds = self._config.piece_seconds
        self.decoders: tuple[Decoder, ...] = self._config.decoders
        self._greedy_ctc = greedy_ctc(self.network.ctc) if self.network.ctc else None
        self._phrases = PhraseTrees(self.vocabulary, device)
        # A prompt for the language says more than a script.
        self._masks = None
        if not self._writer and not self._config.language_prompts:
            self._masks = ScriptMasks(self.vocabulary, device)
        self._detokenizers = {
            decoder: Detokenizer(self.vocabulary, self._config.seconds, is_ctc=decoder == "ctc")
            for decoder in self._config.decoders
        }
        self._searches: dict[Decoder, Search] = {}
        self._sizes = {}
        network, transducer = self.network, self._config.transducer
        if transducer and network.predictor and network.joint:
            parts = network.predictor, network.joint, transducer.max_symbols
            chosen = transducer_search(*parts, device, self._language_model)
            self._searches[self.decoders[0]], self._sizes["transducer"] = chosen
        if network.ctc and self._language_model:
            chosen = ctc_search(network.ctc, self._language_model, device)
            self._searches["ctc"], self._sizes["ctc_beam"] = chosen
        elif self._greedy_ctc and network.prompt:
            self._searches["ctc"] = self._greedy_ctc
        if self._writer:
            self._sizes["attention"] = self._writer.sizes
        passes: list[Pass] = [self._encoded] if self._searches or self._writer else []
        if self._config.ctc and "ctc" not in self._searches:
            passes.append(self._ctc_tokens)
        self.passes = GraphedPasses(passes, device, int(MOST_SECONDS * self.sample_rate))
        self._sizes["encoder"] = self.passes.sizes

    @torch.no_grad()
    def recognize_batch(
        self,
        waveforms: Tensor,
        lengths: Tensor,
        *,
        decoder: str | None = None,
        prompts: Sequence[Prompt] | None = None,
    ) -> Recognition:
        """Find the tokens of one batch, to be detokenized later.

        On a GPU this does not wait for the device, which can get its next batch at once, unless the host drives the
        search.

        Args:
            waveforms: [batch, samples], float32, on the host; padding may hold anything.
            lengths: samples of each row, [batch], int64, on the host.
            decoder: one of ``decoders``; None takes the first.
            prompts: a prompt for each row; None is the default prompt for all.

        Raises:
            ValueError: if ``decoder`` is not one of ``decoders``, or the number of prompts is not that of rows.
            PromptError: a ValueError, if the model cannot do what a prompt asks for.
        """
        decoder = self.check_decoder(decoder)
        prompts = [Prompt()] * waveforms.size(0) if prompts is None else prompts
        if len(prompts) != waveforms.size(0):
            raise ValueError(f"{len(prompts)} prompts for {waveforms.size(0)} utterances")
        for prompt in prompts:
            self.check_prompt(prompt)
        if waveforms.size(0) == 0:
            return Recognition(SearchResult.of_no_utterance().fetched(), lambda _: [])
        with self._as_current_device():
            return self._recognized(waveforms, lengths, decoder, prompts)

    @torch.no_grad()
    def align_batch(self, waveforms: Tensor, lengths: Tensor, words: Sequence[Sequence[str]]) -> list[list[Span]]:
        """Find the times of known words, by the CTC decoder.

        Args:
            waveforms: see ``recognize_batch``.
            lengths: see ``recognize_batch``.
            words: words of each row, in order.

        Returns:
            Start and end of each word in seconds; None for both if the row is too short for its words.

        Raises:
            ValueError: if the model has no CTC decoder.
            Float16OverflowError: if values of the model go beyond the range of float16.
        """
        if not self.network.ctc:
            raise ValueError("this model has no CTC decoder, which finds words")
        with self._as_current_device():
            encoded, frames, _ = self._encoded(waveforms.to(self.device), lengths.to(self.device), lengths)
            encoded = self._prompted(encoded, [Prompt()] * len(words))
            rows = zip(words, encoded, frames.tolist(), (lengths.double() / self.sample_rate).tolist(), strict=True)
            return self._finder.times(
                KnownWords(its_words, self._label_scores(row[:count]), seconds)
                for its_words, row, count, seconds in rows
            )

    @torch.no_grad()
    def features(self, pcm: Sequence[Waveform]) -> tuple[Tensor, Tensor]:
        """Compute the features of one batch.

        Args:
            pcm: mono float32 arrays at ``sample_rate``.

        Returns:
            Features [batch, mels, frames], float32, and the number of frames of each utterance, [batch].

        Raises:
            ValueError: if there is no array, or one is not mono, float32 and finite.
        """
        check_samples(pcm)
        if not pcm:
            raise ValueError("features of no utterance have no shape")
        waveforms, lengths = self.batch(pcm)
        with self._as_current_device():
            return self._features(waveforms.to(self.device), lengths.to(self.device))

    @torch.no_grad()
    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode one batch.

        Args:
            features: [batch, mels, frames].
            lengths: frames of each utterance, [batch].

        Returns:
            Encoder frames [batch, frames, width] in ``dtype`` (float32 or bfloat16 if that is int8), and the number of
            encoder frames of each utterance.
        """
        known = lengths if lengths.device.type == "cpu" else None
        with self._as_current_device():
            return self._encode(features.to(self.device), lengths.to(self.device), known)

    def info(self) -> dict[str, Any]:
        """Describe the model, for JSON; unknown values are None."""
        config, transducer, prompts = self._config, self._config.transducer, self._config.prompts
        conformer = config.encoder if isinstance(config.encoder, ConformerConfig) else None
        context = conformer and conformer.attention_context
        return {
            "family": config.encoder.family,
            "class": config.name,
            "parameters": self._parameters,
            "weight_bytes": weight_bytes(self._parameters),
            "layers": config.encoder.layers,
            "width": config.encoder.width,
            "vocabulary": {"kind": self.vocabulary.kind, "size": config.vocabulary_size},
            "mels": config.features.mels,
            "sample_rate": self.sample_rate,
            "window_stride": config.features.window_stride,
            "subsampling_factor": config.encoder.subsampling_factor,
            "seconds_per_frame": self.seconds_per_frame,
            "piece_seconds": self.piece_seconds,
            "piece_reason": config.piece_reason,
            "decoders": list(self.decoders),
            "durations": list(transducer.durations) if transducer and transducer.durations else None,
            "max_symbols": transducer.max_symbols if transducer else None,
            "beam": config.attention.beam if config.attention else None,
            "language_model": self._language_model.ngrams if self._language_model else None,
            "languages": None if self.languages is None else list(self.languages),
            # The frames before and after it that a frame attends to, None for all; and those that one may choose from.
            "attention_context": str(context) if context else None,
            "attention_contexts": [str(one) for one in conformer.attention_contexts] if conformer else [],
            "scripts": sorted(self._masks.scripts) if self._masks else [],
            "default_language": None if prompts is None else prompts.default_language,
            "capabilities": {
                "transcription": True,
                "translation": prompts is not None and translates(prompts),
                "word_timestamps": prompts is None or prompts.timestamps,
                "punctuation": self._punctuates,
                "itn": prompts is not None and prompts.itn,
                "language": config.language_prompts is not None,
            },
        }

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The text of each token, in UTF-8, by id."""
        return self.vocabulary.token_bytes

    @property
    def language_tags(self) -> dict[int, str]:
        """The language that each token says, as ISO 639-1 code.

        Tags such as ``<en-US>`` say one, and so do all tokens of a vocabulary that has a part for each language.
        """
        if self._token_languages:
            return self._token_languages
        pieces = {token: self.vocabulary.pieces[token].strip("<>") for token in self.vocabulary.tags}
        named = {token: language_of_label(piece) for token, piece in pieces.items() if "-" in piece}
        return {token: code for token, code in named.items() if code in NAMES}

    def check_prompt(self, prompt: Prompt) -> None:
        """Raise PromptError if the model cannot do what a prompt asks for."""
        if self._writer:
            self._writer.check(prompt)
        else:
            check_unprompted(prompt, self.languages, punctuates=self._punctuates)

    def check_decoder(self, decoder: str | None) -> Decoder:
        """Return the decoder of this name, the default one for None; raise ValueError if there is none."""
        for known in self.decoders:
            if decoder in (None, known):
                return known
        raise ValueError(f"this model has no decoder {decoder!r}; it has {', '.join(self.decoders)}")

    def _recognized(
        self, waveforms: Tensor, lengths: Tensor, decoder: Decoder, prompts: Sequence[Prompt]
    ) -> Recognition:
        phrases = self._phrases.of_rows([prompt.phrases for prompt in prompts])
        if self._writer:
            frames, encoder_lengths, features = self.passes(self._encoded, waveforms, lengths)
            return self._checked(self._writer.write(frames, encoder_lengths, features, lengths, prompts, phrases))
        masks = self._masks.of_batch(prompts) if self._masks else None
        if search := self._searches.get(decoder) or (self._greedy_ctc if phrases or masks else None):
            frames, encoder_lengths, _ = self.passes(self._encoded, waveforms, lengths)
            fetched = search(self._prompted(frames, prompts), encoder_lengths, masks, phrases)
        else:  # greedy CTC
            (packed,) = self.passes(self._ctc_tokens, waveforms, lengths)
            fetched = FetchedResult(packed, CTC_FIELDS)
        seconds = (lengths.double() / self.sample_rate).tolist()
        return self._checked(Recognition(fetched, partial(self._detokenizers[decoder], lengths=seconds)))

    def _checked(self, recognition: Recognition) -> Recognition:
        if self.dtype is not torch.float16:
            return recognition
        return recognition.checked(lambda rows: check_overflow(rows.confidence))

    def _label_scores(self, frames: Tensor) -> Tensor:
        """Return the CTC decoder's log probabilities, float32, for one utterance's encoder frames [frames, width]."""
        assert self.network.ctc
        scores: Tensor = self.network.ctc(frames[None])[0].float().log_softmax(dim=-1)
        if self.dtype is torch.float16:
            check_overflow(scores.amax(dim=-1).cpu().numpy())
        return scores

    def _encoded(self, waveforms: Tensor, lengths: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return encoder frames [batch, frames, width], and each row's number of encoder frames and of features."""
        features, frames = self._features(waveforms, lengths)
        if known is not None:
            known = self._front_end.frames(self._writer.lengths(known) if self._writer else known)
        return *self._encode(features, frames, known), frames

    def _encode(self, features: Tensor, lengths: Tensor, known: Tensor | None) -> tuple[Tensor, Tensor]:
        encoded: tuple[Tensor, Tensor] = self.network.encoder(features.to(self._activations), lengths, known)
        return encoded

    def _prompted(self, encoded: Tensor, prompts: Sequence[Prompt]) -> Tensor:
        """Return encoder frames [batch, frames, width] that know the languages of their prompts, if the model asks."""
        config = self._config.language_prompts
        if config is None or self.network.prompt is None:
            return encoded
        places = torch.tensor([config.place(prompt.language) for prompt in prompts], pin_memory=encoded.is_cuda)
        prompted: Tensor = self.network.prompt(encoded, places.to(encoded.device, non_blocking=True))
        return prompted

    def _ctc_tokens(self, waveforms: Tensor, lengths: Tensor, known: Tensor | None) -> tuple[Tensor]:
        """Return the result of greedy CTC, packed; see ``SearchResult``."""
        assert self.network.ctc
        encoded, frames, _ = self._encoded(waveforms, lengths, known)
        return (ctc_greedy(self.network.ctc(encoded), frames, self.network.ctc.blank).packed(),)

    def _features(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        if self._writer:
            waveforms, lengths = self._writer.lengthened(waveforms, lengths)
        features: tuple[Tensor, Tensor] = self._front_end(waveforms, lengths)
        return features

    @cached_property
    def _finder(self) -> Aligner:
        """The aligner that uses the scores of this model's CTC decoder."""
        assert self.network.ctc
        return Aligner(self.vocabulary, self.network.ctc.blank, self._config.seconds)

    @property
    def _punctuates(self) -> bool:
        return not self.vocabulary.punctuation.isdisjoint(_SENTENCE_MARKS)
