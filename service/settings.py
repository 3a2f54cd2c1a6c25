"""Every setting of the service, from flags, `STENO_` variables and files. Only this file reads the variables.

A flag has priority over a variable, and a variable over a file. A variable that begins with `STENO_` and is not a
setting is refused, because a misspelt limit would not hold. Variables that Kubernetes injects for Services named steno
or steno-* are ignored.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic_settings
from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from audio.segment.segmenter import DEFAULT_UTTERANCE_SECONDS, MIN_UTTERANCE_SECONDS
from models.device.resources import processors
from service.dispatch.admission import AdmissionLimits
from service.dispatch.batcher import bucket_edges
from service.engine.devices import check_devices
from service.jobs.webhook import check_secret
from service.keys import Key, KeyLimits
from service.loadable import Loadable, is_folder_of_models
from service.outbound import check_allowed
from transcripts.languages import language_code
from transcripts.spoken_language import IDENTIFIED_SECONDS

PREFIX = "STENO_"
# Where container engines mount secrets. A file has the variable's name in lower case: steno_api_keys.
SECRETS = Path("/run/secrets")

# https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
_SERVICE_LINK = re.compile(
    r"STENO_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
# An origin as browsers send it (RFC 6454): in lower case, without a path or a slash at the end.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._\[\]:-]+")
_MODEL_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[^@\s]+)?", re.ASCII)
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")

# Longest utterances in seconds. Global attention takes time in the square of the length. Local attention takes memory
# in proportion: parakeet-tdt-0.6b's first layer outputs 12 GB for an hour (256 x 180,000 x 64, float32).
_LONGEST_GLOBAL = 120.0
_LONGEST_UTTERANCE = 3600.0


def _device(value: str) -> str:
    check_devices(value, processors())
    return value


def _origin(value: str) -> str:
    if value != "*" and not _ORIGIN.fullmatch(value):
        raise ValueError(f"{value!r} is not an origin, such as https://app.example or http://localhost:3000")
    return value


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]
_Language = Annotated[str, AfterValidator(language_code)]
_Origin = Annotated[str, AfterValidator(_origin)]
_Allowed = Annotated[str, AfterValidator(check_allowed)]


class SettingsError(ValueError):
    """A setting is missing, unknown or wrong; the message is one line per fault."""


class _Environment(EnvSettingsSource):
    """The environment without variables of Kubernetes that have a setting's name (STENO_PORT=tcp://...)."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        if isinstance(value, str) and _LINK_VALUE.match(value):
            return None, key, is_complex
        return value, key, is_complex


