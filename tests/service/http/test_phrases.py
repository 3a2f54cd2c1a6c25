"""Phrases of a request and of the service reach the model, from every kind of process, and wrong ones are refused."""

import re

import pytest
from openai import BadRequestError

from service.server import Server
from service.settings import Settings, SettingsError
from tests.service.http.test_api import error
from tests.service.http.test_jobs import finished
from tests.service.http.test_openai_client import client_of
from tests.service.serving import form, serving, tone, wav

SECOND = tone(16_000)


def heard(service, fields: list[tuple[str, str]] = ()) -> str:
    """The phrases that the stub engine has got."""
    parts = [("file", ("clip", wav(SECOND))), *((name, (None, value)) for name, value in fields)]
    answer = service.post(files=parts)
    assert answer.status_code == 200, answer.text
    return re.fullmatch(r"16000 -?\d+\.\d{3}(.*)", answer.json()["text"])[1]


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "workers"])
def service(request, tmp_path_factory):
    with serving(http_processes=request.param) as served:
        yield served


def test_phrases_and_keywords_are_one_list(service):
    given = [("phrases[]", "Ada, Countess"), ("keywords[]", "Steno"), ("phrases", '{"text": "AC/DC", "weight": 2}')]

    assert heard(service, given) == "Ada, Countess|AC/DC\t2|Steno"
    assert heard(service, [("phrases", "Ada\r\nSteno\t2\n\n")]) == "Ada|Steno\t2"
    assert heard(service) == ""
    assert heard(service, [("phrases[]", '{"text": "nobody", "weight": 0}')]) == ""


@pytest.mark.parametrize(
    ("phrases", "lines"),
    [
        (["Ada\tKing", "Steno"], None),
        (["Ada", "Steno"], "Ada|Steno"),
        ("Ada\nSteno\t2", "Ada|Steno\t2"),
        ([{"text": "Ada", "weight": 2}, {"weight": 1, "text": "Steno"}], "Ada\t2|Steno"),
        ([{"text": f"name {number}", "weight": 2} for number in range(1000)], "|name 999\t2"),
        ([{"text": "Ada"}, {"text": "Steno"}], "Ada|Steno"),
        (["Hopper", {"text": "Ada", "weight": 0.5}], "Hopper|Ada\t0.5"),
        ([{"text": "Ada", "weight": 2}, {"text": "Steno"}], None),  # sent without saying whose the weight is
    ],
)
@pytest.mark.parametrize("field", ["phrases", "keywords"])
def test_openais_client_sends_texts_and_objects(service, field, phrases, lines):
    with client_of(service) as client:
        asked = {"model": "whisper-1", "file": wav(SECOND), "extra_body": {field: phrases}}
        if lines:
            assert client.audio.transcriptions.create(**asked).text.endswith(lines)
        else:
            with pytest.raises(BadRequestError) as refused:
                client.audio.transcriptions.create(**asked)
            assert refused.value.param == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("phrases", "x" * 201),
        ("keywords", "x" * 201),
        ("phrases", '{"text": "loud", "weight": 11}'),
        ("phrases", '{"text": "loud", "wait": 1}'),
        ("phrases", "{"),
        ("phrases", "Ada\tloud"),
    ],
)
def test_a_wrong_phrase_is_refused_by_its_field(service, field, value):
    answer = service.post(**form(wav(SECOND), **{f"{field}[]": value}))

    assert answer.status_code == 400
    assert error(answer)["param"] == field
    assert error(answer)["code"] == "invalid_value"


def test_more_than_a_thousand_are_refused(service):
    answer = service.post(**form(wav(SECOND), **{"phrases[]": [f"name {number}" for number in range(1001)]}))

    assert (answer.status_code, error(answer)["param"]) == (400, "phrases")
    assert heard(service, [("phrases[]", f"name {number}") for number in range(1000)]).count("|") == 999


def test_the_services_own_list_is_read_again_when_it_changes(tmp_path):
    names = tmp_path / "names"
    names.write_text("Ada\n")

    def replace(content: bytes) -> None:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(names)

    with serving(phrases=names, jobs_folder=tmp_path / "jobs") as service:
        assert heard(service, [("phrases[]", "Steno")]) == "Steno|Ada"
        replace(b"Grace\t2\n")
        assert heard(service) == "Grace\t2"
        replace(b"\xff")
        assert heard(service) == "Grace\t2"


def test_a_wrong_file_stops_the_start(tmp_path):
    with pytest.raises(SettingsError, match=r"STENO_PHRASES \(--phrases\): .*names: No such file"):
        Server(Settings(phrases=tmp_path / "names"))


def test_a_job_has_its_phrases(tmp_path):
    with serving(jobs_folder=tmp_path) as service:
        job = service.client.post("/v1/audio/jobs", **form(wav(SECOND), **{"phrases[]": ["Ada", "Steno"]})).json()
        assert finished(service, job["id"])["status"] == "completed"
        result = service.client.get(f"/v1/audio/jobs/{job['id']}/result")

    assert result.json()["text"].endswith("Ada|Steno")
