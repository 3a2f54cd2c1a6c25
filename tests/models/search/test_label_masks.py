"""CTC with masks finds what it finds in logits that are minus infinity there, each row by itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.heads.ctc import CTCHead
from models.search.ctc import ctc_greedy
from models.search.ctc_beam import ctc_beam
from models.search.ctc_search import ctc_search, greedy_ctc
from models.search.graphed_ctc_beam import GraphedCtcBeam
from models.search.label_masks import LabelMasks, table_size
from tests.models.search.test_ctc_beam import BLANK, language_model


def greedy(logits, lengths):
    return ctc_greedy(logits, lengths, BLANK)


def beam(logits, lengths):
    return ctc_beam(logits, lengths, BLANK, language_model())


def of_graphs(head):
    graphed = GraphedCtcBeam(BLANK, language_model(), torch.device("cpu"))
    return lambda encoded, lengths, masks, phrases: graphed.search(masks.added(head(encoded)), lengths)


# A search of a CTC head, and what it should find in the logits of one utterance.
SEARCHES = {
    "greedy": (greedy_ctc, greedy),
    "beam": (lambda head: ctc_search(head, language_model(), torch.device("cpu")).search, beam),
    "beam by graphs": (of_graphs, beam),
}


@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=4),
    masked=st.lists(st.lists(st.booleans(), min_size=BLANK, max_size=BLANK), min_size=2, max_size=2),
)
def test_rows_with_masks_find_what_each_finds_alone_among_the_labels_it_may_write(name, seed, rows, masked):
    torch.manual_seed(seed)
    head = CTCHead(6, BLANK).requires_grad_(requires_grad=False)
    head.projection.weight.mul_(4)
    encoded, lengths = torch.randn(len(rows), 12, 6), torch.tensor([length for length, _ in rows])
    table = torch.zeros(3, BLANK + 1)
    table[1:, :BLANK][torch.tensor(masked)] = -torch.inf
    kinds = torch.tensor([kind for _, kind in rows])
    of_head, of_logits = SEARCHES[name]

    found = of_head(head)(encoded, lengths, LabelMasks(table, kinds), None).rows()

    for row, frames, (length, kind) in zip(found, encoded, rows, strict=True):
        logits = head(frames[None, :length]) + table[kind]
        (alone,) = of_logits(logits, torch.tensor([length])).rows()
        assert (row.tokens, row.frames, row.ends) == (alone.tokens, alone.frames, alone.ends)
        assert row.confidence == pytest.approx(alone.confidence, abs=1e-5)
        assert not any(table[kind, row.tokens].isinf())


def test_graphs_are_for_tables_of_a_few_sizes():
    assert [table_size(kinds) for kinds in (1, 8, 9, 16, 40)] == [8, 8, 16, 16, 64]
