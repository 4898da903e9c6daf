"""The model hub: what a repository has, the begin of a file, and whole files into the hub's own cache layout.

huggingface_hub speaks to the hub; the body of a file is fetched here, because a large download must go on after any
interruption and must not be published before its digest is the hub's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from filelock import FileLock
from huggingface_hub import HfApi, constants, get_session, hf_hub_url
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils._headers import build_hf_headers

from edgespec.errors import HubDamaged, HubDenied, HubError, HubUnreachable, ModelNotFound, UsageError
from edgespec.memory.budget import format_size

__all__ = ["Hub", "RemoteFile"]

_PIECE = 1 << 20
_TRIES = 5
_LONGEST_WAIT = 30.0
_SPARE = 64 << 20  # bytes of the disk that are left alone
Progress = Callable[[int], None]  # bytes that are there


@dataclass(frozen=True)
class RemoteFile:
    """As the hub describes it: `sha256` is its digest, `commit` the state of the repository."""

    repo: str
    commit: str
    name: str
    size: int
    sha256: str


class Hub:
    """`folder` is the cache, by default huggingface_hub's, which llama.cpp shares."""

    def __init__(self, folder: Path | None = None, *, endpoint: str | None = None, token: str | None = None) -> None:
        self.folder = folder or Path(constants.HF_HUB_CACHE)
        self._endpoint, self._token = endpoint or constants.ENDPOINT, token
        self._pause: Callable[[float], None] = time.sleep

    def files(self, repo: str) -> list[RemoteFile]:
        """Everything in the repository that has a digest. Raises HubError."""
        with _translated(repo):
            found = HfApi(self._endpoint, token=self._token).model_info(repo, files_metadata=True)
        return [
            RemoteFile(repo, str(found.sha), item.rfilename, int(item.size), str(item.lfs.sha256))
            for item in found.siblings or []
            if item.lfs and item.size
        ]

    def begin(self, file: RemoteFile, count: int) -> bytes:
        """The first `count` bytes, by a range request. Raises HubError."""
        with self._open(file, 0, min(count, file.size)) as response:
            data = b""
            for piece in response.iter_bytes(_PIECE):
                data += piece
                if len(data) >= count:  # of a server that ignores ranges
                    break
        return data[:count]

    def cached(self, file: RemoteFile) -> Path | None:
        """Where the file lies in the cache, if it does."""
        blob = self._repo(file.repo) / "blobs" / file.sha256
        return self._publish(file) if blob.exists() and blob.stat().st_size == file.size else None

    def download(self, file: RemoteFile, progress: Progress = lambda done: None) -> Path:
        """Its path in the cache, when all of it is there and has the hub's digest; what is there already is not fetched again.

        One process at a time fetches a file, others wait for it. Raises HubError; what arrived is kept for the next time.
        """
        _check_digest(file)
        folder = self._repo(file.repo) / "blobs"
        locks = self.folder / ".locks" / self._repo(file.repo).name
        try:
            for path in (folder, locks):
                path.mkdir(parents=True, exist_ok=True)
            with FileLock(locks / f"{file.sha256}.lock"):
                blob = folder / file.sha256
                if not blob.exists():
                    partial = folder / f"{file.sha256}.edgespec.incomplete"
                    self._fetch(file, partial, progress)
                    partial.replace(blob)
                return self._publish(file)
        except OSError as error:
            raise HubError(f"{file.name} cannot be stored ({error.strerror}): free some disk space and pull again") from error

    def _fetch(self, file: RemoteFile, partial: Path, progress: Progress) -> None:
        """Until `partial` is whole. Raises HubDamaged, and removes it, when its digest is another."""
        with partial.open("a+b") as out:
            _check_room(partial.parent, file.size - out.tell())
            out.seek(0)
            digest = hashlib.file_digest(out, "sha256")
            for attempt in range(_TRIES):
                try:
                    digest = self._append(file, out, digest, progress)
                except (HubUnreachable, httpx2.HTTPError) as error:
                    if attempt == _TRIES - 1:
                        raise _unreachable(file.repo, error) from error
                    self._pause(getattr(error, "wait", None) or min(2.0**attempt, _LONGEST_WAIT))
                if out.tell() >= file.size:
                    break
            out.flush()
            os.fsync(out.fileno())
            there = out.tell()
        if there < file.size:
            raise HubUnreachable(f"{file.name} stopped before its end {_TRIES} times: pull again to go on")
        if there > file.size or digest.hexdigest() != file.sha256:
            partial.unlink()
            raise HubDamaged(f"{file.name} is not what the hub says it is: pull again, or use another source")

    def _append(self, file: RemoteFile, out: Any, digest: Any, progress: Progress) -> Any:
        """Go on at the end of `out`, or from the start where the server does not allow that; the digest of what is there."""
        if out.tell() >= file.size:
            return digest
        with self._open(file, out.tell(), file.size) as response:
            if response.status_code == 200 or not _starts_at(response, out.tell()):
                out.seek(0)
                out.truncate()
                digest = hashlib.sha256()
            if response.status_code == 206 and out.tell() == 0 and not _starts_at(response, 0):
                return digest
            for piece in response.iter_raw():  # as it comes: what a piece would gather is lost when the line breaks
                out.write(piece[: file.size + 1 - out.tell()])
                digest.update(piece)
                progress(out.tell())
                if out.tell() > file.size:
                    break
        return digest

    @contextmanager
    def _open(self, file: RemoteFile, start: int, stop: int) -> Iterator[httpx2.Response]:
        """A response to a range request; a token goes to the hub alone, not to where it redirects."""
        url = hf_hub_url(file.repo, file.name, revision=file.commit, endpoint=self._endpoint)
        headers = build_hf_headers(token=self._token) | {"range": f"bytes={start}-{stop - 1}", "accept-encoding": "identity"}
        with _translated(file.repo), get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
            _check(response, file)
            yield response

    def _publish(self, file: RemoteFile) -> Path:
        """The file's name in the snapshot of its commit, as a link to its bytes."""
        repo = self._repo(file.repo)
        pointer = repo / "snapshots" / file.commit / file.name
        if not pointer.resolve().is_relative_to(repo.resolve()) and not pointer.is_symlink():
            raise HubDamaged(f"{file.name!r} would lie outside the cache: do not use this repository")
        pointer.parent.mkdir(parents=True, exist_ok=True)
        if not pointer.exists():
            link = pointer.with_name(f".{pointer.name}.{os.getpid()}")
            link.symlink_to(os.path.relpath(repo / "blobs" / file.sha256, pointer.parent))
            link.replace(pointer)
        main = repo / "refs" / "main"
        main.parent.mkdir(exist_ok=True)
        main.write_text(file.commit)
        return pointer

    def _repo(self, repo: str) -> Path:
        return self.folder / repo_folder_name(repo_id=repo, repo_type="model")


