"""What transcribes for users: a model, with an aligner and a language identifier beside it where it has them."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from models.device_model import Waveform, batches, check_arrays, check_finite
from models.language_identifier import LanguageIdentifier
from models.model import Model
from models.recognition import Recognition
from transcripts.prompt import Prompt
from transcripts.spoken_language import LanguageDecision, possible_languages
from transcripts.transcript import Transcript


class Transcriber:
    """A model and its companions; ``load_model`` returns one.

    Attributes:
        model: transcribes, with what prompts and decoders of its own can do.
        language_identifier: finds the language of utterances whose prompts name none; None if there is none.
        weight_bytes: memory of all weights on the device, those of the companions too.

    All others are the model's.
    """

    def __init__(
        self, model: Model, aligner: Model | None = None, identifier: LanguageIdentifier | None = None
    ) -> None:
        """Put a model together with its companions.

        Args:
            model: transcribes.
            aligner: finds the times of the words that the model wrote, by its CTC decoder.
            identifier: finds the language of utterances that name none.

        Raises:
            ValueError: if the aligner has no CTC decoder, or another sample rate than the model; or if the identifier
                knows none of the model's languages.
        """
        if aligner and "ctc" not in aligner.decoders:
            raise ValueError("an aligner needs a CTC decoder, and this one has none")
        if aligner and aligner.sample_rate != model.sample_rate:
            rates = f"{aligner.sample_rate} Hz, and the model at {model.sample_rate} Hz"
            raise ValueError(f"the aligner takes audio at {rates}")
        if identifier and set(identifier.languages).isdisjoint(model.languages or ()):
            raise ValueError("the language identifier knows none of the model's languages")
        self.model = model
        self.language_identifier = identifier
        self._aligner = aligner
        self.device, self.precision = model.device, model.precision
        self.sample_rate, self.seconds_per_frame = model.sample_rate, model.seconds_per_frame
        self.piece_seconds, self.decoders, self.languages = model.piece_seconds, model.decoders, model.languages
        self.token_bytes = model.token_bytes
        self.weight_bytes = sum(part.weight_bytes for part in (model, aligner, identifier) if part)

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
        phrases: str | Sequence[str] = "",
        written_languages: Sequence[str] = (),
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
            phrases: phrases that are expected to be said, as lines (`transcripts.phrases`), or those of each utterance.
            written_languages: languages that the texts may be in, where ``language`` names none; see ``Prompt``.
            batch_seconds: most seconds of audio and padding in a batch; a longer utterance has a batch to itself.

        Returns:
            A transcript for each utterance, in the order given.

        Raises:
            ValueError: if an array is not mono, float32 and finite, ``decoder`` is not one of ``decoders``, or there
                is not a language for each utterance.
            PromptError: a ValueError, if the model cannot do what the prompt asks for.
            Float16OverflowError: if values of the model go beyond the range of float16.
        """
        self.model.check_decoder(decoder)
        check_arrays(pcm)
        lists = [phrases] * len(pcm) if isinstance(phrases, str) else phrases
        if len(lists) != len(pcm):
            raise ValueError(f"{len(lists)} lists of phrases for {len(pcm)} utterances")
        languages = [language] * len(pcm) if language is None or isinstance(language, str) else language
        if len(languages) != len(pcm):
            raise ValueError(f"{len(languages)} languages for {len(pcm)} utterances")
        spoken_by_all = language if isinstance(language, str) else None
        prompt = Prompt(spoken_by_all, target_language, punctuation, timestamps, itn)
        prompt = prompt._replace(written_languages=tuple(written_languages))
        for spoken in set(languages) or {prompt.language}:
            self.model.check_prompt(self._for_model(prompt._replace(language=spoken)))
        if self.language_identifier and None in languages:
            possible = possible_languages(self.languages or (), target_language)
            languages = self._with_identified(pcm, languages, possible, batch_seconds)
        transcripts: dict[int, Transcript] = {}
        given: tuple[list[int], Recognition] | None = None
        for batch in batches([len(samples) for samples in pcm], batch_seconds * self.sample_rate):
            # While the device computes the batch before.
            for index in batch:
                check_finite(index, pcm[index])
            waveforms, lengths = self.model.batch([pcm[index] for index in batch])
            prompts = [prompt._replace(language=languages[index], phrases=lists[index]) for index in batch]
            before, given = given, (batch, self.recognize_batch(waveforms, lengths, decoder=decoder, prompts=prompts))
            # Detokenized only now that the device has its next batch.
            if before:
                transcripts.update(zip(before[0], before[1].transcripts(), strict=True))
        if given:
            transcripts.update(zip(given[0], given[1].transcripts(), strict=True))
        return [transcripts[index] for index in range(len(pcm))]

    def recognize_batch(
        self,
        waveforms: Tensor,
        lengths: Tensor,
        *,
        decoder: str | None = None,
        prompts: Sequence[Prompt] | None = None,
    ) -> Recognition:
        """Find the tokens of one batch as ``Model.recognize_batch``, and times by the aligner where they are asked for.

        The host waits for texts that are aligned.
        """
        aligner = self._aligner
        if not aligner or prompts is None:
            return self.model.recognize_batch(waveforms, lengths, decoder=decoder, prompts=prompts)
        own = [self._for_model(prompt) for prompt in prompts]
        written = self.model.recognize_batch(waveforms, lengths, decoder=decoder, prompts=own)
        wanted = [index for index, prompt in enumerate(prompts) if prompt.timestamps and not self._translates(prompt)]
        if not wanted:
            return written
        transcripts = written.transcripts()
        words = [[word.text for word in transcripts[index].words] for index in wanted]
        found = aligner.align_batch(waveforms[wanted], lengths[wanted], words)
        for index, spans in zip(wanted, found, strict=True):
            timed = zip(transcripts[index].words, spans, strict=True)
            words_with_times = [word._replace(start=start, end=end) for word, (start, end) in timed]
            transcripts[index] = transcripts[index]._replace(words=words_with_times)
        return written.with_transcripts(transcripts)

    def features(self, pcm: Sequence[Waveform]) -> tuple[Tensor, Tensor]:
        """Compute the features of one batch; see ``Model.features``."""
        return self.model.features(pcm)

    def encode(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Encode one batch; see ``Model.encode``."""
        return self.model.encode(features, lengths)

    def info(self) -> dict[str, Any]:
        """Describe the model, for JSON; unknown values are None."""
        described = self.model.info()
        if self._aligner:
            described["capabilities"]["word_timestamps"] = True
        return described

    def _for_model(self, prompt: Prompt) -> Prompt:
        return prompt._replace(timestamps=False) if self._aligner else prompt

    def _translates(self, prompt: Prompt) -> bool:
        """Return whether a text is a translation, whose words are not in the audio."""
        return prompt.target_language not in (None, prompt.language or self.model.default_language)

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
