"""Utterances cut from the golden clips, batches of them, and the transcript of one alone."""

from contextlib import contextmanager

import torch
from hypothesis import strategies as st

from tests.models import golden_data as golden

# The lead over the runner-up below which a decision is a draw.
MARGIN = 1e-3
# Of the largest value: bfloat16 keeps 8 bits, and the errors of layers add up.
BFLOAT16_SHARE = 5e-2

CUTS = st.tuples(
    st.sampled_from(golden.CLIPS),
    st.integers(0, 30_000),
    st.integers(0, 48_000) | st.sampled_from([0, 1, 159, 160, 1279, 1280, 1281, 16_000]),
)
GARBAGE = st.sampled_from([0.0, 1.0, -1e30, float("inf"), float("nan")])


def cut(clip_name, start, length):
    return golden.clip(clip_name)[start : start + length]


def padded(utterances, extra, garbage):
    lengths = [len(samples) for samples in utterances]
    waveforms = torch.full((len(utterances), max(lengths) + extra), garbage)
    for row, samples in zip(waveforms, utterances, strict=True):
        row[: len(samples)] = torch.from_numpy(samples.copy())
    return waveforms, torch.tensor(lengths)


@contextmanager
def lead_of_every_decision(model):
    """Collect how far each decision is ahead of its runner-up while the block transcribes."""
    leads = []

    def note(logits):
        if logits.numel():
            best = logits.float().topk(2, dim=-1).values
            leads.append(float((best[..., 0] - best[..., 1]).min()))

    def on_logits(head, _, logits):
        for decisions in head.split(logits) if head is model.model.network.joint else [logits]:
            note(decisions)

    heads = [head for head in (model.model.network.ctc, model.model.network.joint) if head is not None]
    hooks = [head.register_forward_hook(on_logits) for head in heads]
    try:
        yield leads
    finally:
        for hook in hooks:
            hook.remove()


def assert_close_in_bfloat16(exact, rounded):
    """From the same features, frames are as close as bfloat16 has them after a few layers of random weights."""
    features, lengths = exact.features(golden.clips())
    wanted, frames = exact.encode(features, lengths)
    encoded, same = rounded.encode(features, lengths)

    assert rounded.features(golden.clips()[:1])[0].dtype == torch.float32
    assert encoded.dtype == torch.bfloat16
    assert same.tolist() == frames.tolist()
    for row, close, count in zip(wanted, encoded.float().cpu(), frames.tolist(), strict=True):
        assert (close[:count] - row[:count]).abs().max() < BFLOAT16_SHARE * row[:count].abs().max()


def alone(model, decoder, samples):
    """The hypothesis of one utterance alone, and the smallest lead of its decisions."""
    with lead_of_every_decision(model) as leads:
        (hypothesis,) = model.transcribe([samples], decoder=decoder)
    return hypothesis, min(leads, default=float("inf"))


def told(hypothesis):
    times = [(word.text, word.start, word.end) for word in hypothesis.words]
    return hypothesis.text, hypothesis.tokens, hypothesis.frames, hypothesis.durations, times
