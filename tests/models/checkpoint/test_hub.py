"""Models are found on the hub by name, downloaded once, checked, and found again without a network."""

import copy
import logging
import socket

import pytest
from huggingface_hub import constants, snapshot_download

from models import checkpoint_path, load_model, model_id
from models.checkpoint.others import other_kind
from models.errors import (
    DownloadError,
    MissingCheckpointError,
    OtherPurposeError,
    UnreadableCheckpointError,
    UnsupportedValueError,
)
from tests.models.checkpoint.hub_stand_in import LONG, NAME, Repository
from tests.models.checkpoint.nemo_files import archive, golden_document, golden_members, put, with_config
from tests.models.checkpoint.transformers_files import folder


def refusal(name, kind):
    with pytest.raises(kind) as caught:
        checkpoint_path(name)
    assert str(caught.value).isprintable()
    assert name.partition("@")[0] in str(caught.value)
    return str(caught.value)


# What is downloaded


def test_a_repository_with_a_nemo_file_gives_that_file_alone(hub):
    path = checkpoint_path(NAME)

    assert path.read_bytes() == LONG
    assert hub.downloads() == [("small.nemo", None)]


def test_a_repository_of_transformers_gives_the_files_that_are_read(hub, tmp_path):
    files = {file.name: file.read_bytes() for file in folder(tmp_path / "saved").iterdir()}
    others = {"README.md": b"#", "pytorch_model.bin": b"code", "onnx/model.onnx": b"", "vocab.txt": b""}
    hub.repositories[NAME] = Repository({"main": files | others})

    model = load_model(NAME)

    assert model.decoders == ("tdt",)
    assert sorted(name for name, _ in hub.downloads()) == sorted(files)


def test_what_is_in_the_cache_is_not_downloaded_again(hub):
    assert checkpoint_path(NAME) == checkpoint_path(NAME)
    assert len(hub.downloads()) == 1


def test_a_revision_can_be_named(hub):
    hub.repositories[NAME].revisions["v1"] = {"small.nemo": LONG[::-1]}

    assert checkpoint_path(f"{NAME}@v1").read_bytes() == LONG[::-1]
    assert checkpoint_path(f"{NAME}@{hub.repositories[NAME].commit('v1')}").read_bytes() == LONG[::-1]
    assert checkpoint_path(NAME).read_bytes() == LONG


def test_of_several_nemo_files_the_one_with_the_name_of_the_repository_counts(hub):
    files = {"small-0.6b.nemo": LONG, "another.nemo": b"", "old/third.nemo": b""}
    hub.repositories[NAME] = Repository({"main": files})
    hub.repositories["owner/other"] = Repository({"main": files})

    assert checkpoint_path(NAME).read_bytes() == LONG
    assert "another.nemo" in refusal("owner/other", UnreadableCheckpointError)


def test_a_repository_without_a_checkpoint_is_refused(hub):
    hub.repositories[NAME] = Repository({"main": {"README.md": b"#"}})

    refusal(NAME, UnreadableCheckpointError)


# What is refused before it is downloaded

WEIGHTS = bytes(24 << 20)  # more than is downloaded without a look


def with_weights(path, **keys):
    """A checkpoint with large weights of no meaning, and other values at some dotted keys."""
    document = copy.deepcopy(golden_document())
    for key, value in keys.items():
        put(document, key.replace("__", "."), value)
    return archive(path, with_config({"model_weights.ckpt": WEIGHTS} | golden_members(), document) | {"w": WEIGHTS})


@pytest.mark.golden
def test_an_archive_of_another_kind_is_refused_by_its_configuration(hub, tmp_path):
    file = with_weights(tmp_path / "m.nemo", encoder__self_attention_model="another")
    hub.repositories[NAME] = Repository({"main": {"m.nemo": file.read_bytes()}})

    with pytest.raises(UnsupportedValueError, match=r"self_attention_model is 'another'"):
        checkpoint_path(NAME)

    assert hub.downloads() == []
    assert hub.sent < 1 << 20


