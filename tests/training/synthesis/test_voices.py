import shutil

import pytest

from training.synthesis.errors import SynthesisError
from training.synthesis.kokoro import Kokoro
from training.synthesis.voices import PROGRAMS, cast, voices_of

VOICES = voices_of([*PROGRAMS, Kokoro()])

ESPEAK = pytest.mark.program("espeak-ng")
FLITE = pytest.mark.program("flite")
TEXT2WAVE = pytest.mark.program("text2wave")


def speakers(*arguments):
    return [voice.speaker for voice in cast(PROGRAMS, *arguments).voices]


def test_speakers_have_different_names():
    names = [voice.speaker for voice in VOICES]

    assert len(set(names)) == len(names)


@ESPEAK
@FLITE
@TEXT2WAVE
def test_patterns_choose_voices_and_leave_them_out():
    assert speakers(["flite/*"]) == ["flite/slt", "flite/awb", "flite/rms", "flite/kal16", "flite/kal"]
    assert speakers(["flite/*", "festival/kal*"], ["*slt*", "flite/kal"]) == [
        "flite/awb",
        "flite/rms",
        "flite/kal16",
        "festival/kal_diphone",
    ]
    assert not any("slt" in speaker for speaker in speakers(None, ["*slt*"]))


@ESPEAK
def test_voices_that_a_model_does_not_understand_have_to_be_asked_for():
    caribbean = {voice.speaker for voice in VOICES if voice.speaker.startswith("espeak-ng/en-029")}

    assert not caribbean & set(speakers())
    assert set(speakers(["espeak-ng/en-029*"])) == caribbean


@ESPEAK
def test_every_voice_of_espeak_that_is_known_is_there():
    known = [voice.speaker for voice in VOICES if voice.synthesizer.name == "espeak-ng"]

    assert speakers(["espeak-ng/*"]) == known


@pytest.mark.parametrize("arguments", [(["flite/nobody"],), (None, ["flit/*"])])
def test_a_pattern_that_fits_no_voice_is_refused(arguments):
    with pytest.raises(SynthesisError, match=r"no voice is called .*; there are espeak-ng/en-us, flite/slt"):
        cast(PROGRAMS, *arguments)


def test_leaving_out_all_is_refused():
    with pytest.raises(SynthesisError, match="no voice is left"):
        cast(PROGRAMS, ["flite/*"], ["flite/*"])


@FLITE
def test_voices_of_programs_that_are_not_installed_are_absent(tmp_path, monkeypatch):
    (tmp_path / "flite").symlink_to(shutil.which("flite"))
    monkeypatch.setenv("PATH", str(tmp_path))

    found = cast(PROGRAMS, ["flite/rms", "festival/kal*", "espeak-ng/en-gb"])

    assert [voice.speaker for voice in found.voices] == ["flite/rms"]
    assert found.absent == ["espeak-ng", "festvox-kallpc16k"]


def test_without_a_synthesizer_the_packages_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SynthesisError) as error:
        cast(PROGRAMS)

    assert "espeak-ng, festvox-kallpc16k, festvox-kdlpc16k, festvox-us-slt-hts, flite" in str(error.value)


def test_another_program_of_the_same_name_has_no_voices(tmp_path, monkeypatch):
    fake = tmp_path / "flite"
    fake.write_text("#!/bin/sh\necho 'usage: slt'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SynthesisError, match="none of the voices is installed"):
        cast(PROGRAMS, ["flite/*"])
