"""Open files with the interfaces of ``io``."""

from __future__ import annotations

import errno
import io
import os
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from ._diskwright import File, Stat
from ._errors import ClosedImage

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from ._image import Image

__all__ = ["RawFile", "open_file"]

BUFFER_BYTES = 128 << 10

SEEK_DATA: int = getattr(os, "SEEK_DATA", 3)
SEEK_HOLE: int = getattr(os, "SEEK_HOLE", 4)


class RawFile(io.RawIOBase):
    """An open file of an image, without a buffer. Threads that share it move one position, each call as a whole."""

    name: str
    mode: str

    def __init__(self, image: Image, file: File, name: str, mode: str) -> None:
        super().__init__()
        self._image = image
        self._file = file
        self._position = 0
        # Held by calls that use the position. A signal handler may call again.
        self._moving = threading.RLock()
        self._appends = "a" in mode
        self._reads = "r" in mode or "+" in mode
        self._writes = mode.strip("bt") != "r"
        self.name = name
        self.mode = mode

    def _check(self) -> None:
        if self.closed:
            if self._image.closed:
                raise ClosedImage(errno.EBADF, "the image is closed", self.name)
            raise ValueError("I/O operation on closed file")

    def readable(self) -> bool:
        """Whether the file was opened for reading."""
        self._check()
        return self._reads

    def writable(self) -> bool:
        """Whether the file was opened for writing."""
        self._check()
        return self._writes

    def seekable(self) -> bool:
        """Always true."""
        self._check()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads at most ``size`` bytes, or all up to the end. Fewer only at the end of the file."""
        self._check()
        if size is None or size < 0:
            return self.readall()
        with self._moving:
            data = self._file.pread(size, self._position)
            self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Reads up to the end of the file."""
        self._check()
        with self._moving:
            data = self._file.pread(max(self._file.size() - self._position, 0), self._position)
            self._position += len(data)
        return data

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Reads into a buffer, and returns the number of bytes."""
        self._check()
        with self._moving:
            count = self._file.preadinto(buffer, self._position)
            self._position += count
        return count

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes all of the data, and returns the number of bytes."""
        self._check()
        with self._moving:
            count = self._file.pwrite(data, self._position)
            if self._appends and count:
                self._position = self._file.size()
            else:
                self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to a position: also to the next data or hole (``os.SEEK_DATA``, ``os.SEEK_HOLE``)."""
        self._check()
        with self._moving:
            self._position = position = self._place(offset, whence)
        return position

    def _place(self, offset: int, whence: int) -> int:
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self._file.size() + offset
        elif whence in (SEEK_DATA, SEEK_HOLE):
            position = self._seek_run(offset, whence == SEEK_DATA)
        else:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1, 2, SEEK_DATA or SEEK_HOLE)")
        if not 0 <= position < 1 << 63:
            raise ValueError(f"position {position} is negative or too large")
        return position

    def _seek_run(self, offset: int, is_data: bool) -> int:
        found = None
        if 0 <= offset < 1 << 63:
            found = self._file.next_data(offset) if is_data else self._file.next_hole(offset)
        if found is None:
            what = "data" if is_data else "hole"
            raise OSError(errno.ENXIO, f"no {what} at or after byte {offset}", self.name)
        return found

    def tell(self) -> int:
        """The current position."""
        self._check()
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the size of the file, by default to the current position."""
        self._check()
        if not self._writes:
            raise io.UnsupportedOperation("not open for writing")
        if size is not None and size < 0:
            raise ValueError("a file size cannot be negative")
        with self._moving:
            size = self._position if size is None else size
            self._file.truncate(size)
        return size

    def sync(self) -> None:
        """Returns when all earlier writes are durable. Flush a buffer above this object first."""
        self._check()
        self._file.sync()

    def stat(self) -> Stat:
        """Returns the attributes of the file, also after its name was changed or removed."""
        self._check()
        return self._file.stat()

    def close(self) -> None:
        """Closes the file."""
        if not self.closed:
            super().close()
            self._file.close()

    def __del__(self) -> None:
        # The file is closed when this object is freed. In a reference cycle, a buffer above it can be flushed later.
        pass

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<diskwright.RawFile {self.name!r} mode={self.mode!r}{state}>"


class _ClosingFile(RawFile):
    """A raw file whose buffer is being closed by one thread. For all other threads it is closed already.

    A buffer checks this attribute in each write, while it has its lock. So a write of another thread either fails, or has
    the lock before the last flush and is complete when that flush begins.
    """

    @property
    def closed(self) -> bool:
        me = threading.get_ident()
        return super().closed or vars(self).get("_closer", me) != me

    def _check(self) -> None:
        # A write that has passed the check of its buffer is completed.
        if super().closed:
            super()._check()


class _Closing:
    """The part of buffers for writing that closes them while other threads write to them.

    The buffers of ``io`` flush and close in two steps, and lose what other threads write between them.
    """

    def close(self) -> None:
        """Flushes and closes the file. Later writes of other threads fail."""
        raw: RawFile = cast(Any, self).raw
        me = threading.get_ident()
        if raw.closed or vars(raw).setdefault("_closer", me) != me:
            super().close()  # type: ignore[misc]
            return
        try:
            raw.__class__ = _ClosingFile
            super().close()  # type: ignore[misc]
        finally:
            vars(raw).pop("_closer", None)


class BufferedWriter(_Closing, io.BufferedWriter):
    """A buffer for writing."""


class BufferedRandom(_Closing, io.BufferedRandom):
    """A buffer for reading and writing."""


def _flags(mode: str) -> dict[str, bool]:
    kinds, rest = [c for c in mode if c in "rwax"], set(mode) - set("rwax")
    if len(kinds) != 1 or rest - set("bt+") or {"b", "t"} <= rest or len(set(mode)) != len(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    (kind,), updates = kinds, "+" in mode
    return {
        "read": kind == "r" or updates,
        "write": kind in "wx" or (kind == "r" and updates),
        "append": kind == "a",
        "truncate": kind == "w",
        "create": kind in "wa",
        "create_new": kind == "x",
    }


def open_file(
    image: Image,
    path: str,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    permissions: int = 0o644,
) -> RawFile | BinaryIO | TextIO:
    """Opens a file like ``io.open``, with the same arguments."""
    flags, binary = _flags(mode), "b" in mode
    if binary and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode doesn't take encoding, errors or newline")
    if buffering == 0 and not binary:
        raise ValueError("can't have unbuffered text I/O")
    if buffering == 1 and binary:
        buffering = -1
    file = image._open(path, mode=permissions, **flags)
    raw = RawFile(image, file, path, mode)
    try:
        if not flags["write"] and not flags["append"]:
            # A directory can be opened, but has no contents.
            if (file.stat().st_mode & 0o170000) == 0o040000:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if flags["append"]:
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            image._add(raw)
            return raw
        size = buffering if buffering > 1 else BUFFER_BYTES
        buffer: Any
        if "+" in mode:
            buffer = BufferedRandom(raw, size)
        elif flags["read"]:
            buffer = io.BufferedReader(raw, size)
        else:
            buffer = BufferedWriter(raw, size)
        if binary:
            image._add(buffer)
            return cast(BinaryIO, buffer)
        # A text file of io has no lock: its own buffer is lost if another thread writes to it or closes it. So each
        # write goes to the buffer.
        text = io.TextIOWrapper(
            buffer, encoding, errors, newline, line_buffering=buffering == 1, write_through=flags["write"] or flags["append"]
        )
        # As io.open does; the attribute is read-only in typeshed.
        cast(Any, text).mode = mode
        image._add(text)
        return text
    except BaseException:
        raw.close()
        raise