@pytest.mark.golden
@pytest.mark.parametrize("sends_pieces", [True, False])
def test_an_archive_that_is_supported_is_downloaded_whole(hub, tmp_path, sends_pieces):
    file = with_weights(tmp_path / "m.nemo")
    hub.repositories[NAME] = Repository({"main": {"m.nemo": file.read_bytes()}}, whole=not sends_pieces)

    assert checkpoint_path(NAME).read_bytes() == file.read_bytes()
    assert [name for name, _ in hub.downloads()] == ["m.nemo"]


def test_shards_of_another_kind_are_refused_by_their_configuration(hub):
    shards = {f"model-0000{number}-of-00002.safetensors": WEIGHTS for number in (1, 2)}
    config = {"config.json": b'{"model_type": "another", "architectures": ["AnotherModel"]}'}
    hub.repositories[NAME] = Repository({"main": shards | config | {"preprocessor_config.json": b"{}"}})

    with pytest.raises(UnsupportedValueError, match="another"):
        checkpoint_path(NAME)

    assert {name for name, _ in hub.downloads()} == {"config.json", "preprocessor_config.json"}
    hub.stop()
    with pytest.raises(DownloadError):  # nothing is left in the cache that looks like a checkpoint
        checkpoint_path(NAME)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvidia/canary-qwen-2.5b", "a language model that takes speech"),
        ("nvidia/diar_sortformer_4spk-v1", "a diariser"),
        ("nvidia/speakerverification_en_titanet_large", "a network for voices"),
        ("someone/parakeet-tdt-0.6b-v3-redux", "a conversion for another program"),
        ("mlx-community/parakeet-tdt-0.6b-v3", "a conversion for another program"),
    ],
)
def test_a_model_whose_name_says_that_it_is_another_is_refused_without_a_request(hub, name, kind):
    message = refusal(name, OtherPurposeError)

    assert kind in message
    assert "serve" in message
    assert not hub.requests


@pytest.mark.parametrize(
    "name", ["ttslab/parakeet", "owner/canary-finetuned", "codecs/asr", "nvidia/parakeet-tdt-0.6b-v3"]
)
def test_a_part_of_a_word_in_a_name_refuses_nothing(name):
    assert other_kind(name) is None


# How it arrives


def test_a_download_goes_on_where_the_connection_was_cut(hub, caplog, capsys):
    hub.repositories[NAME].cuts = 1

    assert checkpoint_path(NAME).read_bytes() == LONG
    assert "resume" in caplog.text
    assert "resume" not in capsys.readouterr().err
    assert hub.downloads() == [("small.nemo", None), ("small.nemo", "bytes=5000-")]


def test_progress_of_a_download_is_reported_from_the_first_byte_to_the_last(hub):
    told = []

    checkpoint_path(NAME, lambda here, whole: told.append((here, whole)))

    assert told[-1] == (len(LONG), len(LONG))
    assert [here for here, _ in told] == sorted({here for here, _ in told})


@pytest.mark.parametrize("content", [LONG, b"small"], ids=["large", "small"])
def test_a_file_that_is_not_what_was_announced_is_refused_and_not_kept(hub, content):
    hub.repositories[NAME] = Repository({"main": {"small.nemo": content}}, damage=True)
    refusal(NAME, DownloadError)

    hub.repositories[NAME].damage = False

    assert checkpoint_path(NAME).read_bytes() == content


# Without a hub


def test_without_a_network_the_cache_is_used_and_the_log_says_so(hub, caplog):
    path = checkpoint_path(NAME)
    hub.stop()

    with caplog.at_level(logging.WARNING, "steno.hub"):
        assert checkpoint_path(NAME) == path
    assert "comes from the cache" in caplog.text


def test_a_hub_that_has_too_many_requests_is_as_one_that_cannot_be_reached(hub):
    path = checkpoint_path(NAME)
    hub.is_busy = True

    assert checkpoint_path(NAME) == path


