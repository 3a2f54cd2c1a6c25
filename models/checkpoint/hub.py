"""Models on the hub: found by name, downloaded into the hub's cache and checked; a cached one needs no network.

``huggingface_hub`` does the work. It resumes cut downloads, stores files by digest, and reads its settings from the
environment (``HF_HOME``, ``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HUB_OFFLINE``).
"""

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import (
    HfApi,
    ResolvedRevision,
    constants,
    hf_hub_download,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling
from tqdm import tqdm

from models.checkpoint.layout import needed_files
from models.checkpoint.nemo.archive import GZIP_MAGIC
from models.checkpoint.nemo.file import check_nemo
from models.checkpoint.others import other_kind
from models.checkpoint.remote_file import RemoteFile
from models.checkpoint.transformers.model_folder import CONFIG_FILES, check_transformers
from models.download import OnDownload
from models.errors import CheckpointError, DownloadError, MissingCheckpointError, OtherPurposeError

log = logging.getLogger("steno.hub")
# Its log lines go through our handlers; its own would print them a second time, in another format.
logging.getLogger("huggingface_hub").handlers.clear()

_ANSWER_SECONDS = 10.0
# Of what is larger, the configuration is checked before the download.
_CHECKED_BYTES = 16 << 20
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_FORBIDDEN = {401, 403}


def download(repository: str, revision: str | None, on_download: OnDownload | None = None) -> Path:
    """Download what the cache lacks of a model's checkpoint, and return its folder in the cache.

    If the hub cannot be reached or is too busy, the cache's version of that revision is used.

    Args:
        repository: owner and name.
        revision: a branch, a tag or a commit; None for the repository's default branch.
        on_download: gets the progress; None draws a progress bar if standard error is a terminal.

    Raises:
        MissingCheckpointError: if the hub has no such model or revision.
        DownloadError: if the hub refuses, or cannot be reached and the cache has no version.
        UnreadableCheckpointError: if the repository holds no checkpoint, or several.
    """
    name = f"{repository}@{revision}" if revision else repository
    if (other := other_kind(repository)) is not None:
        raise OtherPurposeError(other)
    with _readable_errors(name, repository):
        try:
            commit, files = _listing(repository, revision)
        except (CheckpointError, RepositoryNotFoundError, RevisionNotFoundError):
            raise
        except Exception as error:  # clients, proxies and captive portals report a missing network in many ways
            status = error.response.status_code if isinstance(error, HfHubHTTPError) else _SERVER_ERRORS
            if status < _SERVER_ERRORS and status != _TOO_MANY_REQUESTS:
                raise
            return _cached(name, repository, revision, error)
        # Its config.json comes last: without it, a folder that a stopped download leaves is no checkpoint.
        names = sorted(needed_files(files, repository), key=lambda name: name == "config.json")
        new = [name for name in names if not _is_cached(repository, name, commit)]
        if sum(files[name].size or 0 for name in new) > _CHECKED_BYTES:
            _check(repository, commit, {name: files[name] for name in names})
        folders = {_fetch(repository, commit, files[name], on_download).parent for name in names}
    return folders.pop()


def _listing(repository: str, revision: str | None) -> tuple[ResolvedRevision, dict[str, RepoSibling]]:
    """Return the commit that a revision is now, and the files of that commit."""
    api = HfApi()
    # First what has a time limit: a hub that is silent would keep `resolve_revision` waiting for ever.
    info = api.model_info(repository, revision=revision, files_metadata=True, timeout=_ANSWER_SECONDS)
    commit = api.resolve_revision(repository, revision=revision)
    if commit.resolved != info.sha:  # it has changed in between
        info = api.model_info(repository, revision=commit.resolved, files_metadata=True, timeout=_ANSWER_SECONDS)
    return commit, {file.rfilename: file for file in info.siblings or []}


def _check(repository: str, commit: ResolvedRevision, files: Mapping[str, RepoSibling]) -> None:
    """Check what a checkpoint's configuration says, before gigabytes are downloaded for nothing.

    What cannot be had in pieces is not checked here: gzipped archives, and files of a hub that has no range requests.

    Raises:
        CheckpointError: if Steno does not serve such a model.
    """
    archive = next((file for file in files.values() if file.rfilename.endswith(".nemo")), None)
    if archive is None:
        with tempfile.TemporaryDirectory() as folder:  # not the cache, where a config.json is the sign of a whole model
            for name in CONFIG_FILES:
                if name in files:
                    hf_hub_download(repository, name, revision=commit, local_dir=folder)
            check_transformers(Path(folder))
        return
    remote = RemoteFile(repository, commit.resolved, archive.rfilename, archive.size or 0)
    reader = remote.buffered()
    try:
        if reader.peek(len(GZIP_MAGIC))[: len(GZIP_MAGIC)] != GZIP_MAGIC:
            check_nemo(reader, f"{repository}/{archive.rfilename}")
    except (CheckpointError, OSError) as error:
        if remote.failure is None:
            raise
        log.info("%s is not checked before its download: %s", repository, error)


def _cached(name: str, repository: str, revision: str | None, reason: Exception) -> Path:
    cache = constants.HF_HUB_CACHE
    try:
        folder = _snapshot(repository, revision)
        # A stopped download leaves a folder without a checkpoint; a CheckpointError is a ValueError.
        needed_files((entry.name for entry in folder.iterdir()), repository)
    except (LocalEntryNotFoundError, ValueError):
        message = (
            f"{name} is no file or folder here and not in the cache at {cache}; the hub cannot be reached: {reason}"
        )
        raise DownloadError(message) from reason
    log.warning("the hub cannot be reached; %s comes from the cache", name, extra={"path": str(folder)})
    return folder


def _snapshot(repository: str, revision: str | None) -> Path:
    """Return the folder in the cache, which may lack files of the repository that its checkpoint does not need."""
    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except IncompleteSnapshotError as error:
        return Path(error.snapshot_path)


def _fetch(repository: str, commit: ResolvedRevision, file: RepoSibling, on_download: OnDownload | None) -> Path:
    """Return the path of a file in the cache; a new one is downloaded and compared with the hub's digest."""
    was_cached = _is_cached(repository, file.rfilename, commit)
    bar = _reporting(on_download) if on_download else None
    path = Path(hf_hub_download(repository, file.rfilename, revision=commit, tqdm_class=bar))
    if not was_cached and not _is_whole(path, file):
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise DownloadError(
            f"{repository}: {file.rfilename} is not what the hub announced; it was removed, so try again"
        )
    return path


def _is_cached(repository: str, name: str, commit: ResolvedRevision) -> bool:
    return isinstance(try_to_load_from_cache(repository, name, revision=commit.resolved), str)


def _is_whole(path: Path, file: RepoSibling) -> bool:
    """Return whether a file has the hub's digest: SHA-256 for one in LFS, else that of its blob in git."""
    with path.open("rb") as content:
        if file.lfs:
            return hashlib.file_digest(content, "sha256").hexdigest() == str(file.lfs.sha256)
        blob = content.read()
    return hashlib.sha1(b"blob %d\0" % len(blob) + blob, usedforsecurity=False).hexdigest() == str(file.blob_id)


@contextmanager
def _readable_errors(name: str, repository: str) -> Iterator[None]:
    """Turn refusals of the hub and failed downloads into errors that say in one line what to do."""
    try:
        yield
    except CheckpointError:
        raise
    except GatedRepoError as error:
        message = f"{name} is gated: accept its terms on the hub, and set HF_TOKEN to a token of the account that did"
        raise DownloadError(message) from error
    except RepositoryNotFoundError as error:
        message = f"{name} is no file or folder here, and no model that the hub shows; a private one needs HF_TOKEN"
        raise MissingCheckpointError(message) from error
    except RevisionNotFoundError as error:
        raise MissingCheckpointError(f"{repository} has no such revision on the hub: {name}") from error
    except Exception as error:  # the client's own errors, those of the network below it, a full disk
        statuses = [one.response.status_code for one in (error, error.__cause__) if isinstance(one, HfHubHTTPError)]
        hint = " (does it need another HF_TOKEN?)" if _FORBIDDEN.intersection(statuses) else ""
        raise DownloadError(f"{name} cannot be downloaded{hint}: {error}") from error


def _reporting(on_download: OnDownload) -> "type[tqdm[Any]]":
    """Return a class of progress bars that are not drawn, and call ``on_download`` instead."""

    class Bar(tqdm):  # type: ignore[type-arg]  # generic in its stubs only
        def __init__(self, *_: object, total: int | None = None, initial: int = 0, **__: object) -> None:
            super().__init__(disable=True)
            self._done_bytes, self._total_bytes = initial, total

        def update(self, n: float | None = 1) -> bool | None:
            self._done_bytes += int(n or 0)
            on_download(self._done_bytes, self._total_bytes)
            return None

    return Bar
