from pathlib import Path

import pytest

from service.engine.devices import EngineDevice, check_devices, count_gpus, engine_devices
from service.settings import Settings, SettingsError


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("auto", [EngineDevice("auto", "auto")]),
        ("cpu", [EngineDevice("cpu", "cpu")]),
        ("cpu:1", [EngineDevice("cpu:1", "cpu")]),
        ("cpu:3", [EngineDevice(f"cpu:{index}", "cpu", 2, 6) for index in range(3)]),
        ("cuda:1", [EngineDevice("cuda:1", "cuda:1")]),
        ("cuda:0, cuda:2", [EngineDevice("cuda:0", "cuda:0"), EngineDevice("cuda:2", "cuda:2")]),
        ("cuda", [EngineDevice("cuda:0", "cuda:0"), EngineDevice("cuda:1", "cuda:1")]),
    ],
)
def test_each_device_has_an_engine(devices, expected):
    check_devices(devices, processors=6)

    assert engine_devices(devices, None, processors=6, gpus=2) == expected


def test_one_gpu_or_none_is_the_engines_to_find():
    assert (
        engine_devices("cuda", None, processors=6, gpus=1)
        == engine_devices("cuda", None, processors=6, gpus=0)
        == [EngineDevice("cuda", "cuda")]
    )


def test_the_setting_of_threads_is_per_engine_and_each_has_at_least_one():
    fixed = engine_devices("cpu:2", 4, processors=6, gpus=0)
    shared = engine_devices("cpu:4", None, processors=2, gpus=0)

    assert [(device.threads, device.shared_threads) for device in fixed] == [(4, 0)] * 2
    assert [(device.threads, device.shared_threads) for device in shared] == [(1, 2)] * 4


@pytest.mark.parametrize(("processors", "engines"), [(1, 1), (2, 2), (4, 4), (64, 4)])
def test_a_small_model_has_an_engine_for_each_processor_without_a_gpu(tmp_path, processors, engines):
    small = tmp_path / "small.nemo"
    small.write_bytes(b"weights")

    found = engine_devices("auto", None, processors, 0, ["bundled", str(small)])

    assert len(found) == engines
    assert {device.device for device in found} == {"cpu" if processors > 1 else "auto"}
    assert {device.shared_threads for device in found} == ({processors} if processors > 1 else {0})


@pytest.mark.parametrize(("megabytes", "engines"), [(200, 1), (1000, 1), (1500, 2), (4000, 4), (64_000, 4)])
def test_several_engines_need_memory(megabytes, engines):
    assert len(engine_devices("auto", None, 8, 0, ["bundled"], memory_bytes=megabytes << 20)) == engines


def test_models_that_are_large_or_elsewhere_have_one_engine(tmp_path):
    large = tmp_path / "large.nemo"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    one = [EngineDevice("auto", "auto")]

    for checkpoints in (["bundled", str(large)], ["nvidia/parakeet-tdt-0.6b-v3"], [str(tmp_path)]):
        assert engine_devices("auto", None, 8, 0, checkpoints) == one
    assert engine_devices("auto", None, 8, 1, ["bundled"]) == one  # there is a GPU
    assert engine_devices("auto", 2, 8, 0, ["bundled"]) == [EngineDevice("auto", "auto", 2)]


@pytest.mark.parametrize(
    "devices",
    ["", ",", "gpu", "cuda:x", "cpu:0", "cuda:0,cuda:0", "cuda,cuda:1", "cpu,cuda:0", "auto,cpu", "auto:1", "cpu:9999"],
)
def test_wrong_devices_are_refused(devices):
    with pytest.raises(SettingsError, match=r"^STENO_DEVICE \(--device\): (?!Value error)"):
        Settings.read({"device": devices})


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_without_a_driver_no_gpu_is_counted():
    assert count_gpus() == 0


def test_far_more_engines_than_processors_are_refused():
    check_devices("cpu:8", processors=2)
    with pytest.raises(ValueError, match="cpu:9 is too many engines; at most cpu:8, 4 for each processor"):
        check_devices("cpu:9", processors=2)
