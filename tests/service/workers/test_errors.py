"""An error of the main process is the same answer from a worker."""

import pytest

from service.dispatch.errors import DispatchError, RefusedError
from service.http.error_codes import ErrorCode
from service.http.errors import RequestError, error_response
from service.workers.remote import error_of
from service.workers.session import failure_of


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")], ids=repr)
def test_a_shortage_of_the_main_process_is_503_from_a_worker_too(error):
    direct, passed_on = error_response(error), error_response(error_of(failure_of(error)))

    assert passed_on.status_code == 503
    assert (passed_on.body, passed_on.headers["retry-after"]) == (direct.body, direct.headers["retry-after"])


def test_an_unknown_error_of_the_main_process_is_500_from_a_worker_too():
    assert error_response(error_of(failure_of(RuntimeError("a bug")))).status_code == 500


@pytest.mark.parametrize(
    "error",
    [
        *(kind("why", 7) for kind in RefusedError.__subclasses__()),
        *(kind("why") for kind in DispatchError.__subclasses__() if kind is not RefusedError),
        RequestError("why", code=ErrorCode.RATE_LIMIT_EXCEEDED, retry_after=7, should_retry=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_of_a_request_is_the_same_answer(error):
    direct, passed_on = error_response(error), error_response(error_of(failure_of(error)))

    assert (direct.status_code, direct.body, direct.headers) == (
        passed_on.status_code,
        passed_on.body,
        passed_on.headers,
    )
