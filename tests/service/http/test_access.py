import openai
import pytest

from service.engine.stub import SAMPLE_RATE
from service.http.access import digest
from service.settings import Settings, SettingsError
from tests.service.serving import form, serving, tone, wav

KEY, OTHER = "sk-steno-one", "sk-steno-two"
RECORDING = wav(tone(SAMPLE_RATE))


@pytest.fixture(scope="module")
def service():
    keys = (f"alice:{digest(KEY)}", f"bob:{digest(OTHER)}")
    with serving(api_keys=keys) as served:
        yield served


@pytest.mark.parametrize("key", [KEY, OTHER])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_every_key_opens_the_api(service, key, scheme):
    answer = service.post(**form(RECORDING), headers={"authorization": f"{scheme} {key}"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [None, "", KEY, "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY} x", f"Bearer {digest(KEY)}"],
)
def test_nothing_else_does(service, header):
    headers = {} if header is None else {"authorization": header}
    for answer in (service.post(**form(RECORDING), headers=headers), service.client.get("/v1/models", headers=headers)):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_and_metrics_need_no_key(service, path):
    assert service.client.get(path).status_code == 200


def test_openais_client_sees_an_authentication_error(service):
    url = f"http://127.0.0.1:{service.server.port}/v1"
    with (
        openai.DefaultHttpxClient(trust_env=False) as http,
        openai.OpenAI(api_key="wrong", base_url=url, http_client=http) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_a_key_in_the_place_of_its_digest_is_refused_without_being_repeated():
    with pytest.raises(SettingsError, match="entry 1 is not name:sha256") as refusal:
        Settings.read({"model": "m", "api_keys": f"alice:{KEY}"})

    assert KEY not in str(refusal.value)
