"""The one object through which every weight byte is read while paging.

Direct reads keep the page cache, and so the memory cap, out of it; a file system that refuses them is read through
the cache, which is dropped behind. A failing read is tried once more, then it is a PagingError.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from edgespec.errors import ModelChanged, PagingError
from edgespec.memory.layout import Run
from edgespec.types import FileIdentity

__all__ = ["WeightFile"]

_PIECE = 32 << 20  # a segment in one read: smaller pieces left the disk idle between them
_log = logging.getLogger(__name__)
ReadInto = Callable[[int, list[memoryview], int], int]


def _preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
    return os.preadv(fd, buffers, offset)


class WeightFile:
    """The files of one model, held open. `direct` tells whether the page cache is bypassed."""

    def __init__(self, files: Sequence[FileIdentity], *, read_into: ReadInto = _preadv, direct: bool = True) -> None:
        self._files, self._read_into = tuple(files), read_into
        self.direct = direct and hasattr(os, "O_DIRECT")
        self._descriptors = [self._open(identity) for identity in files]
        self.bytes_read = 0

    def _open(self, identity: FileIdentity) -> int:
        try:
            if self.direct:
                try:
                    return os.open(identity.path, os.O_RDONLY | os.O_DIRECT)
                except OSError:
                    _log.info("%s: direct reads are refused here, reading through the page cache", identity.path)
                    self.direct = False
            return os.open(identity.path, os.O_RDONLY)
        except OSError as error:
            raise PagingError(f"{identity.path}: {error.strerror}: restore the model file") from error

    def read(self, run: Run, into: memoryview, stop: threading.Event | None = None) -> None:
        """Fill `into` (at least `run.size` bytes, page-aligned) with `run`; once `stop` is set, leave early.

        Raises PagingError after one retry, ModelChanged when the file is no longer the validated one.
        """
        wanted = min(run.size, self._files[run.file].size - run.offset)
        done = 0
        while done < wanted and not (stop and stop.is_set()):
            piece = min(_PIECE, run.size - done)
            done += self._piece(run.file, into[done : done + piece], run.offset + done, min(piece, wanted - done))
        self.check_unchanged(run.file)

    def _piece(self, file: int, into: memoryview, offset: int, wanted: int) -> int:
        reason = ""
        for _ in range(2):
            try:
                got = self._read_into(self._descriptors[file], [into], offset)
            except OSError as error:
                reason = error.strerror or str(error)
                if self.direct and error.errno == 22:  # EINVAL: this file system takes O_DIRECT at open but not to read
                    self._reopen_buffered()
                continue
            if got >= wanted:
                self.bytes_read += wanted
                if not self.direct and hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(self._descriptors[file], offset, wanted, os.POSIX_FADV_DONTNEED)
                return wanted
            reason = f"{got} of {wanted} bytes came"
            self.check_unchanged(file)
        raise PagingError(f"{self._files[file].path}: reading weights at {offset} failed twice ({reason}): check the disk")

    def _reopen_buffered(self) -> None:
        _log.info("direct reads fail here, reading through the page cache")
        self.direct = False
        for number, identity in enumerate(self._files):
            os.close(self._descriptors[number])
            self._descriptors[number] = self._open(identity)

    def settle(self) -> None:
        """Wait until what was written to the files last, by a copy or a download, is on the disk. Raises OSError."""
        for descriptor in self._descriptors:
            os.fsync(descriptor)

    def check_unchanged(self, file: int) -> None:
        stat, identity = os.fstat(self._descriptors[file]), self._files[file]
        if FileIdentity.of(identity.path, stat) != identity:
            raise ModelChanged(f"{identity.path} was changed while in use: load it again")

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
