"""A speech recognition model on its device: from samples to transcripts."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.checkpoint import Checkpoint
from models.comparison import compare_kernels
from models.config import ConformerConfig, Decoder
from models.device.precision import (
    DTYPES,
    check_overflow,
    check_range,
    checked_precision,
    default_dtype,
)
from models.device_model import DeviceModel, Waveform, batches
from models.features import LogMelFeatures
from models.graphs.passes import MOST_SECONDS, GraphedPasses, Pass
from models.language_identifier import LanguageIdentifier
from models.network import Network
from models.prompt import Prompt
from models.recognition import Recognition
from models.search.ctc import FIELDS as CTC_FIELDS
from models.search.ctc import ctc_greedy
from models.search.ctc_beam import ctc_beam
from models.search.flat import flat
from models.search.graphed_ctc_beam import GraphedCtcBeam
from models.search.graphed_look_ahead import GraphedLookAhead
from models.search.language_model import read_language_model
from models.search.result import FetchedResult, SearchResult
from models.spoken_language import LanguageDecision, possible_languages
from models.text.aligner import Aligner, KnownWords, Span
from models.text.detokenizer import Detokenizer
from models.text.prompt_writer import PromptWriter, check_unprompted, translates
from models.text.tokenizers import PromptedVocabulary, PromptTokenizer, Vocabulary
from models.transcript import Transcript
from models.writer import Writer

# Finds the tokens of encoder frames [batch, frames, width], given the number of frames of each row.
Search = Callable[[Tensor, Tensor], FetchedResult]

# A model that writes one of these punctuates; apostrophe and hyphen are left out, because they are part of words.
_SENTENCE_MARKS = ".,?!。、，？！।؟"


class Model(DeviceModel):
    """A speech recognition model on its device; takes over the tensors of a checkpoint.

    Attributes:
        device: the device that it computes on.
        dtype: dtype of its weights and activations; with int8, activations have the dtype that the CPU is fastest in.
        precision: name of ``dtype``, or "tf32" for float32 whose products are rounded.
        sample_rate: rate of the audio it takes, in Hz.
        weight_bytes: memory of its weights on the device, with its language model, aligner and language identifier.
        seconds_per_frame: seconds from one encoder frame to the next.
        piece_seconds: the longest part of a recording that it transcribes well; None for any length.
        decoders: its decoders, the default first.
        languages: ISO 639-1 codes of the languages that it transcribes; None if they are unknown.
        language_identifier: finds the language of utterances whose prompts name none; None if there is none.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        dtype: torch.dtype | str,
        languages: Sequence[str] | None = None,
        language_model: str | Path | None = None,
        language_identifier: LanguageIdentifier | None = None,
    ) -> None:
        self.precision = checked_precision(dtype, device)
        self.dtype = dtype = DTYPES[self.precision]
        self.languages = languages
        self.language_identifier = language_identifier
        self._config = checkpoint.config
        if dtype is torch.int8 and not isinstance(self._config.encoder, ConformerConfig):
            raise ValueError("int8 is for Conformers; use another dtype for this model")
        if language_model is not None and not self._config.ctc:
            raise ValueError("a language model is for CTC decoders, and this model has none")
        self._vocabulary = Vocabulary(checkpoint.tokenizer)
        self._front_end = LogMelFeatures(self._config.features, checkpoint.window, checkpoint.mel_bank).to(device)
        self._network = Network.without_weights(self._config)
        self._network.load_state_dict(checkpoint.hand_over(), assign=True)
        self._parameters = sum(parameter.numel() for parameter in self._network.parameters())
        self._network.fold()
        self._activations = default_dtype(device) if dtype is torch.int8 else dtype
        if dtype is torch.int8:
            self._network.quantize(self._activations)
        if dtype is torch.float16:
            check_range(self._network)
        self._network.to(device, self._activations).eval().requires_grad_(requires_grad=False)
        if device.type == "cpu":
            self._network.pack(self._activations)
        self.device = device
        with self._as_current_device():
            compare_kernels(self._network.encoder, self._network.attention_decoder, device, self._activations)
        self._language_model = None
        if language_model is not None:
            self._language_model = read_language_model(Path(language_model), self._vocabulary.pieces, device)
        self._writer: Writer | None = None
        if self._config.prompts and self._network.attention_decoder:
            assert isinstance(checkpoint.tokenizer, PromptTokenizer)
            self._vocabulary = vocabulary = PromptedVocabulary(checkpoint.tokenizer)
            prompts = PromptWriter(self._config.prompts, checkpoint.tokenizer)
            self._writer = Writer(self._network.attention_decoder, self._config, prompts, vocabulary)
            self.languages = self._config.prompts.languages
        for_aligner = self._activations if dtype is torch.int8 else self.precision
        self._aligner = Model(checkpoint.aligner, device, for_aligner) if checkpoint.aligner else None
        self.weight_bytes = sum(tensor.nbytes for tensor in chain(self._network.parameters(), self._network.buffers()))
        if self._aligner:
            self._check_aligner(self._aligner)
            self.weight_bytes += self._aligner.weight_bytes
        if language_identifier:
            self._check_identifier(language_identifier)
            self.weight_bytes += language_identifier.weight_bytes
        if self._language_model:
            self.weight_bytes += self._language_model.nbytes
        self.sample_rate = self._config.features.sample_rate
        self.seconds_per_frame = self._config.seconds(1)
        self.piece_seconds = self._config.piece_seconds
        self.decoders: tuple[Decoder, ...] = self._config.decoders
        self._detokenizers = {
            decoder: Detokenizer(self._vocabulary, self._config.seconds, is_ctc=decoder == "ctc")
            for decoder in self._config.decoders
        }
        self._searches: dict[Decoder, Search] = {}
        self._sizes = {}
        self._choose_searches()
        passes: list[Pass] = [self._encoded] if self._searches or self._writer else []
        if self._config.ctc and "ctc" not in self._searches:
            passes.append(self._ctc_tokens)
        self._passes = GraphedPasses(passes, device, int(MOST_SECONDS * self.sample_rate))
        self._sizes["encoder"] = self._passes.sizes

    def transcribe(
        self,
        pcm: Sequence[Waveform],
        *,
        decoder: str | None = None,
        language: str | Sequence[str | None] | None = None,
        target_language: str | None = None,
        punctuation: bool = True,
        timestamps: bool = False,
        itn: bool = False,
        batch_seconds: float = 240.0,
    ) -> list[Transcript]:
        """Transcribe utterances of any lengths, in any order and number; on a CPU, several threads may do so together.

        Args:
            pcm: mono float32 arrays at ``sample_rate``, within -1 to 1; an empty one gives an empty transcript.
            decoder: one of ``decoders``; None takes the first.
            language: spoken language, or that of each utterance; None lets the language identifier decide, if there is
                one. This and the next four are for models with prompts; see ``Prompt``.
            target_language: language of the text; another one than spoken makes a translation.
            punctuation: whether the text has punctuation and capitals.
            timestamps: whether words have times; without prompts they always have.
            itn: whether the model is to write numbers as people do (inverse text normalisation).
            batch_seconds: most seconds of audio and padding in a batch; a longer utterance has a batch to itself.

        Returns:
            A transcript for each utterance, in the order given.

        Raises:
            ValueError: if an array is not mono, float32 and finite, ``decoder`` is not one of ``decoders``, or there
                is not a language for each utterance.
            PromptError: a ValueError, if the model cannot do what the prompt asks for.
            Float16OverflowError: if values of the model go beyond the range of float16.
        """
        self._check_decoder(decoder)
        _check_arrays(pcm)
        languages = [language] * len(pcm) if language is None or isinstance(language, str) else language
        if len(languages) != len(pcm):
            raise ValueError(f"{len(languages)} languages for {len(pcm)} utterances")
        prompt = Prompt(language if isinstance(language, str) else None, target_language, punctuation, timestamps, itn)
        for spoken in set(languages) or {prompt.language}:
            self._check_prompt(prompt._replace(language=spoken))
        if self.language_identifier and None in languages:
            possible = possible_languages(self.languages or (), target_language)
            languages = self._with_identified(pcm, languages, possible, batch_seconds)
        transcripts: dict[int, Transcript] = {}
        given: tuple[list[int], Recognition] | None = None
        for batch in batches([len(samples) for samples in pcm], batch_seconds * self.sample_rate):
            # While the device computes the batch before.
            for index in batch:
                _check_finite(index, pcm[index])
            waveforms, lengths = self.batch([pcm[index] for index in batch])
            prompts = [prompt._replace(language=languages[index]) for index in batch]
            before, given = given, (batch, self.recognize_batch(waveforms, lengths, decoder=decoder, prompts=prompts))
            # Detokenized only now that the device has its next batch.
            if before:
                transcripts.update(zip(before[0], before[1].transcripts(), strict=True))
        if given:
            transcripts.update(zip(given[0], given[1].transcripts(), strict=True))
        return [transcripts[index] for index in range(len(pcm))]

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
        search, or an aligner finds times.

        Args:
            waveforms: [batch, samples], float32, on the host; padding may hold anything.
            lengths: samples of each row, [batch], int64, on the host.
            decoder: one of ``decoders``; None takes the first.
            prompts: a prompt for each row; None is the default prompt for all.

        Raises:
            ValueError: if ``decoder`` is not one of ``decoders``, or the number of prompts is not that of rows.
            PromptError: a ValueError, if the model cannot do what a prompt asks for.
        """
        decoder = self._check_decoder(decoder)
        prompts = [Prompt()] * waveforms.size(0) if prompts is None else prompts
        if len(prompts) != waveforms.size(0):
            raise ValueError(f"{len(prompts)} prompts for {waveforms.size(0)} utterances")
        for prompt in prompts:
            self._check_prompt(prompt)
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
        if not self._network.ctc:
            raise ValueError("this model has no CTC decoder, which finds words")
        with self._as_current_device():
            encoded, frames, _ = self._encoded(waveforms.to(self.device), lengths.to(self.device), lengths)
            rows = zip(words, encoded, frames.tolist(), (lengths / self.sample_rate).tolist(), strict=True)
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
        _check_samples(pcm)
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
        return {
            "family": config.encoder.family,
            "class": config.name,
            "parameters": self._parameters,
            "layers": config.encoder.layers,
            "width": config.encoder.width,
            "vocabulary": {"kind": self._vocabulary.kind, "size": config.vocabulary_size},
            "mels": config.features.mels,
            "sample_rate": self.sample_rate,
            "window_stride": config.features.window_stride,
            "subsampling_factor": config.encoder.subsampling_factor,
            "seconds_per_frame": self.seconds_per_frame,
            "piece_seconds": self.piece_seconds,
            "decoders": list(self.decoders),
            "durations": list(transducer.durations) if transducer and transducer.durations else None,
            "max_symbols": transducer.max_symbols if transducer else None,
            "beam": config.attention.beam if config.attention else None,
            "language_model": self._language_model.ngrams if self._language_model else None,
            "languages": None if self.languages is None else list(self.languages),
            "default_language": None if prompts is None else prompts.default_language,
            "capabilities": {
                "transcription": True,
                "translation": prompts is not None and translates(prompts),
                "word_timestamps": prompts is None or prompts.timestamps or self._aligner is not None,
                "punctuation": self._punctuates,
                "itn": prompts is not None and prompts.itn,
            },
        }

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The text of each token, in UTF-8, by id."""
        return self._vocabulary.token_bytes

    def _check_decoder(self, decoder: str | None) -> Decoder:
        for known in self.decoders:
            if decoder in (None, known):
                return known
        raise ValueError(f"this model has no decoder {decoder!r}; it has {', '.join(self.decoders)}")

    def _recognized(
        self, waveforms: Tensor, lengths: Tensor, decoder: Decoder, prompts: Sequence[Prompt]
    ) -> Recognition:
        if self._writer:
            frames, encoder_lengths, features = self._passes(self._encoded, waveforms, lengths)
            own_prompts = list(map(self._prompt_for_writer, prompts))
            written = self._checked(self._writer.write(frames, encoder_lengths, features, lengths, own_prompts))
            return self._aligned(written, waveforms, lengths, prompts) if self._aligner else written
        if search := self._searches.get(decoder):
            frames, encoder_lengths, _ = self._passes(self._encoded, waveforms, lengths)
            fetched = search(frames, encoder_lengths)
        else:  # greedy CTC
            (packed,) = self._passes(self._ctc_tokens, waveforms, lengths)
            fetched = FetchedResult(packed, CTC_FIELDS)
        seconds = (lengths / self.sample_rate).tolist()
        return self._checked(Recognition(fetched, partial(self._detokenizers[decoder], lengths=seconds)))

    def _checked(self, recognition: Recognition) -> Recognition:
        if self.dtype is not torch.float16:
            return recognition
        return recognition.checked(lambda rows: check_overflow(rows.confidence))

    def _label_scores(self, frames: Tensor) -> Tensor:
        """Return the CTC decoder's log probabilities, float32, for one utterance's encoder frames [frames, width]."""
        assert self._network.ctc
        scores: Tensor = self._network.ctc(frames[None])[0].float().log_softmax(dim=-1)
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
        encoded: tuple[Tensor, Tensor] = self._network.encoder(features.to(self._activations), lengths, known)
        return encoded

    def _ctc_tokens(self, waveforms: Tensor, lengths: Tensor, known: Tensor | None) -> tuple[Tensor]:
        """Return the result of greedy CTC, packed; see ``SearchResult``."""
        assert self._network.ctc
        encoded, frames, _ = self._encoded(waveforms, lengths, known)
        return (ctc_greedy(self._network.ctc(encoded), frames, self._network.ctc.blank).packed(),)

    def _features(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        if self._writer:
            waveforms, lengths = self._writer.lengthened(waveforms, lengths)
        features: tuple[Tensor, Tensor] = self._front_end(waveforms, lengths)
        return features

    def _choose_searches(self) -> None:
        """Choose the search of each decoder; greedy CTC is part of its pass, and a writer has its own."""
        network, transducer, on_cpu = self._network, self._config.transducer, self.device.type == "cpu"
        if transducer and network.predictor and network.joint:
            parts = network.predictor, network.joint, transducer.max_symbols
            # Both find the same tokens. Look-ahead needs fewer launches, for a GPU; flat search fewer products, for a
            # CPU.
            if on_cpu:
                self._searches[self.decoders[0]] = lambda encoded, lengths: flat(encoded, lengths, *parts).fetched()
            else:
                graphed = GraphedLookAhead(*parts)
                self._searches[self.decoders[0]], self._sizes["transducer"] = graphed.search, graphed.sizes
        if (head := network.ctc) and (language_model := self._language_model):
            if on_cpu:
                # One thread searches while others encode: two that search at the same time wait for the interpreter at
                # each of thousands of small operations.
                one_at_a_time = Lock()

                def search(encoded: Tensor, lengths: Tensor) -> FetchedResult:
                    logits = head(encoded)
                    with one_at_a_time:
                        return ctc_beam(logits, lengths, head.blank, language_model).fetched()

                self._searches["ctc"] = search
            else:
                beam = GraphedCtcBeam(head.blank, language_model, self.device)
                self._searches["ctc"] = lambda encoded, lengths: beam.search(head(encoded), lengths)
                self._sizes["ctc_beam"] = beam.sizes
        if self._writer:
            self._sizes["attention"] = self._writer.sizes

    def _check_aligner(self, aligner: "Model") -> None:
        if "ctc" not in aligner.decoders:
            raise ValueError("an aligner needs a CTC decoder, and this one has none")
        rate = self._config.features.sample_rate
        if aligner.sample_rate != rate:
            raise ValueError(f"the aligner takes audio at {aligner.sample_rate} Hz, and the model at {rate} Hz")

    def _check_identifier(self, identifier: LanguageIdentifier) -> None:
        if set(identifier.languages).isdisjoint(self.languages or ()):
            raise ValueError("the language identifier knows none of the model's languages")

    def _with_identified(
        self,
        pcm: Sequence[Waveform],
        languages: Sequence[str | None],
        possible: Sequence[str],
        batch_seconds: float,
    ) -> list[str | None]:
        """Return the language of each utterance; one that is not named is identified from that utterance alone."""
        assert self.language_identifier
        unnamed = [index for index, language in enumerate(languages) if language is None and len(pcm[index])]
        found = self.language_identifier.identify([pcm[index] for index in unnamed], batch_seconds, self.sample_rate)
        known = list(languages)
        for index, probabilities in zip(unnamed, found, strict=True):
            decision = LanguageDecision(possible)
            known[index] = decision.add(probabilities, len(pcm[index]) / self.sample_rate).language
        return known

    def _prompt_for_writer(self, prompt: Prompt) -> Prompt:
        """Return the prompt, without times if the aligner finds them."""
        return prompt._replace(timestamps=False) if self._aligner else prompt

    def _aligned(
        self, written: Recognition, waveforms: Tensor, lengths: Tensor, prompts: Sequence[Prompt]
    ) -> Recognition:
        """Return the transcripts with aligned times if asked for; the host waits, because aligning needs the texts."""
        assert self._aligner
        wanted = [index for index, prompt in enumerate(prompts) if prompt.timestamps and not self._translates(prompt)]
        if not wanted:
            return written
        transcripts = written.transcripts()
        words = [[word.text for word in transcripts[index].words] for index in wanted]
        found = self._aligner.align_batch(waveforms[wanted], lengths[wanted], words)
        for index, spans in zip(wanted, found, strict=True):
            timed = zip(transcripts[index].words, spans, strict=True)
            words_with_times = [word._replace(start=start, end=end) for word, (start, end) in timed]
            transcripts[index] = transcripts[index]._replace(words=words_with_times)
        return written.with_transcripts(transcripts)

    def _translates(self, prompt: Prompt) -> bool:
        """Return whether a text is a translation, whose words are not in the audio."""
        assert self._config.prompts
        return prompt.target_language not in (None, prompt.language or self._config.prompts.default_language)

    @cached_property
    def _finder(self) -> Aligner:
        """The aligner that uses the scores of this model's CTC decoder."""
        assert self._network.ctc
        return Aligner(self._vocabulary, self._network.ctc.blank, self._config.seconds)

    def _check_prompt(self, prompt: Prompt) -> None:
        if self._writer:
            self._writer.check(self._prompt_for_writer(prompt))
        else:
            check_unprompted(prompt, self.languages, punctuates=self._punctuates)

    @property
    def _punctuates(self) -> bool:
        return not self._vocabulary.punctuation.isdisjoint(_SENTENCE_MARKS)


def _check_samples(pcm: Sequence[Waveform]) -> None:
    _check_arrays(pcm)
    for index, samples in enumerate(pcm):
        _check_finite(index, samples)


def _check_arrays(pcm: Sequence[Waveform]) -> None:
    for index, samples in enumerate(pcm):
        if not isinstance(samples, np.ndarray) or samples.dtype != np.float32 or samples.ndim != 1:
            kind = f"{samples.dtype} {samples.shape}" if isinstance(samples, np.ndarray) else type(samples).__name__
            raise ValueError(f"utterance {index} must be a mono float32 array, not {kind}")


def _check_finite(index: int, samples: Waveform) -> None:
    if not np.isfinite(samples).all():
        raise ValueError(f"utterance {index} has samples that are infinite or not numbers")
