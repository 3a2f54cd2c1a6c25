"""Writing transcripts with the characters that a vocabulary has."""

import sentencepiece

_APOSTROPHES = "'\u2019\u02bc\u2018`"


class Spelling:
    """Puts texts into the case in which a SentencePiece model has their letters, without marks that it lacks.

    A released model with lower-case pieces and a corpus in capitals are a common pair. Each capital would become the
    unknown piece, and training on these would wreck the model.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        pieces = "".join(
            processor.id_to_piece(label)
            for label in range(processor.get_piece_size())
            if not (processor.is_unknown(label) or processor.is_control(label))
            and not processor.id_to_piece(label).startswith("<|")  # of prompts
        )
        self._is_lower, self._is_upper = pieces == pieces.lower(), pieces == pieces.upper()
        self._known: dict[str, bool] = {" ": True}

    def spelled(self, text: str) -> tuple[str, set[str]]:
        """Return a text in the model's case, and its letters and digits that the model has no piece for.

        Marks that it lacks are left out, or a space between two letters.
        """
        text = self._cased(text)
        lacked = {character for character in text if not (self._knows(character) or character.isalnum())}
        for mark in lacked:
            instead = " "
            if mark in _APOSTROPHES:
                instead = "'" if self._knows("'") else ""
            text = text.replace(mark, instead)
        return " ".join(text.split()) if lacked else text, self._unknown_letters(text)

    def _cased(self, text: str) -> str:
        """Return a text in the model's case or, if it has both, in the one case in which it has all letters."""
        if self._is_lower or self._is_upper:
            return text.lower() if self._is_lower else text.upper()
        if self._unknown_letters(text):
            for cased in (text.lower(), text.upper()):
                if not self._unknown_letters(cased):
                    return cased
        return text

    def _unknown_letters(self, text: str) -> set[str]:
        return {character for character in text if not self._knows(character) and character.isalnum()}

    def _knows(self, character: str) -> bool:
        known = self._known.get(character)
        if known is None:
            known = self._known[character] = self._processor.unk_id() not in self._processor.encode(character)
        return known
