"""A Canary model writes NeMo's tokens, for every prompt, alone and in any batch."""

import json
from functools import cache

import numpy as np
import pytest
import soxr
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

from models import Prompt, load_identifier, load_model
from tests.conftest import GOLDEN
from tests.models import canary
from tests.models import golden_data as golden
from tests.models.checkpoint.nemo_files import (
    WEIGHTS,
    archive,
    golden_document,
    golden_members,
    golden_tensors,
    saved,
    with_config,
)
from tests.models.companions import CUTS, GARBAGE, MARGIN, cut, padded, told

pytestmark = pytest.mark.golden

every_prompt = pytest.mark.parametrize("name", canary.PROMPTS)
FORCED_FROM_AUDIO = 5e-3


@every_prompt
def test_prompts_are_nemos_tokens(name):
    tokens = canary.prompt_tokens(canary.PATH, canary.PROMPTS[name])

    assert tokens == golden.facts(canary.NAME)["settings"]["prompts"][name]["ids"]


@every_prompt
@pytest.mark.parametrize("device", golden.DEVICES)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "batch"])
def test_transcripts_are_nemos(name, together, device):
    model, options = golden.model(canary.NAME, device), canary.options(canary.PROMPTS[name])
    if together:
        hypotheses = model.transcribe(golden.clips(), **options)
    else:
        hypotheses = [model.transcribe([samples], **options)[0] for samples in golden.clips()]

    for clip_name, hypothesis in zip(golden.CLIPS, hypotheses, strict=True):
        recorded = canary.transcript(clip_name, name)
        assert hypothesis.tokens == recorded["tokens"]
        assert model.model.vocabulary.tokenizer.join(hypothesis.tokens) == recorded["raw_text"]
        assert hypothesis.text == recorded["text"]
        assert hypothesis.frames is None
        assert len(hypothesis.token_confidence) == len(hypothesis.tokens)
        assert all(0 < confidence <= 1 for confidence in hypothesis.token_confidence)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [2, 4])
def test_a_beam_finds_what_nemos_finds(beam):
    recorded = json.loads((GOLDEN / canary.NAME / "beams.json").read_text(encoding="utf-8"))
    model = unsure(beam, recorded["scale"])
    assert model.info()["beam"] == beam

    for name, transcripts in recorded["beams"][str(beam)].items():
        for clip_name, tokens in transcripts.items():
            (hypothesis,) = model.transcribe([golden.clip(clip_name)], **canary.options(canary.PROMPTS[name]))
            assert hypothesis.tokens == tokens, (name, clip_name)


@cache
def unsure(beam, scale=0.3):
    """The golden model with an output layer scaled down: otherwise a beam would change nothing."""
    model = load_model(canary.PATH, beam=beam)
    decoder = model.model.network.attention_decoder
    with torch.no_grad():
        decoder.embedding.weight.mul_(scale)
        decoder.output_bias.mul_(scale)
    return model


@pytest.mark.slow
def test_with_a_beam_too_tokens_are_the_same_alone_and_in_a_batch():
    model, prompt = unsure(beam=3), canary.options(Prompt())

    together = model.transcribe(golden.clips(), **prompt)

    for samples, hypothesis in zip(golden.clips(), together, strict=True):
        (alone,) = model.transcribe([samples], **prompt)
        assert told(hypothesis) == told(alone)


@pytest.mark.parametrize("beam", [0, 33])
def test_a_beam_out_of_bounds_is_refused(beam):
    with pytest.raises(ValueError, match="not between 1 and 32"):
        load_model(canary.PATH, beam=beam)


def test_words_have_the_times_that_the_model_wrote():
    hypotheses = canary.model().transcribe(golden.clips(), timestamps=True)

    for clip_name, hypothesis in zip(golden.CLIPS, hypotheses, strict=True):
        recorded = canary.transcript(clip_name, "en-en-timestamps")["word_timestamps"]
        if clip_name == "espeak-300ms":  # of its second, NeMo's times count the silence that was put before it
            samples = len(golden.clip(clip_name))
            silence = (16_000 - samples) // 2
            recorded = [
                word | {key: min(max(0, round(16_000 * word[key]) - silence), samples) / 16_000 for key in times}
                for times in [("start", "end")]
                for word in recorded
            ]
        assert [(word.text, word.start, word.end) for word in hypothesis.words] == [
            (word["word"], pytest.approx(word["start"], abs=1e-4), pytest.approx(word["end"], abs=1e-4))
            for word in recorded
        ]


@pytest.mark.parametrize("key", [key for key in golden.tensors(canary.NAME) if "/forced/" in key])
def test_log_probabilities_of_a_forced_transcript_agree(key):
    model, (_, clip_name, _, prompt_name) = canary.model(), key.split("/")
    decoder = model.model.network.attention_decoder
    written = canary.transcript(clip_name, prompt_name)["tokens"]
    tokens = torch.tensor([canary.prompt_tokens(canary.PATH, canary.PROMPTS[prompt_name]) + written])

    encoded, lengths = model.encode(*model.features([golden.clip(clip_name)]))
    with torch.no_grad():
        places = torch.arange(tokens.size(1))
        logits = decoder(tokens, places, decoder.memory(encoded, lengths), decoder.cache(1, tokens.size(1)))

    recorded = golden.tensors(canary.NAME)[key]
    assert (logits[0].log_softmax(-1) - recorded).abs().max() < FORCED_FROM_AUDIO


