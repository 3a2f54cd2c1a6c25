"""`steno transcribe` prints a line for each recording and goes on after a bad one."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import srt

import cli
from models.checkpoint import read_checkpoint
from models.text.tokenizers import CharacterTokenizer
from tests.service.serving import wait_for

HYBRID = "hybrid-tdt-ctc-bpe"
CANARY = "canary-small"


@pytest.fixture
def expected(golden):
    return json.loads((golden / HYBRID / "expected.json").read_text())["clips"]


@pytest.fixture
def transcribe(golden):
    return lambda *arguments: cli.main(["transcribe", "--model", str(golden / HYBRID / "model.nemo"), *arguments])


@pytest.fixture
def clips(golden):
    return sorted(str(path) for path in (golden / "clips").glob("*.wav"))


def name_of(path):
    return path.rsplit("/", 1)[-1].removesuffix(".wav")


def test_one_recording_gives_its_text_alone(transcribe, clips, expected, capsys):
    assert transcribe(clips[0]) == 0

    assert capsys.readouterr().out == expected[name_of(clips[0])]["alone"]["transducer"]["text"] + "\n"


def test_several_give_their_names_too_in_the_order_given(transcribe, clips, expected, capsys):
    paths = clips[::-1]

    assert transcribe("--batch-seconds", "5", *paths) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{path}\t{expected[name_of(path)]['alone']['transducer']['text']}" for path in paths]


ALIGNER = "fastconformer-ctc-bpe"


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (HYBRID, ["--decoder", "rnnt"], "no rnnt decoder; it has tdt, ctc"),
        (HYBRID, ["--no-punctuation"], "--no-punctuation: this model cannot leave out punctuation"),
        (HYBRID, ["--aligner", ALIGNER], "--aligner is for models with an attention decoder"),
        (HYBRID, ["--beam", "3"], "--beam is for models with an attention decoder"),
        (CANARY, ["--beam", "99"], "beam 99 is not between 1 and 32"),
        (CANARY, ["--language", "fr"], "--language: this model does not speak 'fr'; it speaks en, de"),
        (CANARY, ["--target-language", "fr"], "--target-language: this model does not speak 'fr'; it speaks en, de"),
        (CANARY, ["--language", "auto"], "--language auto needs --language-identifier"),
        ("jasper-small", ["--local-attention", "8"], "attention_context is for Conformers"),
        ("identifier-statistics", [], "EncDecSpeakerLabelModel transcribes nothing"),
    ],
)
def test_what_a_model_cannot_do_is_wrong_usage(golden, clips, capsys, model, options, message):
    options = [str(golden / ALIGNER / "model.nemo") if option == ALIGNER else option for option in options]

    assert cli.main(["transcribe", "--model", str(golden / model / "model.nemo"), *options, clips[0]]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--phrases", "none"], "--phrases: "),
        (["--subtitle-lines", "0"], "0 is not a whole number from 1 to 8"),
        (["--format", "srt,written"], "--format: 'written' is not one of txt, json, srt, vtt, tsv"),
    ],
)
def test_a_value_that_no_option_has_is_wrong_usage(options, message, capsys):
    with pytest.raises(SystemExit) as refusal:
        cli.main(["transcribe", *options, "a.wav"])

    assert refusal.value.code == 2
    assert message in capsys.readouterr().err


def test_an_attention_decoder_takes_an_aligner_and_a_beam(write, golden, clips, capsys):
    assert write("--aligner", str(golden / ALIGNER / "model.nemo"), "--format", "srt", clips[0]) == 0
    assert "-->" in capsys.readouterr().out
    assert write("--beam", "3", clips[0]) == 0
    assert capsys.readouterr().out.strip()


def test_json_lines_hold_the_whole_hypothesis(transcribe, clips, expected, capsys):
    assert transcribe("--format", "json", *clips) == 0

    for path, line in zip(clips, capsys.readouterr().out.splitlines(), strict=True):
        fields, record = json.loads(line), expected[name_of(path)]["alone"]
        assert fields["audio"] == path
        assert fields["duration"] == record["samples"] / 16000
        assert fields["tokens"] == record["transducer"]["tokens"]
        assert fields["frames"] == record["transducer"]["timestep"]
        assert fields["durations"] == record["transducer"]["durations"]
        assert len(fields["token_confidence"]) == len(fields["tokens"])
        assert [word["text"] for word in fields["words"]] == [
            word["word"] for word in record["transducer"]["word_timestamps"]
        ]


def test_a_hybrid_decodes_with_the_head_asked_for(transcribe, clips, expected, capsys):
    assert transcribe("--decoder", "ctc", clips[0]) == 0

    assert capsys.readouterr().out.strip() == expected[name_of(clips[0])]["alone"]["ctc"]["text"].strip()


@pytest.mark.slow
def test_a_phrase_comes_right_that_was_wrong(golden, tmp_path, capsys):
    clip, phrases = golden / "clips" / "awb-4s.wav", tmp_path / "phrases"
    phrases.write_text("Suitcase\n")

    for options in ((), ("--phrases", str(phrases))):
        assert cli.main(["transcribe", *options, str(clip)]) == 0

    without, with_phrases = capsys.readouterr().out.splitlines()
    assert "the blue suit case to" in without
    assert with_phrases == without.replace("suit case", "suitcase")


@pytest.fixture
def write(golden):
    return lambda *arguments: cli.main(["transcribe", "--model", str(golden / CANARY / "model.nemo"), *arguments])


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ((), "en-en-pnc"),
        (("--no-punctuation",), "en-en-nopnc"),
        (("--language", "en", "--target-language", "de"), "en-de-pnc"),
        (("--timestamps",), "en-en-timestamps"),
    ],
)
def test_options_are_a_prompt_for_a_model_that_takes_one(write, clips, golden, capsys, options, prompt):
    clip = next(path for path in clips if name_of(path) == "noise-2s")

    assert write("--format", "json", *options, clip) == 0

    fields = json.loads(capsys.readouterr().out)
    record = json.loads((golden / CANARY / "expected.json").read_text())["clips"]["noise-2s"]["alone"]["prompts"][
        prompt
    ]
    assert (fields["text"], fields["frames"]) == (record["text"], None)
    assert [word["start"] for word in fields["words"] if word["start"] is not None] == [
        word["start"] for word in record["word_timestamps"]
    ]


def test_a_bad_recording_is_named_and_the_others_still_go(transcribe, clips, tmp_path, capsys):
    page = tmp_path / "page.wav"
    page.write_text("<html>not found</html>")

    assert transcribe(clips[0], str(page), str(tmp_path / "none.wav"), clips[1]) == 1

    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()] == clips[:2]
    errors = captured.err.splitlines()
    assert errors[0].startswith(f"{page}: the file looks like text; supported: wav, flac, ")
    assert errors[1:] == [f"{tmp_path / 'none.wav'}: No such file or directory"]


def test_the_longest_audio_is_an_option(transcribe, clips, capsys):
    assert transcribe("--max-seconds", "0.5", *clips) == 1

    captured = capsys.readouterr()
    assert [name_of(line.split("\t")[0]) for line in captured.out.splitlines()] == ["espeak-300ms"]
    assert captured.err.count("longer than 0.5 s") == len(clips) - 1


@pytest.mark.slow
def test_a_process_exits_with_the_status_and_shows_no_progress_to_a_pipe(golden, clips, tmp_path):
    command = [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "transcribe"]
    command += ["--model", str(golden / HYBRID / "model.nemo"), "--device", "cpu", clips[0], str(tmp_path / "none.wav")]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stdout.startswith(clips[0] + "\t")
    assert done.stderr == f"{tmp_path / 'none.wav'}: No such file or directory\n"


def test_a_name_that_is_no_text_is_written_all_the_same(transcribe, clips, tmp_path, capsys):
    path = tmp_path / os.fsdecode(b"caf\xe9.wav")
    shutil.copyfile(clips[0], path)

    assert transcribe(str(path), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["audio"] == str(tmp_path / r"caf\udce9.wav")


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_transcript_has_a_name_that_is_text(transcribe, clips, tmp_path, capsys, is_folder):
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / os.fsdecode(b"caf\xe9.wav")
    shutil.copyfile(clips[0], path)
    command = (str(folder if is_folder else path), "--format", "srt", "--output-dir", str(tmp_path / "out"))

    assert transcribe(*command) == 0
    assert os.listdir(os.fsencode(tmp_path / "out")) == [b"caf_e9.srt"]

    capsys.readouterr()
    assert transcribe(*command) == 0
    assert capsys.readouterr().err == "0 written, 1 skipped, 0 failed\n"


@pytest.mark.slow
def test_a_pipe_is_read_once(golden, clips, expected):
    command = [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "transcribe"]
    command += ["--model", str(golden / HYBRID / "model.nemo"), "--device", "cpu", "-", "-"]
    with Path(clips[0]).open("rb") as clip:
        done = subprocess.run(command, stdin=clip, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected[name_of(clips[0])]["alone"]["transducer"]["text"] + "\n"


def test_the_size_of_subtitles_is_an_option(transcribe, clips, capsys):
    clip = next(path for path in clips if name_of(path) == "slt-12s")
    shown = {}
    for lines in ("1", "2"):
        assert transcribe("--format", "srt", "--subtitle-characters", "16", "--subtitle-lines", lines, clip) == 0
        shown[lines] = [cue.content.splitlines() for cue in srt.parse(capsys.readouterr().out)]

    assert len(shown["1"]) > len(shown["2"]) > 0
    assert {len(cue) for cue in shown["1"]} == {1}
    assert all(len(line) <= 16 or " " not in line for cue in shown["2"] for line in cue)


def test_canary_is_asked_for_times_if_the_format_needs_them(write, clips, capsys):
    clip = next(path for path in clips if name_of(path) == "noise-2s")

    assert write("--format", "srt", clip) == 0
    assert " --> " in capsys.readouterr().out


@pytest.fixture
def archive(clips, tmp_path):
    """A folder of recordings, some in subfolders, and a file that is not audio."""
    folder = tmp_path / "talks"
    (folder / "deep" / "er").mkdir(parents=True)
    for path, place in zip(clips, ("a.wav", "deep/b.wav", "deep/er/c.wav"), strict=False):
        shutil.copy(path, folder / place)
    (folder / "notes.txt").write_text("no recording")
    return folder


def written(folder) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_goes_into_a_folder_and_goes_on_where_it_was(transcribe, archive, clips, expected, tmp_path, capsys):
    out = tmp_path / "out"
    asked = ("--format", "txt,json", "--output-dir", str(out), str(archive))
    assert transcribe(*asked) == 0

    texts = [expected[name_of(path)]["alone"]["transducer"]["text"] for path in clips[:3]]
    first = written(out)
    assert set(first) == {f"{place}.{form}" for place in ("a", "deep/b", "deep/er/c") for form in ("txt", "json")}
    assert [first[f"{place}.txt"] for place in ("a", "deep/b", "deep/er/c")] == [text + "\n" for text in texts]
    assert json.loads(first["deep/b.json"])["audio"] == str(archive / "deep" / "b.wav")
    assert "3 written, 0 skipped, 0 failed" in capsys.readouterr().err

    (out / "deep" / "b.json").unlink()
    (out / "a.txt").write_text("corrected by hand")
    assert transcribe(*asked) == 0
    assert "1 written, 2 skipped, 0 failed" in capsys.readouterr().err
    assert set(written(out)) == set(first)
    assert written(out)["a.txt"] == "corrected by hand"
    assert transcribe(*asked, "--overwrite") == 0
    assert written(out)["a.txt"] == first["a.txt"]


def test_no_model_is_loaded_if_all_transcripts_exist(archive, tmp_path, capsys):
    out = tmp_path / "out"
    for name in ("a", "deep/b", "deep/er/c"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.srt").touch()

    asked = ["transcribe", "--model", "/nowhere.nemo", "--format", "srt", "--output-dir", str(out), str(archive)]
    assert cli.main(asked) == 0
    assert "0 written, 3 skipped, 0 failed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_stopped_leaves_whole_files_only(transcribe, golden, archive, tmp_path):
    out = tmp_path / "out"
    for number in range(60):
        shutil.copy(archive / "a.wav", archive / f"more-{number:02}.wav")
    command = [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "transcribe", str(archive)]
    command += ["--model", str(golden / HYBRID / "model.nemo"), "--device", "cpu", "--batch-seconds", "2"]
    process = subprocess.Popen([*command, "--output-dir", str(out)], stderr=subprocess.PIPE)
    wait_for(lambda: out.exists() and len(list(out.glob("more-*.txt"))) > 2)
    process.kill()
    process.communicate()

    there = written(out)
    assert {there[name] for name in there if name.startswith("more-") and name.endswith(".txt")} == {there["a.txt"]}
    assert transcribe("--output-dir", str(out), str(archive)) == 0
    assert len(list(out.rglob("*.txt"))) == 63


def test_a_transcript_whose_name_would_be_too_long_fails_alone(transcribe, clips, tmp_path, capsys):
    longest = "ä" * 125  # 255 bytes with .json
    long = longest + "a"
    paths = [str(tmp_path / f"{name}.wav") for name in (long, longest)]
    for path in paths:
        shutil.copy(clips[0], path)

    assert transcribe("--format", "json,txt", "--output-dir", str(tmp_path / "out"), *paths) == 1

    assert set(written(tmp_path / "out")) == {f"{longest}.json", f"{longest}.txt"}
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == f"{paths[0]}: {tmp_path / 'out' / long}.json: File name too long"
    assert last == "1 written, 0 skipped, 1 failed"


def test_two_of_one_name_keep_their_whole_names(transcribe, clips, tmp_path):
    (tmp_path / "x").mkdir()
    for place in ("x/a.wav", "x/a.wave", "x/b.wav"):
        shutil.copy(clips[0], tmp_path / place)
    assert (
        transcribe("--output-dir", str(tmp_path / "out"), *(str(tmp_path / "x" / n) for n in ("a.wav", "a.wave"))) == 0
    )

    assert set(written(tmp_path / "out")) == {"a.wav.txt", "a.wave.txt"}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--format", "srt", "a.wav", "b.wav"), "need --output-dir"),
        (("--format", "srt,vtt", "a.wav"), "need --output-dir"),
        (("--multichannel", "a.wav", "b.wav"), "need --output-dir"),
        (("--output-dir", "out", "x/a.wav", "y/a.wav"), "two recordings would be written to out/a.wav.txt"),
        (("--overwrite", "a.wav"), "--overwrite is for --output-dir"),
        (
            ("--subtitle-lines", "1", "--format", "tsv,txt", "--output-dir", "out", "a.wav"),
            "is for --format srt or vtt",
        ),
        (("{empty}",), "no recordings"),
        (("",), "is empty"),
    ],
)
def test_contradictory_options_are_wrong_usage(arguments, fault, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    arguments = [argument.replace("{empty}", str(tmp_path / "empty")) for argument in arguments]

    assert cli.main(["transcribe", *arguments]) == 2
    assert fault in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_said_before_a_model_is_loaded(clips, tmp_path, capsys):
    (tmp_path / "out").write_text("a file")

    assert cli.main(["transcribe", "--model", "none.nemo", "--output-dir", str(tmp_path / "out"), clips[0]]) == 2
    assert capsys.readouterr().err == f"steno: {tmp_path / 'out'}: File exists\n"


def test_a_place_that_cannot_be_written_to_ends_the_run(transcribe, clips, tmp_path, capsys):
    place = tmp_path / f"{name_of(clips[0])}.txt"
    place.mkdir()

    assert transcribe("--overwrite", "--output-dir", str(tmp_path), clips[0]) == 2
    assert capsys.readouterr().err == f"steno: {place}: Is a directory\n"


@pytest.fixture
def call(clips, tmp_path):
    """A recording of three channels, the last of them silent, and the first two as recordings of their own."""
    samples = [
        soundfile.read(path, frames=20_000, start=8_000)[0] for path in clips if name_of(path) in ("awb-4s", "rms-6s")
    ]
    paths = [tmp_path / name for name in ("call.wav", "one.wav", "two.wav")]
    channels = np.stack([*samples, np.zeros(20_000)], axis=1)
    for path, recorded in zip(paths, [channels, *samples], strict=True):
        soundfile.write(path, recorded, 16_000, subtype="FLOAT")
    return [str(path) for path in paths]


def test_channels_are_transcribed_as_if_each_were_a_recording(transcribe, call, capsys):
    assert transcribe("--format", "json", "--multichannel", call[0]) == 0
    assert transcribe("--format", "json", *call[1:]) == 0

    together, *alone = map(json.loads, capsys.readouterr().out.splitlines())
    assert [channel["channel"] for channel in together["channels"]] == [1, 2, 3]
    assert [channel["text"] for channel in together["channels"]] == [one["text"] for one in alone] + [""]
    assert [channel["words"] for channel in together["channels"][:2]] == [one["words"] for one in alone]


@pytest.fixture
def told(golden):
    """Transcribes by the Canary model, with the language identifier."""
    flags = [f"--{name}={golden / model / 'model.nemo'}" for name, model in (("model", CANARY), IDENTIFIER)]
    return lambda *arguments: cli.main(["transcribe", *flags, *arguments])


IDENTIFIER = ("language-identifier", "identifier-statistics")


@pytest.mark.parametrize("language", [[], ["--language", "auto"], ["--language", "Auto"]])
def test_an_identifier_decides_on_the_language_which_json_names(told, clips, golden, capsys, language):
    assert told("--format", "json", *language, *clips) == 0

    expected = json.loads((golden / IDENTIFIER[1] / "expected.json").read_text())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        facts = expected["clips"][name_of(line["audio"])]
        probabilities = dict(zip(expected["labels"], facts["probabilities"], strict=True))
        best = max(("de", "en"), key=probabilities.get)
        assert (line["language"], line["language_probability"]) == (best, pytest.approx(probabilities[best], abs=1e-4))
    assert len({line["language"] for line in lines}) == 2


@pytest.mark.parametrize("language", ["de", "deu", "German", "de-AT"])
def test_a_language_that_is_named_is_not_identified(told, clips, capsys, language):
    assert told("--format", "json", "--language", language, clips[0]) == 0

    assert "language" not in json.loads(capsys.readouterr().out)


def test_languages_that_may_be_spoken_narrow_the_choice(told, clips, capsys):
    assert told("--format", "json", "--languages", "de", *clips[:2]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["language"], line["language_probability"]) for line in lines] == [("de", 1.0)] * 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--languages", "fr"], "--languages: 'fr' is not one of de, en"),
        (["--language", "klingon"], "--language: this model does not speak 'klingon'; it speaks en, de"),
        (
            ["--languages", "de", "--language", "en"],
            "--languages is for --language-identifier and models of several scripts, without --language",
        ),
        (["--model", "bundled"], "--language-identifier is for models whose prompt names the language (Canary)"),
        (["--language-identifier", "bundled"], "EncDecSpeakerLabelModel, which language identifiers are"),
    ],
)
def test_options_of_an_identifier_that_do_not_fit_are_refused(told, clips, capsys, flags, message):
    assert told(*flags, clips[0]) == 2

    assert message in capsys.readouterr().err


def test_auto_is_accepted_for_a_model_without_prompts(transcribe, clips, expected, capsys):
    assert transcribe("--language", "auto", clips[0]) == 0

    assert capsys.readouterr().out == expected[name_of(clips[0])]["alone"]["transducer"]["text"] + "\n"


@pytest.mark.parametrize("language", ["de", "klingon"])
def test_a_language_that_cannot_be_checked_is_said_to_have_no_effect(transcribe, clips, expected, capsys, language):
    assert transcribe("--language", language, clips[0]) == 0

    out, err = capsys.readouterr()
    assert out == expected[name_of(clips[0])]["alone"]["transducer"]["text"] + "\n"
    assert err.startswith("--language has no effect: ")
    assert err.endswith("model.nemo does not say which languages it speaks\n")


def test_letters_are_those_of_the_language_where_the_model_has_several_scripts(
    transcribe, clips, expected, capsys, monkeypatch
):
    def several_scripts(path):
        checkpoint = read_checkpoint(path)
        count = len(checkpoint.tokenizer.pieces)
        return replace(checkpoint, tokenizer=CharacterTokenizer([*("aжω" * count)[:count]]))

    monkeypatch.setattr("models.loading.read_checkpoint", several_scripts)
    told = {}
    for flags in ([], ["--language", "el"], ["--languages", "el,uk"], ["--language", "ast"]):
        assert transcribe(*flags, *clips[:2]) == 0
        out, err = capsys.readouterr()
        told[" ".join(flags)] = out
        assert not err
    texts = {flags: [line.partition("\t")[2] for line in out.splitlines()] for flags, out in told.items()}
    letters = {flags: set("".join(lines)) & {*"aжω"} for flags, lines in texts.items()}

    assert letters == {"": {*"aжω"}, "--language el": {"ω"}, "--languages el,uk": {*"жω"}, "--language ast": {*"aжω"}}
