"""An error of the main process is the same answer from a worker."""

import pytest

from service.http.errors import error_response
from service.workers.errors import error_of, failed


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")], ids=repr)
def test_a_shortage_of_the_main_process_is_503_from_a_worker_too(error):
    direct, passed_on = error_response(error), error_response(error_of(failed(1, error)))

    assert passed_on.status_code == 503
    assert (passed_on.body, passed_on.headers["retry-after"]) == (direct.body, direct.headers["retry-after"])


def test_an_unknown_error_of_the_main_process_is_500_from_a_worker_too():
    assert error_response(error_of(failed(1, RuntimeError("a bug")))).status_code == 500
