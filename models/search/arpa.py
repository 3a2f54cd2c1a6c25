r"""Reading ARPA files, as KenLM, SRILM and others write n-gram language models, plain or compressed by gzip.

Lines before ``\data\`` are comments. ``# weight 0.3`` and ``# bonus 0.5`` among them say what a search multiplies the
log probabilities by, and what a beam adds for each token.
"""

import gzip
import math
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from models.errors import UnreadableCheckpointError
from models.search.language_model import MAX_ORDER, LanguageModel, Ngrams, of_ngrams

UNKNOWN = "<unk>"
_START, _END = "<s>", "</s>"
# What `steno train language-model` writes by default.
_SETTINGS = {"weight": 0.25, "bonus": 0.75}
_SETTING = re.compile(rb"# (weight|bonus) (\S+)")
_SECTION = re.compile(rb"\\([1-9])-grams:")
_DATA = b"\\data\\"
_MOST_COMMENTS, _LONGEST_COMMENT = 100, 4096
_GZIP = b"\x1f\x8b"
_READ_ERRORS = (OSError, EOFError, zlib.error, ValueError, KeyError)


@dataclass(slots=True)
class _Table:
    """The n-grams of an order: the numbers of their words, one n-gram after the other, and their logarithms."""

    words: "array[int]" = field(default_factory=lambda: array("q"))
    log_probabilities: "array[float]" = field(default_factory=lambda: array("d"))
    backoffs: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, slots=True)
class Arpa:
    """What an ARPA file says.

    Attributes:
        words: its words, ``<unk>`` among them, without start and end of an utterance; tokens if it is of tokens.
        unknown: log probability of any other word: that of ``<unk>`` or, without one, the least of all.
    """

    words: tuple[str, ...]
    unknown: float
    _tables: list[_Table]
    _names: tuple[str, ...]
    _settings: Mapping[str, float]

    def model(self, numbers: Mapping[str, int], labels: int) -> LanguageModel:
        """Return the model of labels that have these words; n-grams of other words are left out.

        Raises:
            UnreadableCheckpointError: if an n-gram is there twice, or lacks its context or suffix.
        """
        numbers = {**numbers, _START: labels, _END: labels + 1}
        number = torch.tensor([numbers.get(name, -1) for name in self._names])
        try:
            return of_ngrams(_sorted(self._tables, number, labels + 2, self.unknown), labels, **self._settings)
        except ValueError as error:
            raise UnreadableCheckpointError(f"a language model with {error}") from error


def is_arpa(path: Path) -> bool:
    """Return whether a file is an ARPA file, by its content."""
    try:
        with _opened(path) as lines:
            return any(lines.readline(_LONGEST_COMMENT).strip() == _DATA for _ in range(_MOST_COMMENTS))
    except _READ_ERRORS:
        return False


def read_arpa(path: Path) -> Arpa:
    """Read an ARPA file.

    Raises:
        UnreadableCheckpointError: if it is damaged or cut short.
    """
    try:
        with _opened(path) as lines:
            return _parsed(lines)
    except _READ_ERRORS as error:
        raise UnreadableCheckpointError(f"{path} is damaged: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if file.peek(2).startswith(_GZIP):
            with gzip.open(file) as lines:
                yield lines  # type: ignore[misc]  # it reads lines
        else:
            yield file


def _parsed(lines: Iterable[bytes]) -> Arpa:
    settings, sizes = dict(_SETTINGS), []
    tables: list[_Table] = []
    numbers: dict[bytes, int] = {}
    has_data = has_end = False
    for line in map(bytes.strip, lines):
        if not has_data:
            has_data = line == _DATA
            if setting := _SETTING.fullmatch(line):
                settings[setting[1].decode()] = _finite(setting[2])
        elif section := _SECTION.fullmatch(line):
            tables.append(_Table())
            if int(section[1]) != len(tables) or len(tables) > MAX_ORDER:
                raise ValueError(f"{line.decode()} in another place or of more words than {MAX_ORDER}")
        elif line == b"\\end\\":
            has_end = True
            break
        elif line and not tables:
            sizes.append(int(line.rpartition(b"=")[2]))
        elif line:
            _add(tables[-1], len(tables), line.split(), numbers)
    if not has_end or [len(table.backoffs) for table in tables] != sizes or not sizes:
        raise ValueError(f"it does not hold the numbers of n-grams that it says: {sizes}")
    names = tuple(name.decode() for name in numbers)
    unigrams = dict(zip(names, tables[0].log_probabilities, strict=True))
    unknown = unigrams.get(UNKNOWN, min(unigrams.values()))
    words = tuple(dict.fromkeys([*(name for name in names if name not in (_START, _END)), UNKNOWN]))
    return Arpa(words, unknown, tables, names, settings)


def _add(table: _Table, order: int, fields: list[bytes], numbers: dict[bytes, int]) -> None:
    """Add the n-gram of a line."""
    if len(fields) not in (order + 1, order + 2):
        raise ValueError(f"a line of {len(fields)} fields for {order} words")
    words = fields[1 : order + 1]
    if order == 1:
        if words[0] in numbers:
            raise ValueError("a word that is there twice")
        numbers[words[0]] = len(numbers)
    table.words.extend([numbers[word] for word in words])
    table.log_probabilities.append(_finite(fields[0]) * math.log(10))
    table.backoffs.append(_finite(fields[-1]) * math.log(10) if len(fields) > order + 1 else 0.0)


def _finite(text: bytes) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def _sorted(tables: list[_Table], number: Tensor, width: int, unknown: float) -> list[Ngrams]:
    """Return the n-grams sorted, for words that have these numbers; -1 is none."""
    orders: list[Ngrams] = []
    keys: list[Tensor] = []  # of each order: number of the context x width + last word, ascending
    firsts = [1]  # the number of the first n-gram of each order; 0 is the empty context
    for order, table in enumerate(tables, start=1):
        words = number[torch.frombuffer(table.words, dtype=torch.int64)].view(-1, order)
        is_known = (words >= 0).all(dim=1)
        words = words[is_known]
        values = [
            torch.frombuffer(column, dtype=torch.float64)[is_known].float()
            for column in (table.log_probabilities, table.backoffs)
        ]
        contexts = torch.zeros(len(words), dtype=torch.int64)
        for before, first, column in zip(keys, firsts[:-1], words.T[:-1], strict=True):
            wanted = contexts * width + column
            at = torch.searchsorted(before, wanted).clamp_(max=len(before) - 1)
            if not torch.equal(before[at], wanted):
                raise ValueError("an n-gram without its context")
            contexts = at + first
        if order == 1:  # every label has one
            given = words[:, 0]
            filled = [torch.full((width,), unknown), torch.zeros(width)]
            for column, value in zip(filled, values, strict=True):
                column[given] = value
            values, words, contexts = filled, torch.arange(width)[:, None], torch.zeros(width, dtype=torch.int64)
        own = contexts * width + words[:, -1]
        placed = own.argsort()
        keys.append(own[placed])
        if orders:
            children = (contexts - firsts[-2]).bincount(minlength=len(orders[-1].tokens))
            orders[-1] = Ngrams(orders[-1].tokens, orders[-1].log_probabilities, orders[-1].backoffs, children)
        is_highest = order == len(tables)
        backoffs = None if is_highest else values[1][placed]
        orders.append(Ngrams(words[placed, -1], values[0][placed], backoffs, None))
        firsts.append(firsts[-1] + len(own))
    return orders
