"""Open images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TextIO, overload
from uuid import UUID

from ._copying import CopyReport
from ._diskwright import ScanDir, Stat, Volume
from ._file import RawFile, open_file
from ._path import ImagePath, pure
from ._types import ImagePathLike, StrOrBytesPath

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Image", "Statfs", "create", "open_image"]


class Statfs(NamedTuple):
    """Totals of space and inodes."""

    block_size: int
    blocks: int
    blocks_free: int
    inodes: int
    inodes_free: int
    name_len_max: int


def text_of(path: ImagePathLike) -> str:
    """A path in an image as text."""
    if isinstance(path, str):
        return path
    if isinstance(path, bytes):
        return path.decode("utf-8", "surrogateescape")
    return str(path)


class Image(Volume):
    """An open image: a file system with all that is in it.

    Every method may be called from any thread. Nobody's permissions are checked: who may open an image may do all in it.
    :meth:`sync` and :meth:`close` return when all earlier changes are durable. After a crash the image has the changes up
    to some moment, except that regular files created since then in a large directory (1024 blocks or more) may be missing
    in any order. ``image / "etc" / "motd"`` is a path in it (:class:`ImagePath`); the methods of the image take paths as
    text, too.
    """

    _named: str
    _how: tuple[Any, dict[str, Any]]

    def __new__(
        cls,
        source: Any,
        /,
        *,
        writable: bool = False,
        partition: int | None = None,
        offset: int = 0,
        norecovery: bool = False,
        cache_bytes: int | None = None,
        owner: tuple[int, int] = (0, 0),
        _new: dict[str, Any] | None = None,
    ) -> Self:
        how: dict[str, Any] = {
            "writable": writable,
            "partition": partition,
            "offset": offset,
            "norecovery": norecovery,
            "cache_bytes": cache_bytes,
            "owner": owner,
        }
        image = super().__new__(cls, source, new=_new, **how)
        is_path = isinstance(source, (str, bytes, os.PathLike))
        image._named = os.fsdecode(source) if is_path else f"{type(source).__name__} object"
        image._how = (os.path.abspath(os.fsdecode(source)) if is_path else source, how)
        return image

    # As a whole.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            forgotten = self.writable and not self.closed
        except Exception:  # It was never opened.
            return
        if forgotten:
            warnings.warn(f"unclosed image {self!r}", ResourceWarning, stacklevel=2, source=self)
            try:
                self.close()
            except OSError:
                pass

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies of an image in other processes open it again: of one that is read, in a file of the host."""
        source, how = self._how
        if self.writable or not isinstance(source, str):
            raise TypeError("only images in files of the host that are open for reading can be pickled")
        return (_opened_again, (source, how))

    def _shown(self) -> str:
        return repr(self._named)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "writable" if self.writable else "open for reading"
        where = self._how[1]
        part = f" partition {where['partition']}" if where["partition"] is not None else ""
        return f"<diskwright.Image {self._shown()}{part} {state}>"

    def statfs(self) -> Statfs:
        """Totals of space and inodes."""
        return Statfs(**self._statfs())

    # Paths.

    @property
    def root(self) -> ImagePath:
        """The root directory."""
        return ImagePath(self)

    def path(self, *segments: ImagePathLike) -> ImagePath:
        """A path in the image."""
        return ImagePath(self, *segments)

    def __truediv__(self, segment: ImagePathLike) -> ImagePath:
        return ImagePath(self, segment)

    def glob(self, pattern: str) -> Iterator[ImagePath]:
        """What matches, from the root on: see :meth:`ImagePath.glob`."""
        return self.root.glob(pattern.lstrip("/"))

    def is_dir(self, path: ImagePathLike) -> bool:
        return (self / path).is_dir()

    def is_file(self, path: ImagePathLike) -> bool:
        return (self / path).is_file()

    def is_symlink(self, path: ImagePathLike) -> bool:
        return (self / path).is_symlink()

    # Listing.

    def listdir(self, path: ImagePathLike = "/") -> list[str]:
        """The names in a directory."""
        return super().listdir(path)

    def scandir(self, path: ImagePathLike = "/") -> ScanDir:
        """The entries of a directory, as ``os.scandir`` has them."""
        return self._scandir(path)

    def walk(
        self,
        top: ImagePathLike = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each directory from ``top`` down, with the names in it: as ``os.walk``."""
        pending: list[str | tuple[str, list[str], list[str]]] = [text_of(top)]
        while pending:
            step = pending.pop()
            if isinstance(step, tuple):
                yield step
                continue
            dirs: list[str] = []
            files: list[str] = []
            links: set[str] = set()
            try:
                with self.scandir(step) as entries:
                    for entry in entries:
                        is_dir = entry.is_dir()
                        (dirs if is_dir else files).append(entry.name)
                        if is_dir and entry.is_symlink():
                            links.add(entry.name)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                yield step, dirs, files
            else:
                pending.append((step, dirs, files))
            start = step if step.endswith("/") or not step else step + "/"
            for name in reversed(dirs):
                if followlinks or name not in links:
                    pending.append(start + name)

    def tree(self, top: ImagePathLike = "/", *, sorted: bool = False) -> Iterator[tuple[str, Stat]]:
        """Everything from ``top`` down with what is known of it, that itself first: the fastest way through an image.

        Directories come before what is in them, links are not followed.
        """
        return self._tree(top, sorted)

    # Contents.

    @overload
    def open(
        self,
        path: ImagePathLike,
        mode: Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt", "wt", "at", "xt"] = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> TextIO: ...
    @overload
    def open(
        self,
        path: ImagePathLike,
        mode: Literal["rb", "wb", "ab", "xb", "rb+", "wb+", "ab+", "xb+", "r+b", "w+b", "a+b", "x+b"],
        buffering: int = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        permissions: int = 0o644,
    ) -> BinaryIO: ...
    @overload
    def open(
        self,
        path: ImagePathLike,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> RawFile | BinaryIO | TextIO: ...
    def open(
        self,
        path: ImagePathLike,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> RawFile | BinaryIO | TextIO:
        """Opens a file as the function ``open`` does one of the host. ``permissions`` are those of a new file."""
        return open_file(
            self, text_of(path), mode, buffering, encoding, errors, newline, permissions
        )

    def read_text(self, path: ImagePathLike, encoding: str = "utf-8", errors: str = "strict") -> str:
        return (self / path).read_text(encoding, errors)

    def write_text(
        self, path: ImagePathLike, data: str, encoding: str = "utf-8", errors: str = "strict"
    ) -> int:
        return (self / path).write_text(data, encoding, errors)

    # Names and attributes.

    def mkdir(self, path: ImagePathLike, mode: int | None = None) -> None:
        """Makes a directory, with the permissions 0o755 unless told."""
        self._mkdir(path, mode)

    def makedirs(self, path: ImagePathLike) -> None:
        """Makes a directory and those above it that are missing."""
        self._makedirs(path)

    def utime(
        self,
        path: ImagePathLike,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of last access and change: in seconds or nanoseconds after 1970, or now."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = (round(times[0] * 1e9), round(times[1] * 1e9))
        if ns is None:
            import time

            now = time.time_ns()
            ns = (now, now)
        self._utime(path, ns[0], ns[1], follow_symlinks)

    # From and to the host.

    def copy_in(
        self, source: StrOrBytesPath, target: ImagePathLike = "/", *, preserve: bool = True
    ) -> CopyReport:
        """Copies a file or directory of the host with all that is in it to ``target``, or into it, if it is a directory.

        With ``preserve``, owners, permissions, times and extended attributes are kept. Other threads remove no names
        meanwhile.
        """
        return _report(self._copy_in(source, target, preserve))

    def copy_out(
        self, source: ImagePathLike, target: StrOrBytesPath, *, preserve: bool = True
    ) -> CopyReport:
        """Copies a file or directory with all that is in it to ``target`` on the host, or into it, if it is a directory.

        With ``preserve``, owners (as root), permissions, times and extended attributes are kept.
        """
        return _report(self._copy_out(source, target, preserve))


def _report(told: dict[str, Any]) -> CopyReport:
    return CopyReport(told["files"], told["bytes"], told["left_out"], tuple(told["warnings"]))


def _opened_again(source: str, how: dict[str, Any]) -> Image:
    return Image(source, **how)


def open_image(
    source: StrOrBytesPath | Any,
    *,
    writable: bool = False,
    partition: int | None = None,
    offset: int = 0,
    norecovery: bool = False,
    cache_bytes: int | None = None,
    owner: tuple[int, int] = (0, 0),
) -> Image:
    """Opens an image: a file, a block device, or any file object.

    - ``source``: a path; a binary file object with ``seek``, ``read`` and, to change the image, ``write``; or an object
      with ``size``, ``pread(size, offset)`` and ``pwrite(data, offset)``.
    - ``writable``: to change it. In a file it is locked against other programs then.
    - ``partition``: which partition of a disk (GPT or MBR), from 1 on; ``offset``: the byte that the image begins at.
    - ``norecovery``: read it as it lies, without what its journal or log holds.
    - ``cache_bytes``: memory for metadata. ``owner``: user and group of what is made.

    Raises :class:`UnsupportedImage` if it is none, :class:`ImageInUse` if somebody else has it, :class:`DamagedImage`.
    """
    return Image(
        source,
        writable=writable,
        partition=partition,
        offset=offset,
        norecovery=norecovery,
        cache_bytes=cache_bytes,
        owner=owner,
    )


def create(
    target: StrOrBytesPath | Any,
    size: int | None = None,
    *,
    fs: Literal["ext4", "xfs"] = "ext4",
    label: str = "",
    uuid: UUID | str | None = None,
    features: str = "",
    block_size: int | None = None,
    small: bool = False,
    owner: tuple[int, int] = (0, 0),
) -> Image:
    """Makes an empty file system and opens it to be changed: in a new file of ``size`` bytes, or all over a file object.

    ``features`` changes the usual ones (``"-has_journal,casefold"``), in the words of mke2fs and mkfs.xfs. ``small``
    allows XFS below 300 MiB.
    """
    new = {
        "fs": fs,
        "size": size,
        "label": label,
        "uuid": None if uuid is None else uuid_bytes(uuid),
        "features": features,
        "block_size": block_size,
        "small": small,
    }
    if not isinstance(target, (str, bytes, os.PathLike)) and size is not None:
        # Not every file becomes longer by it: io.BytesIO does not.
        target.truncate(size)
        if target.seek(0, os.SEEK_END) < size:
            target.seek(size - 1)
            target.write(b"\0")
    image = Image(target, writable=True, _new=new)
    if owner == (0, 0):
        return image
    image.close()
    return Image(target, writable=True, owner=owner)


def uuid_bytes(uuid: UUID | str) -> list[int]:
    """A UUID as the compiled half wants it."""
    return list((uuid if isinstance(uuid, UUID) else UUID(uuid)).bytes)


__all__ += ["pure", "text_of", "uuid_bytes"]