def test_a_hub_that_never_answers_is_as_one_that_cannot_be_reached(hub, monkeypatch):
    before = checkpoint_path(NAME)
    monkeypatch.setattr("models.checkpoint.hub._ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")

        assert checkpoint_path(NAME) == before


def test_offline_by_setting_nothing_is_asked_for(hub, monkeypatch):
    path = checkpoint_path(NAME)
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert checkpoint_path(NAME) == path
    assert hub.requests == []


def test_without_a_network_and_a_cache_there_is_one_clear_error(hub):
    hub.stop()

    assert "cannot be reached" in refusal(NAME, DownloadError)


@pytest.mark.parametrize("kind", ["nemo", "transformers"])
def test_what_a_stopped_download_leaves_in_the_cache_is_no_checkpoint(hub, tmp_path, kind):
    files = {file.name: file.read_bytes() for file in folder(tmp_path / "saved").iterdir()}
    hub.repositories[NAME] = Repository({"main": {"small.nemo": LONG} if kind == "nemo" else files}, cuts=100)

    assert "HF_TOKEN" not in refusal(NAME, DownloadError)
    hub.stop()

    assert "not in the cache" in refusal(NAME, DownloadError)


def test_without_a_network_the_file_that_another_program_downloaded_is_enough(hub):
    """`hf download NAME --include '*.nemo'` is this call."""
    snapshot_download(NAME, allow_patterns="*.nemo")
    hub.stop()

    assert checkpoint_path(NAME).read_bytes() == LONG


# Refusals


@pytest.mark.parametrize(
    ("name", "faults", "kind", "told"),
    [
        ("owner/absent", {}, MissingCheckpointError, ["HF_TOKEN"]),
        (NAME, {"hidden": True}, MissingCheckpointError, ["HF_TOKEN"]),
        (f"{NAME}@v9", {}, MissingCheckpointError, ["v9"]),
        (NAME, {"refusal": (403, "Other")}, DownloadError, ["HF_TOKEN"]),
        (NAME, {"refusal": (403, "GatedRepo")}, DownloadError, ["terms", "HF_TOKEN"]),
    ],
    ids=["absent", "not shown", "no such revision", "refused", "gated"],
)
def test_what_the_hub_refuses_says_what_to_do(hub, name, faults, kind, told):
    hub.repositories[NAME] = Repository({"main": {"small.nemo": LONG}}, **faults)

    message = refusal(name, kind)

    assert all(part in message for part in told)


# What is a name


@pytest.mark.parametrize("path", ["model.nemo", "folder/model.nemo", "/a/b", "./a/b", "a/b/c", "a", "~/b", "../b"])
def test_a_path_is_no_name(hub, path):
    assert checkpoint_path(path).as_posix() == path.removeprefix("./")
    assert hub.requests == []


def test_a_path_that_exists_comes_before_a_name(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir(parents=True)

    assert checkpoint_path(NAME).as_posix() == NAME
    assert hub.requests == []


def test_a_folder_with_a_nemo_file_stands_for_it(tmp_path):
    (tmp_path / "any.nemo").touch()

    assert checkpoint_path(tmp_path) == tmp_path / "any.nemo"


def test_of_several_nemo_files_the_one_of_the_folders_name_is_found_from_within(tmp_path, monkeypatch):
    for name in ("any.nemo", f"{tmp_path.name}.nemo"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)

    assert checkpoint_path(".").name == f"{tmp_path.name}.nemo"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (NAME, NAME),
        (f"{NAME}@v1", NAME),
        ("bundled", "steno-bundled"),
        ("/folder/small-0.6b", "small-0.6b"),
        ("folder/small-0.6b.nemo", "small-0.6b"),
    ],
)
def test_a_model_is_called_by_its_name_on_the_hub_or_its_file(model, name):
    assert model_id(model) == name
