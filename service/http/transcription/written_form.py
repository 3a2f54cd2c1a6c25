"""`format=written`: numbers, dates and money in digits, with the times of their words."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from service.dispatch.dispatcher import Answer
from service.grammars import LANGUAGES, PACKAGE, Grammars
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError
from transcripts.languages import NAMES
from transcripts.written_form import in_written_form

WritePart = Callable[[Answer, Sequence[str]], Awaitable[list[str]]]


def check_written_form(grammars: Grammars, language: str | None) -> None:
    """Check that there are grammars for a language; None stands for one that will be detected.

    Raises:
        RequestError: if there are none.
    """
    if not grammars.are_installed:
        message = f"This service has no grammars that write numbers: its operator has not installed {PACKAGE}."
        raise RequestError(message, code=ErrorCode.UNSUPPORTED_VALUE, param="format")
    if language is not None and language not in LANGUAGES:
        names = ", ".join(map(repr, LANGUAGES))
        message = (
            f"There are no grammars that write numbers in {language!r} ({NAMES[language]}); there are for {names}."
        )
        raise RequestError(message, code=ErrorCode.UNSUPPORTED_VALUE, param="format")


async def answers_in_written_form(
    answers: AsyncGenerator[Answer, None], write: WritePart
) -> AsyncGenerator[Answer, None]:
    """Yield answers in written form; ``write`` gets each answer with its phrases."""
    async with aclosing(answers):
        async for answer in answers:
            yield replace(answer, transcript=await in_written_form(answer.transcript, partial(write, answer)))
