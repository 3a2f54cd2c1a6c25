"""A model of several scripts writes those of the language that it is asked for, alone and in any batch."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.checkpoint import read_checkpoint
from models.model import Model
from models.text.script_masks import ScriptMasks
from models.text.tokenizers import CharacterTokenizer, Vocabulary
from tests.conftest import GOLDEN
from tests.models import golden_data as golden
from transcripts.alphabets import scripts_of_text
from transcripts.prompt import Prompt

# Letters of one script or of two, and what has no script.
PIECES = ("a", "я", "ω", "b", "ж", "аb", "c", "ψ", "1", ",")
DECODERS = [pair for pair in golden.DECODERS if pair[0].startswith(("fast", "hybrid"))]
PROMPTS = {
    None: Prompt(),
    "pl": Prompt("pl"),
    "uk": Prompt(written_languages=("uk",)),
    "el": Prompt(written_languages=("el",)),
    "pl or uk": Prompt(written_languages=("pl", "uk")),
    "a language without scripts": Prompt(written_languages=("ast",)),
}
ALLOWED = {
    None: {"LATIN", "CYRILLIC", "GREEK"},
    "pl": {"LATIN"},
    "uk": {"CYRILLIC"},
    "el": {"GREEK"},
    "pl or uk": {"LATIN", "CYRILLIC"},
    "a language without scripts": {"LATIN", "CYRILLIC", "GREEK"},
}


@cache
def model(name):
    """A golden model whose labels are letters of several scripts."""
    checkpoint = read_checkpoint(GOLDEN / name / "model.nemo")
    pieces = [PIECES[label % 8] for label in range(len(checkpoint.tokenizer.pieces))]
    pieces = [piece + "\N{COMBINING ACUTE ACCENT}" * (place // 8 % 2) for place, piece in enumerate(pieces)]
    changed = replace(checkpoint, tokenizer=CharacterTokenizer(pieces))
    return Model(changed, torch.device("cpu"), torch.float32)


def recognized(name, decoder, clips, prompts):
    batch = model(name).batch([golden.clip(clip) for clip in clips])
    return model(name).recognize_batch(*batch, decoder=decoder, prompts=prompts).transcripts()


@cache
def brute(name, decoder, clip, asked):
    """The clip alone, by a model whose output layer never says the labels that are left out."""
    network = model(name).network
    layer = network.ctc.projection if decoder == "ctc" else network.joint.output
    pieces = model(name).vocabulary.pieces
    left_out = torch.tensor([not scripts_of_text(piece) <= ALLOWED[asked] for piece in pieces])
    bias = layer.bias.clone()
    with torch.no_grad():
        layer.bias[: len(pieces)][left_out] = -torch.inf
        (alone,) = recognized(name, decoder, [clip], [Prompt()])
        layer.bias.copy_(bias)
    return alone


@pytest.mark.slow
@pytest.mark.facts("golden")
@pytest.mark.parametrize(("name", "decoder"), DECODERS)
@given(rows=st.lists(st.tuples(st.sampled_from(golden.CLIPS), st.sampled_from(list(PROMPTS))), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_it_writes_what_it_would_without_the_other_labels_alone_and_in_any_batch(name, decoder, rows):
    found = recognized(name, decoder, [clip for clip, _ in rows], [PROMPTS[asked] for _, asked in rows])

    for one, (clip, asked) in zip(found, rows, strict=True):
        alone = brute(name, decoder, clip, asked)
        assert (one.tokens, one.frames, one.text) == (alone.tokens, alone.frames, alone.text)
        assert one.token_confidence == pytest.approx(alone.token_confidence, abs=1e-3)
        assert scripts_of_text(one.text) <= ALLOWED[asked]


@pytest.mark.facts("golden")
@pytest.mark.parametrize(("name", "decoder"), DECODERS)
def test_a_mask_changes_what_these_models_write_and_no_mask_takes_the_way_without(name, decoder, monkeypatch):
    (clip, *_) = sorted(golden.CLIPS, key=lambda one: -len(golden.clip(one)))
    (plain,) = recognized(name, decoder, [clip], [Prompt()])
    other = next(asked for asked in ("el", "uk", "pl") if not scripts_of_text(plain.text) <= ALLOWED[asked])
    (masked,) = recognized(name, decoder, [clip], [PROMPTS[other]])
    assert scripts_of_text(masked.text) <= ALLOWED[other]

    given, found = model(name)._masks.of_batch([Prompt(), Prompt(written_languages=("pl", "uk", "el"))]), []
    monkeypatch.setattr(ScriptMasks, "_new_row", lambda *_: found.append(1))
    again = recognized(name, decoder, [clip], [Prompt(written_languages=("el", "sr"))])
    assert given is None
    assert not found
    assert again == [plain]


def test_a_batch_has_a_mask_for_each_set_of_scripts_and_the_first_allows_all():
    masks = ScriptMasks(Vocabulary(CharacterTokenizer(PIECES)), torch.device("cpu"))

    asked = [Prompt("pl"), Prompt(), Prompt("en"), Prompt(written_languages=("uk", "pl")), Prompt("sr")]
    table, kinds = masks.of_batch(asked)

    assert masks.scripts == {"LATIN", "CYRILLIC", "GREEK"}
    assert not table[0].any()
    assert not table[:, -1].any()  # the blank
    assert kinds.tolist() == [2, 0, 2, 1, 1]
    for kind, wanted in ((1, {"LATIN", "CYRILLIC"}), (2, {"LATIN"})):
        kept = {piece for piece, score in zip(PIECES, table[kind].tolist(), strict=False) if score == 0}
        assert kept == {piece for piece in PIECES if scripts_of_text(piece) <= wanted}
    assert masks.of_batch([Prompt()] * 3) is None
    assert masks.of_batch([]) is None
