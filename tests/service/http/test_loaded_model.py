"""A loaded model's checks of a request."""

import pytest

from service.engine.protocol import ModelInfo, Ready
from service.http.errors import RequestError
from service.http.transcription.loaded_model import LoadedModel


def test_a_language_of_a_checkpoint_that_has_no_name_is_listed_by_its_code():
    info = ModelInfo("stub", "none", "float32", decoders=["aed"], languages=["en", "sh"])
    ready = Ready("stub", info, [], 16_000, 60.0, 1, 1.0, 0, 0.0, 0.0)

    with pytest.raises(RequestError, match=r"it speaks 'en' \(english\), 'sh'\.$"):
        LoadedModel(ServedStub(), ready, ()).check_language("de")


class ServedStub:
    id = "stub"
