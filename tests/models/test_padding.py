"""From audio to tokens, nothing depends on the batch: not on other rows, their order, the padding or its content.

Two results may differ where a decision is a draw, because sums of another shape round differently. Margins of the clip
alone say where that may be; such clips are counted, and there are few.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.models import golden_data as golden
from tests.models.companions import CUTS, GARBAGE, MARGIN, alone, cut, padded, told

DECODERS = [*golden.DECODERS, ("bundled", "ctc")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "decoder"), DECODERS)
@given(cuts=st.lists(CUTS, min_size=1, max_size=5), extra=st.integers(0, 5000), garbage=GARBAGE)
@settings(max_examples=25, deadline=None)
def test_tokens_are_the_same_alone_and_in_any_batch(name, decoder, cuts, extra, garbage):
    model = golden.model(name)
    utterances = [cut(*one) for one in cuts]

    together = model.recognize_batch(*padded(utterances, extra, garbage), decoder=decoder).transcripts()

    for samples, hypothesis in zip(utterances, together, strict=True):
        reference, lead = alone(model, decoder, samples)
        if lead < MARGIN:
            event("a decision under the margin")
        else:
            assert told(hypothesis) == told(reference)


@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_few_decisions_are_draws(name, decoder):
    """If every clip were under the margin, the test above would test nothing."""
    model = golden.model(name)
    random = np.random.default_rng(0)
    counted = Counter()

    for clip_name in golden.CLIPS:
        for _ in range(5):
            start, length = random.integers(0, 20_000), random.integers(1000, 40_000)
            _, lead = alone(model, decoder, cut(clip_name, start, length))
            counted[lead < MARGIN] += 1

    assert counted[True] <= 0.1 * counted.total(), counted
