"""Every decoder of every family takes phrases, for some rows of a batch, and the other rows are as they are without."""

import pytest

from models import load_model
from tests.models import golden_data as golden

DECODERS = [
    ("quartznet-small", "ctc", None),
    ("fastconformer-ctc-bpe", "ctc", None),
    ("fastconformer-rnnt-bpe", "rnnt", None),
    ("fastconformer-tdt-bpe", "tdt", None),
    ("hybrid-tdt-ctc-bpe", "tdt", None),
    ("hybrid-tdt-ctc-bpe", "ctc", None),
    ("canary-small", "aed", 1),
    ("canary-small", "aed", 3),
    ("bundled", "ctc", None),  # with its language model
]


def common_phrases(model):
    """The texts of tokens, which random weights may write."""
    texts = {text.decode(errors="ignore").strip() for text in model.token_bytes}
    return "\n".join(f"{text}\t10" for text in sorted(texts - {""}))


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "decoder", "beam"), DECODERS)
def test_rows_with_phrases_differ_and_rows_without_do_not(folder, decoder, beam):
    model = load_model(folder if folder == "bundled" else golden.GOLDEN / folder / "model.nemo", beam=beam)
    clips = golden.clips()
    lists = [common_phrases(model) if index % 2 else "" for index in range(len(clips))]

    plain = model.transcribe(clips, decoder=decoder)
    mixed = model.transcribe(clips, decoder=decoder, phrases=lists)
    alone = [model.transcribe([clip], decoder=decoder, phrases=one)[0] for clip, one in zip(clips, lists, strict=True)]

    assert [one.tokens for one in mixed[::2]] == [one.tokens for one in plain[::2]]
    assert [one.tokens for one in mixed] == [one.tokens for one in alone]
    assert [one.tokens for one in mixed] != [one.tokens for one in plain]
