"""`steno serve` with a folder of real checkpoints on demand: loaded, unloaded and loaded again, they write the same."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from models import load_model
from tests.models import golden_data
from tests.service.serving import form, steno_serve, wait_for, wav

CLIP = "awb-4s"
FAMILIES = ("fastconformer-ctc-bpe", "hybrid-tdt-ctc-bpe")


@pytest.fixture
def folder(golden, tmp_path):
    """Two good checkpoints and one that ends early, as an operator would lay them out."""
    folder = tmp_path / "models"
    for name in FAMILIES:
        (folder / name).mkdir(parents=True)
        shutil.copy(golden / name / "model.nemo", folder / name)
    (folder / "broken.nemo").write_bytes((golden / "jasper-small" / "model.nemo").read_bytes()[:5000])
    return folder


def ask(service, model: str):
    return service.client.post("/v1/audio/transcriptions", **form(wav(golden_data.clip(CLIP)), model=model))


@pytest.mark.slow
def test_checkpoints_of_a_folder_come_go_and_come_again(golden, folder, tmp_path):
    clip = golden_data.clip(CLIP)
    heard = {name: load_model(golden / name / "model.nemo").transcribe([clip])[0].text for name in FAMILIES}
    flags = {
        "--model": f"jasper={golden / 'jasper-small'}",
        "--models-on-demand": str(folder),
        "--model-ttl": "0.5",
        "--max-utterance-seconds": "10",  # fewer shapes to warm up
    }
    with steno_serve(tmp_path / "log", *(part for flag in flags.items() for part in flag)) as service:
        listed = [card["id"] for card in service.client.get("/v1/models").json()["data"]]
        assert listed == ["jasper", "broken", *FAMILIES]

        for _ in range(2):
            with ThreadPoolExecutor(6) as pool:
                answers = list(pool.map(lambda model: (model, ask(service, model)), FAMILIES * 3))
            assert [(answer.status_code, answer.json()["text"]) for _, answer in answers] == [
                (200, heard[model]) for model, _ in answers
            ]
            wait_for(lambda: set(service.client.get("/readyz").json()["models"]) == {"jasper"})

        assert service.metric('steno_model_loads_total{result="ok"}') >= 4
        gone = service.events("model evicted")
        assert {event["reason"] for event in gone} == {"idle"}
        assert len(service.events("model unloaded")) == len(gone)
        refused = ask(service, "broken")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_load_failed")
        assert ask(service, "jasper").status_code == 200
