"""The pieces of a job on Ray, without a cluster; and a whole job on two nodes whose processes are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bulk.entries import Entry
from bulk.errors import JobError
from bulk.file_transcripts import Options
from bulk.job import ShardWriter
from bulk.on_ray import ClusterDevice, TranscribingActor, cluster_devices
from bulk.plan import shards
from bulk.storage import Folder
from tests.audio.sound_files import encoded
from tests.bulk.test_file_transcripts import LengthModel
from tests.service.serving import wait_for


def node(name, alive=True, **resources):
    return {"NodeID": name, "Alive": alive, "Resources": resources}


def test_every_device_of_a_cluster_is_a_place():
    cpus, gpus = node("a", CPU=8.0, memory=1.0), node("b", CPU=16.0, GPU=2.0)
    head, dead = node("head", memory=1.0), node("c", alive=False, CPU=4.0, GPU=1.0)

    assert cluster_devices([head, cpus, gpus, dead], "auto") == [
        ClusterDevice("b", 0, 1, 8),
        ClusterDevice("b", 1, 1, 8),
    ]
    assert cluster_devices([head, cpus, gpus, dead], "cpu") == [
        ClusterDevice("a", 0, 0, 8),
        ClusterDevice("b", 0, 0, 16),
    ]
    assert cluster_devices([head, cpus, dead], "auto") == [ClusterDevice("a", 0, 0, 8)]
    assert cluster_devices([head, cpus, dead], "cuda") == []


def test_a_node_of_more_gpus_than_cores_has_an_actor_on_each_gpu():
    few, none = node("few", CPU=1.0, GPU=2.0), node("none", GPU=1.0)

    places = cluster_devices([few, none], "auto")

    assert [(place.node, place.number) for place in places] == [("few", 0), ("few", 1), ("none", 0)]
    for each in (few, none):
        taken = sum(place.cpus for place in places if place.node == each["NodeID"])
        assert taken <= each["Resources"].get("CPU", 0)


class Fragile(LengthModel):
    """Fails at a recording of 1,600 samples."""

    def transcribe(self, pcm, **options):
        if any(len(samples) == 1600 for samples in pcm):
            raise RuntimeError("device-side assert")
        return super().transcribe(pcm, **options)


@pytest.fixture
def planned(tmp_path):
    def plan(*lengths):
        for length in lengths:
            (tmp_path / f"{length}.wav").write_bytes(encoded(np.zeros(length), 8000))
        entries = [Entry(f"{length}.wav", str(tmp_path / f"{length}.wav"), length / 8000) for length in lengths]
        return shards(entries, seconds=0.2)

    return plan


def transcriber(folder, load=Fragile):
    return TranscribingActor(load, Options(batch_seconds=0.5), ShardWriter(Folder(str(folder)), "text"))


def test_an_actor_writes_each_shard_that_it_is_given(planned, tmp_path):
    lengths = list(range(2000, 4000, 80))
    actor = transcriber(tmp_path / "out")

    with ThreadPoolExecutor(2) as driver:
        tallies = list(driver.map(actor.transcribe, planned(*lengths)))

    rows = [json.loads(line) for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()]
    assert sorted(row["text"] for row in rows) == sorted(map(str, lengths))
    assert sum(tally.recordings for tally in tallies) == len(lengths)


def test_an_actor_whose_model_fails_reports_it_and_stops(planned, tmp_path):
    actor = transcriber(tmp_path / "out")
    good, bad = planned(2400, 1600)

    actor.transcribe(good)
    for shard in (bad, good):
        with pytest.raises(RuntimeError, match="device-side assert"):
            actor.transcribe(shard)


def test_an_actor_reports_what_fails_before_the_first_recording(planned, tmp_path):
    class OfNoDevice:
        @property
        def device(self):
            raise RuntimeError("the device is gone")

    actor = transcriber(tmp_path / "out", OfNoDevice)
    (shard,) = planned(2400)

    with pytest.raises(RuntimeError, match="the device is gone"):
        actor.transcribe(shard)


def test_a_model_that_cannot_be_loaded_and_a_disk_that_is_full_end_the_job(planned, tmp_path):
    def load():
        raise ValueError("no such checkpoint")

    (shard,) = planned(2400)
    with pytest.raises(JobError, match="no such checkpoint"):
        transcriber(tmp_path / "out", load).transcribe(shard)

    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JobError, match="file"):
        transcriber(tmp_path / "file").transcribe(shard)


@contextlib.contextmanager
def two_nodes():
    """A cluster of two nodes with a core each, on this machine; yields it and the second node."""
    pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
    try:
        yield cluster, cluster.add_node(**small)
    finally:
        cluster.shutdown()


def actors():
    """The ids of the processes of actors: of this cluster, which this process has started."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_actor = process.name.isdecimal() and (process / "cmdline").read_bytes().startswith(
                b"ray::TranscribingActor"
            )
            if is_actor and os.getpid() in ancestors(int(process.name)):
                found.append(int(process.name))
    return found


