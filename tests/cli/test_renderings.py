"""What `steno transcribe` writes in each format, byte for byte."""

import argparse
import hashlib
import itertools

import pytest

import cli.transcribe
from bulk.file_transcripts import Options, Transcribed
from cli.transcribe import FORMATS
from transcripts.spoken_language import Spoken
from transcripts.transcript import Transcript, Word


def heard(begin: float, *texts: str, spoken: Spoken | None = None) -> Transcribed:
    words = [
        Word(text, begin + place, begin + place + 0.75, 0.5, (place, place + 1)) for place, text in enumerate(texts)
    ]
    return Transcribed(9.5, Transcript(" ".join(texts), list(range(len(texts))), [0.5] * len(texts), words), spoken)


ONE = heard(0.25, "Good", "morning.", "How", "are", "you", "today?", "Ärger", spoken=Spoken("en", 0.75))
SIDES = (ONE, heard(1.25, "Fine,", "thanks.", "And", "you?"), heard(0.0))
EXPECTED = {
    "one txt": "Good morning. How are you today? Ärger",
    "one tsv": "start\tend\ttext\n250\t2000\tGood morning.\n2250\t6000\tHow are you today?\n6250\t7000\tÄrger",
    "sides txt": "Channel 1: Good morning.\nChannel 2: Fine, thanks.\nChannel 1: How are you today?\n"
    "Channel 2: And you?\nChannel 1: Ärger",
    "sides tsv": "start\tend\tchannel\ttext\n250\t2000\t1\tGood morning.\n1250\t3000\t2\tFine, thanks.\n"
    "2250\t6000\t1\tHow are you today?\n3250\t5000\t2\tAnd you?\n6250\t7000\t1\tÄrger",
}
DIGESTS = {
    "one json": "37bf1ae776c3c314",
    "one srt 16": "813f7688ebbba404",
    "one srt None": "9ebc0df786a68221",
    "one vtt 16": "07271b5d255f06a0",
    "one vtt None": "85b4d0a8d0bf1f56",
    "sides json": "5dcd97427cfdea9d",
    "sides srt 16": "6699f269087b5d88",
    "sides srt None": "71b5e1f3c65b6c18",
    "sides vtt 16": "7d2ac1947367e338",
    "sides vtt None": "9ac64cc6c2d88e44",
}


@pytest.mark.parametrize(
    ("name", "wanted", "characters"), list(itertools.product(("one", "sides"), FORMATS, (None, 16)))
)
def test_formats_are_as_they_were(name, wanted, characters, monkeypatch, capsys):
    outcome = [ONE] if name == "one" else SIDES
    monkeypatch.setattr(cli.transcribe, "open_model", lambda args: None)
    monkeypatch.setattr(cli.transcribe, "transcription_options", lambda args: Options())
    monkeypatch.setattr(cli.transcribe, "transcribe_channels", lambda model, locations, options: iter([outcome]))
    flags = ["--multichannel"] if name == "sides" else []
    if wanted in ("srt", "vtt") and characters:
        flags += ["--subtitle-characters", str(characters)]
    parser = argparse.ArgumentParser()
    cli.transcribe.add_parser(parser.add_subparsers())

    args = parser.parse_args(["transcribe", *flags, "--format", wanted, __file__])
    assert args.run(args) == 0

    written = capsys.readouterr().out.replace(__file__, "NAME")
    key = f"{name} {wanted}"
    if key in EXPECTED:
        assert written == EXPECTED[key] + "\n"
    else:
        digest = hashlib.sha256(written.encode()).hexdigest()[:16]
        assert digest == DIGESTS[f"{key} {characters}" if wanted in ("srt", "vtt") else key]
