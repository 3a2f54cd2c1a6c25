"""The command starts fast, reports errors in one line, and exits as its help promises."""

import subprocess
import sys

import pytest

import cli


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])

    assert exit_.value.code == 0
    assert capsys.readouterr().out == "steno 0.1.0\n"


def test_help_lists_the_commands_and_the_exit_statuses(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])

    out = capsys.readouterr().out
    assert exit_.value.code == 0
    assert all(word in out for word in ("transcribe", "eval", "info", "serve", "exit status:", "130  interrupted"))


def test_help_needs_no_processor_affinity_which_macos_lacks(capsys, monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity")

    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])

    assert exit_.value.code == 0


def test_help_says_which_settings_of_the_service_are_unset(capsys):
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])

    out = " ".join(capsys.readouterr().out.split())
    assert "unset: open to all. (default: unset)" in out
    assert "(default: )" not in out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["transcribe", "--help"], ["eval", "--help"]])
def test_help_and_version_do_not_wait_for_heavy_packages(arguments):
    script = (
        "import contextlib, sys, cli\n"
        f"with contextlib.suppress(SystemExit): cli.main({arguments})\n"
        "print(sorted({'torch', 'numpy', 'soundfile', 'jiwer', 'pydantic', 'fastapi'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sing"],
        ["transcribe"],
        ["transcribe", "--model", "m.nemo"],
        ["transcribe", "a.wav", "--model", "m.nemo", "--batch-seconds", "0"],
        ["transcribe", "a.wav", "--model", "m.nemo", "--max-seconds", "nan"],
        ["transcribe", "a.wav", "--model", "m.nemo", "--decoder", "beam"],
        ["eval", "--model", "m.nemo"],
        ["info", "m.nemo", "n.nemo"],
    ],
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)

    assert exit_.value.code == 2
    assert "usage: steno" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["info"], ["transcribe", "a.wav", "--model"], ["eval", "x.jsonl", "--model"]])
def test_a_checkpoint_that_cannot_be_read_exits_with_2_and_one_line(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"audio": "a.wav", "text": "a"}\n')
    checkpoint = tmp_path / "broken.nemo"
    checkpoint.write_bytes(b"not an archive")

    for path in (checkpoint, tmp_path / "missing.nemo"):
        assert cli.main([*arguments, str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("steno: ")


def test_an_interrupt_exits_with_130(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.info.run", interrupt)

    assert cli.main(["info", "m.nemo"]) == 130


def test_serve_parses_its_own_flags(monkeypatch):
    seen = []
    monkeypatch.setattr("cli.serve.run", lambda arguments: seen.append(arguments) or 0)

    assert cli.main(["serve", "--model", "m.nemo", "--port", "9000"]) == 0
    assert seen == [["--model", "m.nemo", "--port", "9000"]]


@pytest.mark.parametrize("flag", [["--webhook-secret", "a secret of some length"], ["--webhook-secret=a-secret"]])
def test_a_secret_is_no_flag_of_serve(flag, capsys):
    with pytest.raises(SystemExit):
        cli.main(["serve", *flag])

    error = capsys.readouterr().err
    assert "STENO_WEBHOOK_SECRET" in error
    assert flag[-1] not in error.splitlines()[-1]


def test_no_flag_of_serve_stands_for_another_that_begins_like_it(capsys):
    with pytest.raises(SystemExit):
        cli.main(["serve", "--models", "a.nemo,b.nemo"])

    assert "unrecognized arguments: --models" in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_command_quietly(golden):
    script = "import sys, cli; sys.exit(cli.main(sys.argv[1:]))"
    model = golden / "fastconformer-ctc-bpe" / "model.nemo"

    with subprocess.Popen(
        [sys.executable, "-c", script, "info", str(model)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        error = process.stderr.read()

    assert process.returncode == 1
    assert error == b""
