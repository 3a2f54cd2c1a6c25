import pytest

from models import model_id
from service.settings import _SERVICE_LINK, Settings, SettingsError

KUBERNETES = {
    "STENO_PORT": "tcp://10.0.0.1:8000",
    "STENO_SERVICE_HOST": "10.0.0.1",
    "STENO_SERVICE_PORT": "8000",
    "STENO_SERVICE_PORT_HTTP": "8000",
    "STENO_PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "STENO_PORT_8000_TCP_PROTO": "tcp",
    "STENO_PORT_8000_TCP_PORT": "8000",
    "STENO_PORT_8000_TCP_ADDR": "10.0.0.1",
    "STENO_METRICS_SERVICE_HOST": "10.0.0.2",
    "STENO_METRICS_SERVICE_PORT": "9090",
    "STENO_METRICS_PORT": "tcp://10.0.0.2:9090",
    "STENO_METRICS_PORT_9090_TCP_ADDR": "10.0.0.2",
    "STENO_MODEL_SERVICE_HOST": "10.0.0.3",
    "STENO_MODEL_PORT": "udp://10.0.0.3:53",
}


def test_variables_that_kubernetes_injects_for_services_named_steno_are_ignored(monkeypatch):
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STENO_MODEL", "m.nemo")

    settings = Settings.read()

    assert settings.port == 8000
    assert settings.model == ("m.nemo",)


def test_a_variable_sets_and_a_flag_wins(monkeypatch):
    monkeypatch.setenv("STENO_PORT", "9000")
    monkeypatch.setenv("STENO_MAX_REQUESTS", "7")

    settings = Settings.read({"port": "9001"})

    assert (settings.port, settings.max_requests) == (9001, 7)


DIGEST = "0" * 64


def test_a_file_sets_and_a_variable_wins(monkeypatch, tmp_path):
    (tmp_path / "steno_api_keys").write_text(f"one:{DIGEST},two:{DIGEST}\n")
    (tmp_path / "steno_max_requests").write_text("7")
    (tmp_path / "certificate").write_text("of somebody else")
    monkeypatch.setenv("STENO_MAX_REQUESTS", "8")

    settings = Settings.read(secrets=tmp_path)

    assert settings.api_keys == (f"one:{DIGEST}", f"two:{DIGEST}")
    assert settings.max_requests == 8


def test_a_misspelt_file_does_not_leave_the_api_open(tmp_path):
    (tmp_path / "steno_api_key").write_text(f"one:{DIGEST}")

    with pytest.raises(SettingsError, match="steno_api_key is not a setting; did you mean STENO_API_KEYS"):
        Settings.read(secrets=tmp_path)


@pytest.mark.parametrize("content", ["one:secret", b"\xff"])
def test_an_unreadable_file_does_not_leave_the_api_open(content, tmp_path):
    (tmp_path / "steno_api_keys").write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(SettingsError):
        Settings.read(secrets=tmp_path)


def test_an_unreadable_folder_is_an_error_of_the_settings(monkeypatch, tmp_path):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("pathlib.Path.iterdir", refuse)

    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.read(secrets=tmp_path)


def test_an_empty_file_is_an_empty_value(tmp_path):
    (tmp_path / "steno_api_keys").touch()

    assert Settings.read(secrets=tmp_path).api_keys == ()


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("STENO_MAX_UPLOAD_BYTE", "STENO_MAX_UPLOAD_BYTES"), ("STENO_PROT", "STENO_PORT"), ("STENO_XYZZY_Q", None)],
)
def test_a_misspelt_name_is_refused_with_a_suggestion(monkeypatch, name, suggestion):
    monkeypatch.setenv(name, "1")

    with pytest.raises(SettingsError, match=name) as refusal:
        Settings.read()

    assert ("did you mean" in str(refusal.value)) == (suggestion is not None)
    assert suggestion is None or suggestion in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STENO_PORT", "70000"),
        ("STENO_PORT", "http"),
        ("STENO_MAX_AUDIO_SECONDS", "-1"),
        ("STENO_MAX_AUDIO_SECONDS", "inf"),
        ("STENO_MAX_AUDIO_SECONDS", "nan"),
        ("STENO_MAX_REQUESTS", "0"),
        ("STENO_DTYPE", "float64"),
        ("STENO_LOCAL_ATTENTION", "0"),
    ],
)
def test_a_wrong_value_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(SettingsError, match=name):
        Settings.read()


def test_without_a_model_the_bundled_one_is_served_under_its_own_id():
    assert Settings.read().checkpoints == {model_id("bundled"): "bundled"} == {"steno-bundled": "bundled"}


@pytest.mark.parametrize("path", ["parakeet-0.6b.nemo", "/checkpoints/parakeet-0.6b.nemo", "./parakeet-0.6b.nemo"])
def test_a_checkpoints_id_is_its_file_name(path):
    assert Settings(model=path).checkpoints == {model_id(path): path} == {"parakeet-0.6b": path}


@pytest.mark.parametrize("revision", ["", "@main", "@refs/pr/1"])
def test_the_id_of_a_model_on_the_hub_is_its_name(revision):
    name = "nvidia/parakeet-tdt-0.6b-v2"

    assert Settings(model=name + revision).checkpoints == {model_id(name + revision): name + revision}
    assert model_id(name + revision) == name


def test_a_folders_id_is_its_name_even_where_the_hub_could_have_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "parakeet-0.6b").mkdir(parents=True)

    assert list(Settings(model="models/parakeet-0.6b").checkpoints) == [model_id("models/parakeet-0.6b")]
    assert model_id("models/parakeet-0.6b") == "parakeet-0.6b"


def test_several_models_are_comma_separated_and_may_have_ids(monkeypatch):
    monkeypatch.setenv("STENO_MODEL", "bundled, canary=/a/b.nemo,nvidia/x@main, acme/small=./x=1.nemo, /c/y=2.nemo")

    assert Settings.read().checkpoints == {
        "steno-bundled": "bundled",
        "canary": "/a/b.nemo",
        "nvidia/x": "nvidia/x@main",
        "acme/small": "./x=1.nemo",
        "y=2": "/c/y=2.nemo",
    }


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"model": "a/x.nemo,b/x.nemo"}, "two models are called 'x'"),
        ({"model": "x.nemo,x=bundled"}, "two models are called 'x'"),
        ({"model": "x.nemo,y.nemo", "languages": "en"}, "languages is for a single model"),
        ({"model": "/"}, "names no checkpoint"),
    ],
)
def test_models_with_ids_that_no_request_can_name_are_refused(flags, fault):
    with pytest.raises(SettingsError, match=fault):
        Settings.read(flags)


def test_the_last_bucket_is_the_longest_recording():
    assert Settings.read({"max_audio_seconds": "20"}).edges[-1] == 20.0


def test_steno_port_differs_from_kubernetes_variables_by_its_value():
    taken = {field for field in Settings.model_fields if _SERVICE_LINK.fullmatch(f"STENO_{field.upper()}")}

    assert taken == {"port"}


def test_long_pieces_need_local_attention(monkeypatch):
    monkeypatch.setenv("STENO_MAX_UTTERANCE_SECONDS", "600")

    with pytest.raises(SettingsError, match="local_attention"):
        Settings.read()

    assert Settings.read({"local_attention": "128"}).edges[-2:] == [512, 600]
