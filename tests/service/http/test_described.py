"""The service does what its OpenAPI document says, whatever is sent (schemathesis makes it up from the document)."""

import contextlib
from collections.abc import Callable

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import ignored_auth, positive_data_acceptance

from service.http.access import digest
from tests.service.serving import serving

KEY = "sk-steno-one"
# Made-up recordings are no audio and made-up models do not exist: what fits the document may still be refused.
# Keys are for test_access.py: this check would send ours again and call it none.
UNSAYABLE = [positive_data_acceptance, ignored_auth]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    keys = {"api_keys": f"me:{digest(KEY)}", "admin_keys": f"me:{digest(KEY)}"}
    with serving(**keys, jobs_folder=tmp_path_factory.mktemp("jobs")) as served:
        yield served


@pytest.fixture(scope="module")
def ask(service):
    """Send a case, check the answer against the document."""
    with requests.Session() as session:
        session.trust_env = False

        def send(case: schemathesis.Case) -> None:
            answer = case.call_and_validate(
                base_url=f"http://127.0.0.1:{service.server.port}",
                session=session,
                headers={"authorization": f"Bearer {KEY}"},
                excluded_checks=UNSAYABLE,
            )
            assert answer.status_code < 500
            assert answer.headers["x-request-id"]

        yield send


def check_all(service, ask: Callable[[schemathesis.Case], None], examples: int) -> None:
    document = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    operations = [result.ok() for result in document.get_all_operations()]
    assert len(operations) == 16
    for operation in operations:
        for mode in GenerationMode:

            @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def holds(case: schemathesis.Case) -> None:
                ask(case)

            with contextlib.suppress(Unsatisfiable):  # an operation without input cannot be asked wrongly
                holds()


def test_what_is_sent_is_answered_as_described(service, ask):
    check_all(service, ask, examples=10)


@pytest.mark.long
def test_a_thousand_of_each_are_answered_as_described(service, ask):
    check_all(service, ask, examples=1000)


def test_the_service_lives_and_holds_nothing_afterwards(service):
    assert service.client.get("/readyz").status_code == 200
    assert service.server.dispatcher.admission.requests == 0
    assert service.server.dispatcher.admission.stored_bytes == 0
