"""`steno serve` with three families and the bundled model: each answer equals that of its model offline."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from models import load_model
from tests.models import golden_data
from tests.service.serving import form, steno_serve, wav

pytestmark = pytest.mark.slow

CLIP = "awb-4s"
FAMILIES = {"canary": "canary-small", "jasper": "jasper-small", "hybrid": "hybrid-tdt-ctc-bpe"}


@pytest.fixture(scope="module")
def checkpoints(golden):
    return {name: golden / folder / "model.nemo" for name, folder in FAMILIES.items()} | {"small": "bundled"}


@pytest.fixture(scope="module")
def models(checkpoints):
    return {name: load_model(path) for name, path in checkpoints.items()}


@pytest.fixture(scope="module")
def service(checkpoints, tmp_path_factory):
    entries = ",".join(f"{name}={path}" for name, path in checkpoints.items())
    with steno_serve(tmp_path_factory.mktemp("several") / "log", "--model", entries) as served:
        yield served


def post(service, path: str, **fields: str):
    return service.client.post(f"/v1/audio/{path}", **form(wav(golden_data.clip(CLIP)), **fields))


def test_requests_for_all_of_them_at_once_are_each_answered_by_their_own(service, models):
    asked = [
        ("transcriptions", {"model": "canary", "language": "en"}, {"language": "en"}),
        ("translations", {"model": "canary"}, {"language": "de", "target_language": "en"}),
        ("transcriptions", {"model": "jasper"}, {}),
        ("transcriptions", {"model": "small"}, {}),
        ("transcriptions", {"model": "hybrid"}, {}),
        ("transcriptions", {"model": "hybrid", "decoder": "ctc"}, {"decoder": "ctc"}),
    ] * 2
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda one: post(service, one[0], **one[1]), asked))

    for (_, fields, options), answer in zip(asked, answers, strict=True):
        (offline,) = models[fields["model"]].transcribe([golden_data.clip(CLIP)], **options)
        assert (answer.status_code, answer.json()["text"]) == (200, offline.text)
    assert len({answer.json()["text"] for answer in answers}) >= 5