class Settings(BaseSettings):
    """How the service runs; each field is the flag `--field-name` and the variable `STENO_FIELD_NAME`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    model: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Checkpoints to serve, comma-separated: a .nemo file, a folder that transformers wrote, a name on "
        "the hub (owner/name or owner/name@revision), or bundled: the one that ships with Steno, which is the default. "
        "ID=CHECKPOINT gives another id.",
    )
    models_on_demand: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Further models that a request may load, comma-separated: checkpoints as above, and folders of "
        "them; unset: none.",
    )
    model_ttl: Seconds = Field(
        default=600.0, description="Seconds without a request after which a model on demand is unloaded."
    )
    model_aliases: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe"),
        description="Further names under which clients may ask for the first model, comma-separated.",
    )
    languages: Annotated[tuple[_Language, ...], NoDecode] = Field(
        default=(),
        description="Languages of a single model, comma-separated (en,de); requests for others are refused. Unset: "
        "those that the checkpoint names, or any if it names none.",
    )
    max_weight_bytes: Count | None = Field(
        default=None,
        description="Device memory for the weights of all models; to stay within it, models on demand are unloaded. "
        "Unset: what the device has.",
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        default="auto",
        description="auto: the first GPU, else the CPU, with an engine for each processor (at most 4) if the models "
        "are as small as the bundled one, or else one engine; cuda: every GPU, each with an engine of its own; "
        "cuda:0,cuda:1: some of them; cpu: one engine; cpu:N: N engines that share the processors, at most four for "
        "each (docs/capacity.md).",
    )
    dtype: Literal["auto", "float32", "tf32", "bfloat16", "float16", "int8"] = Field(
        default="auto",
        description="auto: bfloat16 on GPUs since Ampere and on CPUs that are fast in it, float16 on Volta and Turing "
        "(V100, T4), else float32. tf32 is for GPUs since Ampere, int8 for Conformers on a CPU.",
    )
    fast_paths: str = Field(
        default="auto",
        description="What a GPU computes by kernels, graphs and loops of its own, each after a comparison with plain "
        "operations: auto, none, or names with commas between them, as steno_fast_path has them.",
    )
    threads: Count | None = Field(
        default=None,
        description="CPU threads per batch; unset: as many as the CPU limit allows; engines that compute at the same "
        "time share these.",
    )
    local_attention: Annotated[str, Field(pattern=r"^([1-9][0-9]*|-?[0-9]+,-?[0-9]+)$")] | None = Field(
        default=None,
        description="Encoder frames on each side that Conformers attend to, so that long pieces take memory in "
        "proportion to their length, or, of a model for streams, one of its pairs such as 70,6; unset: as they were "
        "trained.",
    )
    beam: Annotated[int, Field(ge=1, le=32)] | None = Field(
        default=None,
        description="Hypotheses that the beam search of an attention decoder (Canary) keeps of each utterance; unset: "
        "what the checkpoint says.",
    )
    language_model: str | None = Field(
        default=None,
        description="Language model of a CTC decoder or a transducer: an ARPA file of words (KenLM), or what `steno "
        "train language-model` made; none: without; unset: the bundled model's own, none for others.",
    )
    aligner: str | None = Field(
        default=None,
        description="Checkpoint with a CTC decoder that finds the times of words for an attention decoder (Canary); "
        "unset: that of the checkpoint, if it has one.",
    )
    language_identifier: str | None = Field(
        default=None,
        description="Checkpoint that finds the spoken language where a request does not name it, for models that "
        "need it (Canary): NVIDIA's AmberNet (langid_ambernet), a .nemo file or a name on the hub; unset: the "
        "checkpoint's default, mostly English, is assumed.",
    )
    phrases: Path | None = Field(
        default=None,
        description="File of phrases that are likely to be said, such as names, one a line, with a weight after a tab "
        "where it is not 1; every request has them besides its own; read again when it changes.",
    )

    host: str = Field(default="127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Names that requests may be meant for (their Host header), comma-separated; * for any. "
        "Addresses of numbers always are. Unset: localhost while it listens there, otherwise any.",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    http_processes: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Processes that receive and decode uploads for the dispatcher; 1: only the dispatcher's own.",
    )
    api_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Keys that open the API, name:sha256, comma-separated (`steno key`); unset: open to all.",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="File of further keys, one name:sha256 a line, read again when it changes; an entry may "
        "be followed by limits of its key.",
    )
    max_requests_per_key: Count | None = Field(
        default=None, description="Transcriptions under way at once for each key; unset: as many as max_requests."
    )
    requests_per_minute_per_key: Count | None = Field(
        default=None, description="Transcriptions begun in a minute for each key; unset: any number."
    )
    audio_seconds_per_minute_per_key: Seconds | None = Field(
        default=None, description="Audio transcribed in a minute for each key; unset: any length."
    )
    cors_origins: Annotated[tuple[_Origin, ...], NoDecode] = Field(
        default=(),
        description="Origins whose web pages may call the API, comma-separated, or *; unset: none but its own.",
    )
    url_hosts: Annotated[tuple[_Allowed, ...], NoDecode] = Field(
        default=(),
        description="Hosts from which recordings may be fetched by URL, comma-separated: media.example, *.example or * "
        "(all), by https at public addresses; an origin, such as http://storage:9000, may be plain http and private. "
        "Unset: none.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="auto: text on a terminal, else one JSON object a line."
    )

    otlp_endpoint: str | None = Field(
        default=None,
        description="OpenTelemetry collector that spans go to, such as http://collector:4318; unset: no spans.",
    )

    max_upload_bytes: Count = Field(default=1 << 30, description="Largest request body.")
    max_audio_seconds: Seconds = Field(default=14_400.0, description="Longest recording.")
    max_utterance_seconds: Annotated[float, Field(ge=MIN_UTTERANCE_SECONDS, le=_LONGEST_UTTERANCE)] = Field(
        default=DEFAULT_UTTERANCE_SECONDS,
        description="Longest utterance that the model gets; longer recordings are cut in pauses. "
        f"Above {_LONGEST_GLOBAL:g} with local_attention only.",
    )
    rescue: bool = Field(
        default=True,
        description="Whether speech of over a second for which the model wrote nothing is transcribed again, alone.",
    )

    max_requests: Count = Field(default=1024, description="Transcriptions under way at once.")
    max_connections: Count = Field(
        default=4096,
        description="Connections open at once; of an HTTP process never more than half of the files it may open.",
    )
    max_stored_bytes: Count = Field(default=4 << 30, description="Bytes of uploads being received or decoded at once.")
    max_queued_audio_seconds: Seconds = Field(
        default=36_000.0, description="Decoded audio without a transcript; 64 kB a second at 16 kHz, on disk."
    )
    max_wait_seconds: Seconds = Field(
        default=120.0,
        description="Predicted wait above which requests are refused; their Retry-After is at most 60 s.",
    )
    request_timeout_seconds: Seconds = Field(
        default=600.0, description="Longest time from acceptance to transcript, beyond the length of the recording."
    )
    receive_timeout_seconds: Seconds = Field(
        default=30.0, description="Longest pause while a body arrives, or while the client reads an answer."
    )
    keep_alive_seconds: Count = Field(
        default=90, description="Idle connections are kept this long; must exceed the load balancer's idle timeout."
    )
    drain_seconds: Seconds = Field(default=300.0, description="Longest time for accepted work after SIGTERM.")

    jobs_folder: Path | None = Field(
        default=None, description="Where jobs and their recordings are kept; unset: there are no jobs."
    )
    max_jobs: Count = Field(default=1000, description="Jobs that are not finished.")
    max_jobs_per_key: Count | None = Field(
        default=None, description="Jobs of each key that are not finished; unset: as many as max_jobs."
    )
    job_retention_seconds: Seconds = Field(
        default=86_400.0, description="How long a finished job and its result are kept."
    )
    webhook_hosts: Annotated[tuple[_Allowed, ...], NoDecode] = Field(
        default=(),
        description="Where webhooks may go, comma-separated: hooks.example, *.example; an origin, such as "
        "http://receiver:9000, may be plain http and have a private address. Unset: any public host, by https.",
    )
    webhook_secret: Annotated[str, AfterValidator(check_secret)] | None = Field(
        default=None,
        description="Signs webhooks of jobs without a secret of their own: whsec_ and base64, or any text; 16 to 512 "
        "characters, besides whsec_.",
    )

    batch_seconds: Seconds | None = Field(
        default=None,
        description="Audio-seconds per batch with padding; unset: found at the first start with a model, and kept in "
        "the user's cache folder: the fewest that are fast, on a GPU up to 1920, on a CPU from 60 up to 60 a core (120 "
        "on one).",
    )
    engine_timeout_seconds: Seconds = Field(
        default=8.0,
        description="Time without a heartbeat after which an engine is replaced (at least 60 s until its first model "
        "is ready, twice this while it loads another); a batch may take twice its expected time plus twice this.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: flags (arguments), then the environment, then files with one value each."""
        return init_settings, _Environment(settings_cls), file_secret_settings

    @classmethod
    def read(cls, flags: Mapping[str, Any] | None = None, secrets: Path = SECRETS) -> Self:
        """Read the settings from flags (field name to value), the environment, and the files of a folder.

        Raises:
            SettingsError: naming every setting that is missing, unknown or wrong.
        """
        _refuse_unknown(os.environ, cls.model_fields)
        try:
            has_secrets = secrets.is_dir()
            if has_secrets:  # a misspelt name would leave the API open to all
                _refuse_unknown((path.name for path in secrets.iterdir()), cls.model_fields)
            from_files = {"_secrets_dir": secrets} if has_secrets else {}
            return cls(**{**(flags or {}), **from_files})
        except ValidationError as error:
            raise SettingsError("\n".join(_fault(fault) for fault in error.errors())) from None
        except (OSError, UnicodeDecodeError, pydantic_settings.SettingsError) as error:
            raise SettingsError(f"{secrets}, or a file in it, cannot be read: {error}") from None

    @field_validator("*", mode="before")
    @classmethod
    def _split(cls, value: object, info: ValidationInfo) -> object:
        """Split the values of lists at commas."""
        if not isinstance(value, str) or NoDecode not in cls.model_fields[info.field_name or ""].metadata:
            return value
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("api_keys")
    @classmethod
    def _digests(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, entry in enumerate(value, 1):
            try:
                Key.parse(entry)
            except ValueError as error:
                raise ValueError(f"entry {number} {error}") from None
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.max_utterance_seconds > _LONGEST_GLOBAL and self.local_attention is None:
            raise ValueError(
                f"max_utterance_seconds ({self.max_utterance_seconds:g}) above {_LONGEST_GLOBAL:g} needs "
                "local_attention, such as 128: global attention takes time in the square of the length"
            )
        for name in (name for name in type(self).model_fields if name.endswith("_per_key")):
            if getattr(self, name) is not None and self.is_open:
                raise ValueError(f"{name} needs api_keys: without keys there are no callers to limit")
        entries = [model_entry(entry) for entry in self._entries]
        ids = [model for model, _ in entries]
        if self.identifier is not None:
            ids.append(self.identifier[0])
        if twice := next((model for model in ids if ids.count(model) > 1), None):
            raise ValueError(f"two models are called {twice!r}; write one as ID=CHECKPOINT")
        self._check_on_demand()
        if self.languages and len(entries) > 1:
            raise ValueError("languages is for a single model: several speak what their checkpoints say")
        return self

    def _check_on_demand(self) -> None:
        for entry in self.models_on_demand:
            _, checkpoint = model_entry(entry)
            is_elsewhere = checkpoint == "bundled" or (_HUB_NAME.fullmatch(checkpoint) and ".nemo" not in checkpoint)
            if not is_elsewhere and not _exists(Path(checkpoint)):
                raise ValueError(f"models_on_demand names {checkpoint!r}, which does not exist")

    @property
    def loadable(self) -> Loadable:
        """The models that a request may load."""
        checkpoints, folders = {}, []
        for entry in self.models_on_demand:
            if is_folder_of_models(entry):
                folders.append(Path(entry))
            else:
                model, checkpoint = model_entry(entry)
                checkpoints[model] = checkpoint
        return Loadable(checkpoints, folders)

    @property
    def checkpoints(self) -> dict[str, str]:
        """The checkpoint of each model, by id; the default first."""
        return dict(model_entry(entry) for entry in self._entries)

    @property
    def identifier(self) -> tuple[str, str] | None:
        """Id and checkpoint of the language identifier; None if there is none."""
        return None if self.language_identifier is None else model_entry(self.language_identifier)

    @property
    def identifier_edges(self) -> list[float]:
        """The upper bounds of the buckets that the language identifier needs: it gets the beginning of utterances."""
        return bucket_edges(min(self.edges[-1], IDENTIFIED_SECONDS))

    @property
    def _entries(self) -> tuple[str, ...]:
        return self.model or ("bundled",)

    @property
    def is_open(self) -> bool:
        """Whether the API may be used without a key."""
        return not self.api_keys and self.api_keys_file is None

    @property
    def key_limits(self) -> KeyLimits:
        """The limits of a key that has none of its own."""
        per_minute = self.requests_per_minute_per_key, self.audio_seconds_per_minute_per_key
        return KeyLimits(self.max_requests_per_key, *per_minute)

    @property
    def admission_limits(self) -> AdmissionLimits:
        """The limits of admission control."""
        return AdmissionLimits(
            max_requests=self.max_requests,
            max_stored_bytes=self.max_stored_bytes,
            max_queued_audio_seconds=self.max_queued_audio_seconds,
            max_wait_seconds=self.max_wait_seconds,
            timeout_seconds=self.request_timeout_seconds,
            takes_jobs=self.jobs_folder is not None,
        )

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The names that requests may be meant for, in lower case; None for any.

        A service that only programs of the same machine reach has local names only: a page in a browser there could
        else have its own name lead to this service, and read its answers.
        """
        if self.hosts:
            return None if "*" in self.hosts else frozenset(host.lower().rstrip(".") for host in self.hosts)
        return frozenset({"localhost"}) if _is_local(self.host) else None

    @property
    def edges(self) -> list[float]:
        """The upper bounds of the buckets in use; the last one is the longest utterance."""
        return bucket_edges(min(self.max_utterance_seconds, self.max_audio_seconds))


def model_entry(entry: str) -> tuple[str, str]:
    """Return the id and the checkpoint of `CHECKPOINT` or `ID=CHECKPOINT`.

    Without an ID, the id is the checkpoint's name on the hub, or that of its file or folder, without `.nemo`.
    `models.model_id` does the same, but imports torch.

    Raises:
        ValueError: if it names no checkpoint.
    """
    model, equals, checkpoint = entry.partition("=")
    if equals and _MODEL_ID.fullmatch(model) and checkpoint:
        return model, checkpoint
    if entry == "bundled":
        return "steno-bundled", entry
    path = Path(entry)
    if _HUB_NAME.fullmatch(entry) and path.suffix != ".nemo" and not _exists(path):
        return entry.partition("@")[0], entry
    name = path.name.removesuffix(".nemo")
    if not name or not name.isprintable():
        raise ValueError(f"{entry!r} names no checkpoint")
    return name, entry


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _refuse_unknown(environment: Iterable[str], known: Mapping[str, FieldInfo]) -> None:
    names = {PREFIX + name.upper() for name in known}
    unknown = [
        name
        for name in sorted(environment)
        if name.upper().startswith(PREFIX) and name.upper() not in names and not _SERVICE_LINK.fullmatch(name)
    ]
    if unknown:
        raise SettingsError("\n".join(f"{name} is not a setting{_did_you_mean(name, names)}" for name in unknown))


def _did_you_mean(name: str, names: set[str]) -> str:
    close = difflib.get_close_matches(name.upper(), names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _fault(fault: ErrorDetails) -> str:
    name = ".".join(map(str, fault["loc"][:1]))
    message = fault["msg"].removeprefix("Value error, ")
    return f"{PREFIX}{name.upper()} (--{name.replace('_', '-')}): {message}" if name else message
