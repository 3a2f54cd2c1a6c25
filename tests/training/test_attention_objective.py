"""An attention decoder learns a whole sequence in one pass, with the scores that a search has token by token."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from models import Prompt, load_model
from models.checkpoint import read_checkpoint
from models.config import AttentionDecoderConfig
from models.heads.attention_decoder import AttentionDecoder
from tests.conftest import GOLDEN
from tests.training.small_run import (
    CPU,
    TEXTS,
    assert_padding_is_free,
    finish,
    first_batch,
    log,
    manifest,
    new_run,
)
from training.errors import ManifestError, RecipeError
from training.objective import attention_objective, label_counts
from training.recipe import Objective
from training.recipe_file import read_recipe
from training.run import Run
from training.step import take_step
from training.transcripts import labels_of
from training.vocabulary import new_vocabulary
from training.vocabulary_file import read_vocabulary

CANARY = GOLDEN / "canary-small" / "model.nemo"
ATTENTION = {"width": 16, "layers": 2, "heads": 2, "positions": 64}
CONFIG = AttentionDecoderConfig(
    width=12, layers=2, heads=2, feed_forward_width=20, activation="relu", positions=40, length_margin=None
)


def decoder(seed=0):
    torch.manual_seed(seed)
    return AttentionDecoder(CONFIG, encoder_width=10, vocabulary_size=21).eval()


@given(rows=st.integers(1, 3), tokens=st.integers(1, 9), frames=st.integers(1, 7), data=st.data())
@settings(max_examples=25, deadline=None)
def test_whole_sequences_are_read_as_token_by_token(rows, tokens, frames, data):
    reader = decoder()
    sequences = torch.tensor([[data.draw(st.integers(0, 20)) for _ in range(tokens)] for _ in range(rows)])
    lengths = torch.tensor([data.draw(st.integers(0, frames)) for _ in range(rows)])
    with torch.no_grad():
        memory = reader.memory(torch.randn(rows, frames, 10), lengths)
        cache = reader.cache(rows, tokens)
        steps = [reader(sequences[:, at : at + 1], torch.tensor([at]), memory, cache) for at in range(tokens)]

        whole = reader.read(sequences, memory)

    torch.testing.assert_close(whole, torch.cat(steps, dim=1), atol=1e-5, rtol=1e-5)


def new_canary(folder, **changes):
    manifest(folder)
    (folder / "en.model").write_bytes(new_vocabulary(list(TEXTS.values()), 24))
    (folder / "de.model").write_bytes(new_vocabulary(["das wasser war", "und dann nicht mehr"], 16))
    languages = [{"code": "en", "vocabulary": "en.model"}, {"code": "de", "vocabulary": "de.model"}]
    student = {"layers": 1, "width": 16, "heads": 2, "subsampling_channels": 8, "attention": ATTENTION}
    options = {"student": student, "vocabulary": None, "languages": languages, "augmentation": {}, "dropout": 0.0}
    return new_run(folder, **options | changes)


@pytest.mark.parametrize(("smoothing", "prompts"), [(0.0, True), (0.1, True), (0.1, False)])
def test_the_cost_is_smoothed_cross_entropy_of_the_predicted_labels(tmp_path, smoothing, prompts):
    run = new_canary(tmp_path)
    batch = first_batch(run)
    objective = Objective(label_smoothing=smoothing, predict_prompts=prompts)
    encoded, lengths = torch.randn(len(batch.lengths), 9, 16), torch.full((len(batch.lengths),), 9)
    head = run.network.attention_decoder

    cost = attention_objective(head, encoded, lengths, batch, objective, label_counts(batch, objective))

    scores = head.read(batch.sequences[:, :-1], head.memory(encoded, lengths)).log_softmax(-1).detach()
    outputs = scores.size(2)
    expected, count = 0.0, 0
    for row, (length, text) in enumerate(zip(batch.sequence_lengths, batch.token_lengths, strict=True)):
        for at in range(1 if prompts else int(length - text - 1), int(length)):
            wanted = torch.full((outputs,), smoothing / (outputs - 1))
            wanted[batch.sequences[row, at]] = 1 - smoothing
            expected -= float((wanted * scores[row, at - 1]).sum())
            count += 1
    assert cost.item() == pytest.approx(expected / count, rel=1e-4)


def test_sequences_are_prompt_transcript_and_end(tmp_path):
    run = new_canary(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    rows[0] |= {"text": "das wasser war", "source_lang": "en-US", "target_lang": "de", "pnc": "no"}
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run(run.recipe, tmp_path, CPU)
    clip = run.examples.takes[0].clip

    tokens, sequence = labels_of(clip, clip.text, run.vocabulary)

    pieces = [run.vocabulary.tokenizer.pieces[label] for label in sequence]
    assert clip.prompt == Prompt("en", "de", punctuation=False)
    assert pieces[:9] == [
        "<|startofcontext|>",
        "<|startoftranscript|>",
        "<|emo:undefined|>",
        "<|en|>",
        "<|de|>",
        "<|nopnc|>",
        "<|noitn|>",
        "<|notimestamp|>",
        "<|nodiarize|>",
    ]
    assert pieces[-1] == "<|endoftext|>"
    assert run.vocabulary.tokenizer.join(tokens).strip() == "das wasser war"
    assert min(tokens) >= run.vocabulary.size - 16  # German's, the last of the vocabulary


def test_padding_changes_neither_cost_nor_gradient(tmp_path):
    run = new_canary(tmp_path)
    run.network.train()
    batch = first_batch(run)

    assert_padding_is_free(
        run,
        batch,
        waveforms=pad(batch.waveforms, (0, 8000), value=0.3),
        masked_frames=pad(batch.masked_frames, (0, 50)),
        sequences=pad(batch.sequences, (0, 5), value=3),
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_loss_of_a_new_canary_falls_and_it_is_exported(tmp_path, precision):
    run = new_canary(tmp_path, steps=40, precision=precision, dev={"manifest": "manifest.jsonl", "every": 40})

    finish(run, word_errors=lambda text, _: (1, len(text.split())))
    run.export(tmp_path / "canary.nemo")

    lines = [line for line in log(run.folder) if "loss" in line]
    losses = [line["loss"] for line in lines]
    assert losses == [line["attention"] for line in lines]
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])
    assert read_checkpoint(tmp_path / "canary.nemo").config == run.config
    model = load_model(tmp_path / "canary.nemo")
    assert model.decoders == ("aed",)
    assert model.info()["languages"] == ["en", "de"]
    samples = run.examples.takes[0].samples(16_000)
    assert model.transcribe([samples], language="de")[0].tokens is not None


def test_a_language_that_the_model_does_not_have_is_refused(tmp_path):
    new_canary(tmp_path)
    path = tmp_path / "manifest.jsonl"
    path.write_text(path.read_text().replace('"text"', '"language": "fr", "text"'))

    with pytest.raises(ManifestError, match=r"does not speak 'fr'; it speaks en, de"):
        Run(read_recipe(tmp_path / "recipe.yaml"), tmp_path, CPU)


def test_a_transcript_longer_than_the_positions_is_reported_and_skipped(tmp_path):
    run = new_canary(tmp_path)
    path = tmp_path / "manifest.jsonl"
    path.write_text(path.read_text().replace("and then", "and then " * 40))
    run = Run(run.recipe, tmp_path, CPU)

    lines = finish(run)

    assert any("longer than the decoder's positions" in line for line in run.survey)
    assert len([line for line in lines if line.startswith("skipped: ") and "slt-1s.wav" in line]) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"languages": None, "vocabulary": "en.model"}, "a vocabulary with prompts"),
        ({"student": {"layers": 1, "width": 16, "heads": 2}}, "languages are for a student with an attention decoder"),
        ({"languages": [{"code": "english", "vocabulary": "en.model"}]}, "two letters"),
        ({"languages": [{"code": "en", "vocabulary": "manifest.jsonl"}]}, "not a SentencePiece model"),
    ],
)
def test_vocabularies_and_languages_that_do_not_fit_are_refused(tmp_path, changes, message):
    with pytest.raises(RecipeError, match=message):
        new_canary(tmp_path, **changes)


def test_a_canary_gives_its_vocabulary_to_a_new_student(tmp_path):
    run = new_canary(tmp_path, languages=None, vocabulary=str(CANARY))

    result = take_step(run, first_batch(run))

    golden = read_checkpoint(CANARY)
    assert run.vocabulary.tokenizer.pieces == golden.tokenizer.pieces
    assert run.config.prompts == golden.config.prompts
    assert result.losses["attention"] > 0
    vocabulary = read_vocabulary(CANARY)
    assert vocabulary.tokenizer.join(vocabulary.encode("the water", Prompt(language="en"))).strip() == "the water"
