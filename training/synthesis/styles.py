"""Kokoro's voices: mixtures of its styles, also beyond their range."""

from io import BytesIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from training.synthesis.errors import SynthesisError

# A table has a style for each number of phonemes.
_ROWS, _WIDTH = 510, 256
_MOST_PARENTS = 5
_VOICES_OF_A_KIND = 500
# A voice's distance from the mean of its parents, as a factor. The released model of docs/training.md has as few errors
# with voices stretched by 1.6 as with mixed ones, but many with voices further out and with the styles themselves.
_KINDS = {"mixed": 1.0, "stretched": 1.6}

Table = NDArray[np.float32]

VOICES = tuple(f"{kind}-{number:03}" for kind in _KINDS for number in range(_VOICES_OF_A_KIND))


class Styles:
    """Makes the styles of all voices from the tables of a file.

    Args:
        content: a NumPy archive of tables, float32 [510, 1, 256] each.

    Raises:
        SynthesisError: if it is something else.
    """

    def __init__(self, content: bytes) -> None:
        try:
            with np.load(BytesIO(content)) as tables:
                found = [np.asarray(tables[name], np.float32).reshape(_ROWS, _WIDTH) for name in sorted(tables.files)]
        except (ValueError, TypeError, OSError, EOFError, BadZipFile) as error:
            raise SynthesisError("Kokoro's styles are no archive of tables of 510 x 1 x 256") from error
        if not found:
            raise SynthesisError("Kokoro's styles hold no table")
        self._tables = np.stack(found)

    def of(self, voice: str, phonemes: int) -> Table:
        """Return the style of a voice for a sentence with a number of phonemes, float32 [1, 256].

        A voice is a random mixture of a few styles, determined by its name.
        """
        kind, _, number = voice.partition("-")
        random = np.random.default_rng([list(_KINDS).index(kind), int(number)])
        parents = random.permutation(len(self._tables))[:_MOST_PARENTS]
        shares = random.dirichlet(np.ones(len(parents)))
        styles = self._tables[parents, min(phonemes, _ROWS) - 1]
        mean = styles.mean(0, keepdims=True)
        return np.asarray(mean + _KINDS[kind] * (shares @ styles - mean), np.float32)