def _check_digest(file: RemoteFile) -> None:
    """They become file names."""
    hexadecimal = set("0123456789abcdef")
    if len(file.sha256) != 64 or not set(file.sha256) <= hexadecimal or not set(file.commit) <= hexadecimal or not file.commit:
        raise HubDamaged(f"the hub gives {file.name} a digest that is none: do not use this repository")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free - _SPARE
    if needed > free:
        raise HubError(f"{format_size(needed)} are still to come and {format_size(max(0, free))} are free: free some disk space")


def _starts_at(response: httpx2.Response, place: int) -> bool:
    return response.headers.get("content-range", "").startswith(f"bytes {place}-")


def _check(response: httpx2.Response, file: RemoteFile) -> None:
    status = response.status_code
    if status in (401, 403):
        raise HubDenied(f"{file.repo} is not open to you ({status}): accept its licence on the hub and set HF_TOKEN")
    if status == 404:
        raise ModelNotFound(f"{file.repo} has no {file.name} any more: pull again")
    if status == 416:
        raise HubDamaged(f"{file.name} has another size than the hub says: pull again")
    if status == 429 or status >= 500:
        error = HubUnreachable(f"the hub is busy ({status}): try again later")
        wait = response.headers.get("retry-after", "")
        error.wait = min(float(wait), _LONGEST_WAIT) if wait.isdigit() else None  # type: ignore[attr-defined]
        raise error
    if status not in (200, 206):
        raise HubError(f"the hub answers {status} for {file.name}: try again later")


def _unreachable(repo: str, error: Exception) -> HubUnreachable:
    if isinstance(error, HubUnreachable):
        return error
    return HubUnreachable(f"the hub cannot be reached for {repo} ({type(error).__name__}): check the network and pull again")


@contextmanager
def _translated(repo: str) -> Iterator[None]:
    """The client's errors as ours. Those of the network while a body is read are left to whoever reads it."""
    try:
        yield
    except HFValidationError as error:
        raise UsageError(f"{repo!r} is no repository: give user/repo") from error
    except GatedRepoError as error:
        raise HubDenied(f"{repo} asks for a licence to be accepted: do that on the hub and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"there is no repository {repo}, or it is not open to you: check the name and HF_TOKEN") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise HubDenied(f"{repo} is not open to you ({status}): set HF_TOKEN") from error
        raise HubUnreachable(f"the hub answers {status} for {repo}: try again later") from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise _unreachable(repo, error) from error
