"""`steno transcribe` prints a line for each recording and goes on after a bad one."""

import json
import subprocess
import sys

import pytest

import cli

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


def test_local_attention_reaches_the_model_which_knows_what_is_none(transcribe, clips, capsys):
    assert transcribe("--local-attention", "0", clips[0]) == 2

    assert "attention_context 0 is not a number of frames above 0" in capsys.readouterr().err


def test_a_beam_is_for_attention_decoders(transcribe, golden, clips, capsys):
    assert transcribe("--beam", "3", clips[0]) == 2
    assert "--beam is for models with an attention decoder" in capsys.readouterr().err

    canary = ["transcribe", "--model", str(golden / CANARY / "model.nemo"), clips[0]]
    assert cli.main([*canary, "--beam", "99"]) == 2
    assert "beam 99 is not between 1 and 32" in capsys.readouterr().err
    assert cli.main([*canary, "--beam", "3"]) == 0
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


def test_a_decoder_that_the_model_lacks_is_wrong_usage(transcribe, clips, capsys):
    assert transcribe("--decoder", "rnnt", clips[0]) == 2

    assert "no rnnt decoder; it has tdt, ctc" in capsys.readouterr().err


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


@pytest.mark.parametrize("options", [("--language", "fr"), ("--target-language", "fr")])
def test_a_language_that_the_model_lacks_is_wrong_usage(write, clips, capsys, options):
    assert write(*options, clips[0]) == 2

    assert f"{options[0]}: this model does not speak 'fr'; it speaks en, de" in capsys.readouterr().err


def test_a_bad_recording_is_named_and_the_others_still_go(transcribe, clips, tmp_path, capsys):
    page = tmp_path / "page.wav"
    page.write_text("<html>not found</html>")

    assert transcribe(clips[0], str(page), str(tmp_path / "none.wav"), str(tmp_path), clips[1]) == 1

    captured = capsys.readouterr()
    assert [line.split("\t")[0] for line in captured.out.splitlines()] == clips[:2]
    errors = captured.err.splitlines()
    assert errors[0].startswith(f"{page}: the file looks like HTML or XML; supported: wav, flac, ")
    assert errors[1:] == [f"{tmp_path / 'none.wav'}: No such file or directory", f"{tmp_path}: Is a directory"]


def test_the_longest_audio_is_an_option(transcribe, clips, capsys):
    assert transcribe("--max-seconds", "0.5", *clips) == 1

    captured = capsys.readouterr()
    assert [name_of(line.split("\t")[0]) for line in captured.out.splitlines()] == ["espeak-300ms"]
    assert captured.err.count("longer than 0.5 s") == len(clips) - 1


def test_a_process_exits_with_the_status_and_shows_no_progress_to_a_pipe(golden, clips, tmp_path):
    command = [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "transcribe"]
    command += ["--model", str(golden / HYBRID / "model.nemo"), "--device", "cpu", clips[0], str(tmp_path / "none.wav")]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stdout.startswith(clips[0] + "\t")
    assert done.stderr == f"{tmp_path / 'none.wav'}: No such file or directory\n"
