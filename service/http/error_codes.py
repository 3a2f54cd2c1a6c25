"""The table of error codes: the status of each, when a client gets it, and whether to try again (docs/api.md)."""

from enum import Enum, unique
from typing import NamedTuple


class Meaning(NamedTuple):
    """What a code means: its usual HTTP status; when a client gets it; whether it may pass."""

    status: int
    when: str
    is_temporary: bool = False


@unique
class ErrorCode(Enum):
    """A stable name of a fault; clients get it in lower case."""

    MALFORMED_REQUEST = Meaning(400, "not HTTP/1, without a Host or with two, or framed ambiguously")
    MALFORMED_BODY = Meaning(
        400,
        "the body is not a complete multipart form, not JSON, compressed, or of another media type than those accepted",
    )
    URL_NOT_ALLOWED = Meaning(
        400, "the URL, or one that it redirects to, is not on an allowed host, not https, or not at a public address"
    )
    URL_UNREACHABLE = Meaning(400, "the URL does not answer in time, or answers with another status than 200")
    MISSING_REQUIRED_PARAMETER = Meaning(400, "`file` or `url` is missing, or `language` for a translation")
    INVALID_VALUE = Meaning(400, "the value of the field in `param` is wrong")
    UNSUPPORTED_VALUE = Meaning(400, "the value of the field in `param` is right, but not for this model or service")
    UNSUPPORTED_FORMAT = Meaning(400, "not audio, or not a supported kind; channels or rate out of range")
    INVALID_AUDIO = Meaning(400, "nothing can be decoded, or samples are not numbers")
    DECODER_CRASHED = Meaning(400, "two processes that decode died of the file; it is refused for an hour")
    AUDIO_TOO_SHORT = Meaning(400, "the audio is under 0.1 s")
    AUDIO_TOO_LONG = Meaning(400, "the audio is over the limit")
    INVALID_REQUEST = Meaning(400, "any other error of HTTP, with its status")
    INVALID_API_KEY = Meaning(401, "the service has keys, and the request has none or a wrong one")
    JOBS_DISABLED = Meaning(403, "the service has no folder for jobs")
    MODEL_NOT_FOUND = Meaning(404, "no such model, or one that does not translate")
    NOT_FOUND = Meaning(404, "no such path")
    JOB_NOT_FOUND = Meaning(404, "no such job of this key")
    METHOD_NOT_ALLOWED = Meaning(405, "the path has no such method")
    REQUEST_TIMEOUT = Meaning(408, "the headers took too long, or the body stopped arriving")
    JOB_NOT_FINISHED = Meaning(409, "there is no result yet", is_temporary=True)
    FILE_TOO_LARGE = Meaning(413, "the body is over the limit")
    FIELDS_TOO_LARGE = Meaning(413, "the form without its file is over 256 KiB")
    URI_TOO_LONG = Meaning(414, "the address and the headers are over 64 KiB, the address alone over 32 KiB")
    HOST_NOT_ALLOWED = Meaning(421, "the request is for a host that is not this service's (`STENO_HOSTS`)")
    RATE_LIMIT_EXCEEDED = Meaning(
        429,
        "the key has reached its limit of requests under way, or of requests or audio in a minute",
        is_temporary=True,
    )
    HEAD_TOO_LARGE = Meaning(431, "the address and the headers are over 64 KiB, or there are over 256 headers")
    INTERNAL_ERROR = Meaning(500, "the server failed on this request")
    AUDIO_TOO_LONG_FOR_DEVICE = Meaning(500, "the utterance does not fit the device's memory, even alone")
    MODEL_LOAD_FAILED = Meaning(503, "a model on demand cannot be loaded now; the message says why", is_temporary=True)
    OVERLOADED = Meaning(
        503,
        "too much is under way, perhaps only for a recording of this length, or too many connections are open",
        is_temporary=True,
    )
    DRAINING = Meaning(503, "the service is shutting down, or stopped before this request was done", is_temporary=True)
    MODEL_LOADING = Meaning(503, "the model is not ready yet", is_temporary=True)
    DECODING_UNAVAILABLE = Meaning(503, "no process to decode the file can be started", is_temporary=True)
    DEADLINE_EXCEEDED = Meaning(503, "no transcript in time", is_temporary=True)
    ENGINE_LOST = Meaning(503, "two engines died under this request, or its model was lost")

    def __str__(self) -> str:
        """Return the code as clients get it."""
        return self.name.lower()
