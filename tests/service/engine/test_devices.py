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
        ("cpu:3", [EngineDevice("cpu:0", "cpu", 2), EngineDevice("cpu:1", "cpu", 2), EngineDevice("cpu:2", "cpu", 2)]),
        ("cuda:1", [EngineDevice("cuda:1", "cuda:1")]),
        ("cuda:0, cuda:2", [EngineDevice("cuda:0", "cuda:0"), EngineDevice("cuda:2", "cuda:2")]),
        ("cuda", [EngineDevice("cuda:0", "cuda:0"), EngineDevice("cuda:1", "cuda:1")]),
    ],
)
def test_each_device_has_an_engine(devices, expected):
    check_devices(devices)

    assert engine_devices(devices, None, cores=6, gpus=2) == expected


def test_one_gpu_or_none_is_the_engines_to_find():
    assert (
        engine_devices("cuda", None, cores=6, gpus=1)
        == engine_devices("cuda", None, cores=6, gpus=0)
        == [EngineDevice("cuda", "cuda")]
    )


def test_the_setting_of_threads_is_per_engine_and_each_has_at_least_one():
    assert [device.threads for device in engine_devices("cpu:2", 4, cores=6, gpus=0)] == [4, 4]
    assert [device.threads for device in engine_devices("cpu:4", None, cores=2, gpus=0)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "devices", ["", ",", "gpu", "cuda:x", "cpu:0", "cuda:0,cuda:0", "cuda,cuda:1", "cpu,cuda:0", "auto,cpu", "auto:1"]
)
def test_wrong_devices_are_refused(devices):
    with pytest.raises(SettingsError, match="STENO_DEVICE"):
        Settings.read({"device": devices})


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_without_a_driver_no_gpu_is_counted():
    assert count_gpus() == 0