PROMPTS = st.sampled_from(sorted(canary.PROMPTS)).map(canary.PROMPTS.get)


@pytest.mark.slow
@given(asked=st.lists(st.tuples(CUTS, PROMPTS), min_size=1, max_size=4), extra=st.integers(0, 5000), garbage=GARBAGE)
@settings(max_examples=20, deadline=None)
def test_tokens_are_the_same_alone_and_in_any_batch_of_prompts(asked, extra, garbage):
    model = canary.model()
    utterances = [cut(*one) for one, _ in asked]
    prompts = [prompt for _, prompt in asked]

    together = model.recognize_batch(*padded(utterances, extra, garbage), prompts=prompts).transcripts()

    for samples, prompt, hypothesis in zip(utterances, prompts, together, strict=True):
        with canary.leads(model) as leads:
            (alone,) = model.transcribe([samples], **canary.options(prompt))
        if min(leads, default=1.0) < MARGIN:
            event("a decision under the margin")
        else:
            assert told(hypothesis) == told(alone)


def test_an_empty_utterance_has_an_empty_transcript_beside_others():
    model = canary.model()

    empty, speech = model.transcribe([golden.clip("slt-1s")[:0], golden.clip("slt-1s")])

    assert (empty.text, empty.tokens, empty.words) == ("", [], [])
    assert speech.tokens == canary.transcript("slt-1s", "en-en-pnc")["tokens"]


def test_a_batch_needs_a_prompt_for_every_row():
    with pytest.raises(ValueError, match="2 prompts for 1 utterances"):
        canary.model().recognize_batch(
            torch.zeros(1, 16), torch.tensor([16]), prompts=[Prompt(), Prompt()]
        ).transcripts()


def test_info_says_what_it_can_be_asked_for():
    info = canary.model().info()

    assert info["decoders"] == ["aed"]
    assert info["languages"] == ["en", "de"]
    assert info["vocabulary"] == {"kind": "aggregate", "size": 476}
    assert info["capabilities"] == {
        "transcription": True,
        "translation": True,
        "word_timestamps": True,
        "punctuation": True,
        "itn": True,
        "language": False,
    }


def identifying():
    identifier = GOLDEN / "identifier-statistics" / "model.nemo"
    return load_model(canary.PATH, language_identifier=identifier)


def test_an_identifier_decides_on_languages_that_no_prompt_names():
    model, names = identifying(), ["awb-4s", "near-silence-1s", "slt-1s", "slt-12s"]
    pcm = [golden.clip(name) for name in names]
    found = [max(("de", "en"), key=one.get) for one in model.language_identifier.identify(pcm)]

    transcripts = model.transcribe([*pcm, np.empty(0, np.float32)])

    assert set(found) == {"de", "en"}
    told = canary.model().transcribe(pcm, language=found)
    assert [one.text for one in transcripts] == [*(one.text for one in told), ""]
    mixed = model.transcribe(pcm, language=["de", None, "de", None])
    assert [one.text for one in mixed] == [
        one.text for one in canary.model().transcribe(pcm, language=["de", found[1], "de", found[3]])
    ]


def test_an_identifier_of_another_rate_gets_audio_at_that_rate(tmp_path):
    document, members = golden_document("identifier-statistics"), golden_members("identifier-statistics")
    document["sample_rate"] = document["train_ds"]["sample_rate"] = 8_000
    front_end = ("preprocessor.featurizer.window", "preprocessor.featurizer.fb")  # computed, if they are left out
    tensors = {name: value for name, value in golden_tensors("identifier-statistics").items() if name not in front_end}
    path = archive(tmp_path / "identifier.nemo", with_config(members, document) | {WEIGHTS: saved(tensors)})
    identifier = load_identifier(path)
    pcm = [golden.clip(name) for name in ("slt-1s", "slt-12s")]
    halved = [soxr.resample(samples, 16_000, 8_000) for samples in pcm]

    found = identifier.identify(pcm, rate=16_000)

    assert identifier.sample_rate == 8_000
    assert found == [pytest.approx(one, abs=1e-6) for one in identifier.identify(halved)]
    named = [max(("de", "en"), key=one.get) for one in found]
    model = load_model(canary.PATH, language_identifier=path)
    expected = canary.model().transcribe(pcm, language=named)
    assert [one.text for one in model.transcribe(pcm)] == [one.text for one in expected]


def test_there_is_a_language_for_each_utterance():
    with pytest.raises(ValueError, match="1 languages for 2 utterances"):
        canary.model().transcribe([golden.clip("slt-1s")] * 2, language=["de"])


def test_an_identifier_that_knows_none_of_the_languages_is_refused(tmp_path):
    document = golden_document("identifier-statistics")
    document["train_ds"]["labels"] = ["ab", "ba", "cy", "fr", "ja", "sv"]
    path = archive(tmp_path / "identifier.nemo", with_config(golden_members("identifier-statistics"), document))

    with pytest.raises(ValueError, match="knows none of the model's languages"):
        load_model(canary.PATH, language_identifier=path)