def ancestors(process):
    """The ids of the processes that led to one."""
    while process:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        yield process


def rows_in(folder):
    return [json.loads(line) for shard in folder.glob("*.jsonl") for line in shard.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_whose_parts_are_killed_writes_what_one_process_writes(golden, tmp_path):
    clips = sorted(path for path in (golden / "clips").glob("*.wav") if path.stat().st_size > 100_000)
    lines = []
    for number in range(240):
        (tmp_path / f"{number}.wav").symlink_to(clips[number % len(clips)].resolve())
        lines.append({"audio": f"{number}.wav", "duration": 20.0 + number})
    (tmp_path / "page.wav").write_text("<html>not found</html>")
    lines.append({"audio": "page.wav", "duration": 100.5})
    # Nobody writes into this pipe, so that the job is surely under way when the driver dies.
    pipe = tmp_path / "last.wav"
    os.mkfifo(pipe)
    lines.append({"audio": "last.wav", "duration": 0.5})
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out, single = tmp_path / "cluster", tmp_path / "single"
    steno = [sys.executable, "-c", "import sys, cli; sys.exit(cli.main())", "batch", str(manifest)]
    options = ["--model", str(golden / "hybrid-tdt-ctc-bpe" / "model.nemo"), "--dtype", "float32"]
    options += ["--batch-seconds", "20", "--shard-hours", "0.15"]
    on_ray = [*steno, str(out), *options, "--engine", "ray"]

    def shards_written(number):
        return lambda: len(list(out.glob("shard-*.jsonl"))) >= number

    with two_nodes() as (cluster, second):
        environment = os.environ | {"RAY_ADDRESS": cluster.address}
        driver = subprocess.Popen(on_ray, env=environment)
        try:
            wait_for(shards_written(4))
            os.kill(min(actors()), signal.SIGKILL)
            wait_for(shards_written(12))
            cluster.remove_node(second, allow_graceful=False)
            wait_for(shards_written(20))
        finally:
            driver.kill()
            driver.wait()
        wait_for(lambda: not actors())
        written = {path: path.stat().st_mtime_ns for path in out.glob("shard-*.jsonl")}
        pipe.unlink()
        pipe.symlink_to(clips[0].resolve())
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        resumed = subprocess.run(on_ray, env=environment, capture_output=True, text=True)
    alone = subprocess.run([*steno, str(single), *options], capture_output=True, text=True)

    assert (resumed.returncode, alone.returncode) == (1, 1), resumed.stderr + alone.stderr
    rows, expected = ({row["audio"]: row for row in rows_in(folder)} for folder in (out, single))
    assert len(rows_in(out)) == len(rows) == len(lines)
    assert {name: row["error"] for name, row in rows.items() if row["error"]} == {
        "page.wav": expected["page.wav"]["error"]
    }
    for name, row in rows.items():
        assert (row["text"], row["duration"]) == (expected[name]["text"], expected[name]["duration"])
        times = [
            [(word["text"], word["start"], word["end"]) for word in of[name]["words"] or ()] for of in (rows, expected)
        ]
        assert times[0] == times[1]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    summary = json.loads(resumed.stdout.splitlines()[-1])
    assert summary["recordings"] == len(lines)
    assert summary["run"]["recordings"] < len(lines)
    assert summary["run"]["devices"] in (2, 3)  # Ray may count the node that was killed for some seconds more.
