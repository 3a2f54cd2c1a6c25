from pathlib import Path

import pytest

from service.engine.devices import Place, check_devices, count_gpus, places
from service.settings import Settings, SettingsError


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("auto", [Place("auto", "auto")]),
        ("cpu", [Place("cpu", "cpu")]),
        ("cpu:1", [Place("cpu:1", "cpu")]),
        ("cpu:3", [Place("cpu:0", "cpu", 2), Place("cpu:1", "cpu", 2), Place("cpu:2", "cpu", 2)]),
        ("cuda:1", [Place("cuda:1", "cuda:1")]),
        ("cuda:0, cuda:2", [Place("cuda:0", "cuda:0"), Place("cuda:2", "cuda:2")]),
        ("cuda", [Place("cuda:0", "cuda:0"), Place("cuda:1", "cuda:1")]),
    ],
)
def test_each_device_has_a_place(devices, expected):
    check_devices(devices)

    assert places(devices, None, cores=6, gpus=2) == expected


def test_one_gpu_or_none_is_the_engines_to_find():
    assert places("cuda", None, cores=6, gpus=1) == places("cuda", None, cores=6, gpus=0) == [Place("cuda", "cuda")]


def test_threads_that_are_set_are_those_of_each_engine_and_nobody_has_none():
    assert [place.threads for place in places("cpu:2", 4, cores=6, gpus=0)] == [4, 4]
    assert [place.threads for place in places("cpu:4", None, cores=2, gpus=0)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "devices", ["", ",", "gpu", "cuda:x", "cpu:0", "cuda:0,cuda:0", "cuda,cuda:1", "cpu,cuda:0", "auto,cpu", "auto:1"]
)
def test_what_cannot_be_is_refused(devices):
    with pytest.raises(SettingsError, match="STENO_DEVICE"):
        Settings.read({"device": devices})


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_without_a_driver_no_gpu_is_counted():
    assert count_gpus() == 0
