"""From a decoded recording to the answers of its parts, as the options of a request ask for."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from audio.recording import Recording
from audio.segment.segmenter import SegmentRule
from service.dispatch.cut_recording import CutRecording
from service.dispatch.dispatcher import Answer
from service.dispatch.recordings import Options
from service.grammars import LANGUAGES as GRAMMARS
from service.http.front import Front
from service.http.reply import TranscriptionOptions
from service.http.telemetry import Record
from service.http.written_form import answers_in_written_form


def cut(front: Front, options: TranscriptionOptions, recording: Recording) -> CutRecording:
    """Return a recording with its cuts."""
    return CutRecording(recording, _rule(front, options, recording), front.detector, front.cut_threads)


def answers(
    front: Front,
    record: Record,
    options: TranscriptionOptions,
    cut_recording: CutRecording,
    *,
    is_background: bool = False,
) -> AsyncGenerator[Answer, None]:
    """Return the answers of a recording's parts; see `Recordings.transcribe`.

    Args:
        front: the service.
        record: who asks for it.
        options: what is asked for.
        cut_recording: the recording.
        is_background: whether it is a job's.
    """

    async def write(part: Answer, phrases: Sequence[str]) -> list[str]:
        language = options.text_language.language
        if language is None and part.identified:
            language = part.identified.part.language
        elif language is None:
            language = (await options.detect_language(lambda: phrases)).language
        return await front.grammars.write(phrases, language) if language in GRAMMARS else list(phrases)

    left = front.settings.request_timeout_seconds - record.stages.get("load", 0.0)
    asked = Options(
        *(record.caller or record.request_id, options.lane, options.prompt, options.identification),
        most_seconds=None if is_background else left,
    )
    transcribed = _noted(front.core.transcribe(cut_recording, asked), cut_recording)
    return answers_in_written_form(transcribed, write) if options.fields.format == "written" else transcribed


async def _noted(answers: AsyncGenerator[Answer, None], recording: CutRecording) -> AsyncGenerator[Answer, None]:
    async with aclosing(answers):
        async for answer in answers:
            recording.note_answer(answer.cut, has_text=answer.has_text)
            yield answer


def _rule(front: Front, options: TranscriptionOptions, recording: Recording) -> SegmentRule | None:
    """Return how to cut a recording; None if it is one utterance."""
    longest = front.settings.max_utterance_seconds
    # Parts have the length that suits the model, even where longer ones would fit.
    piece = min(longest, options.model.info.piece_seconds or longest)
    if options.fields.chunking_strategy is not None:
        return options.fields.chunking_strategy.rule(piece)
    return SegmentRule(piece) if recording.seconds > longest else None
