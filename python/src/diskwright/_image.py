"""Open images."""

from __future__ import annotations

import errno
import os
import stat as modes
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TextIO, overload
from uuid import UUID

from ._arguments import size_of
from ._copying import CopyReport, copy_between
from ._diskwright import ScanDir, Stat, Volume
from ._errors import ClosedImage
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
    return str(pure(path)) if isinstance(path, bytes) else str(path)


def _report_damage(error: OSError, report: Callable[[OSError], object]) -> None:
    """Reports why an entry cannot be resolved, unless it is a broken or looping link."""
    if isinstance(error, ClosedImage):
        raise error
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        report(error)


class Image(Volume):
    """An open image: a file system with its files.

    Every method may be called from any thread. Permissions are not checked: everything is allowed to the opener of an
    image. :meth:`sync` and :meth:`close` return when all earlier changes are durable. After a crash the image has the
    changes up to some moment. ``image / "etc" / "motd"`` is a path in it (:class:`ImagePath`); the methods of the image
    take paths as text, too.
    """

    _named: str
    _how: tuple[Any, dict[str, Any]]
    # The outermost objects of open files. A file has a reference to the image, so the image is not dropped before its files.
    _files: weakref.WeakSet[Any]
    # Protects the set. No file is added after the image began to close.
    _files_lock: threading.RLock
    _is_closing: bool
    # Held while the image is being closed.
    _close_lock: threading.RLock

    def __new__(
        cls,
        source: Any,
        /,
        *,
        writable: bool = False,
        partition: int | None = None,
        offset: int = 0,
        norecovery: bool = False,
        salvage: bool = False,
        cache_bytes: int | None = None,
        owner: tuple[int, int] = (0, 0),
        _new: dict[str, Any] | None = None,
    ) -> Self:
        how: dict[str, Any] = {
            "writable": writable,
            "partition": size_of("partition", partition),
            "offset": size_of("offset", offset),
            "norecovery": norecovery,
            "salvage": salvage,
            "cache_bytes": size_of("cache_bytes", cache_bytes),
            "owner": owner,
        }
        image = super().__new__(cls, source, how, _new)
        image._files = weakref.WeakSet()
        image._files_lock, image._close_lock, image._is_closing = threading.RLock(), threading.RLock(), False
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

    def close(self) -> None:
        """Flushes and closes all open files of the image, makes all changes durable and leaves the image clean.

        The image is closed in any case. The first error of a file is raised after that. Other threads may use the image and
        its files meanwhile: a write either fails or is in the image.
        """
        # The lock is not taken in a child after a fork: a thread that the child does not have may hold it.
        if not self.closed:
            with self._close_lock:
                self._close_all()

    def _close_all(self) -> None:
        if self.closed:
            return
        self._check()
        with self._files_lock:
            self._is_closing = True
            files = list(self._files)
        failed: Exception | None = None
        for file in files:
            try:
                file.close()
            except Exception as error:
                failed = failed or error
        try:
            self._close()
        except OSError as error:
            if failed is not None and error.__cause__ is None:
                raise error from failed
            raise
        if failed is not None:
            raise failed

    def _add(self, file: Any) -> None:
        """Adds an open file, which is closed with the image."""
        with self._files_lock:
            if self._is_closing:
                raise ClosedImage(errno.EBADF, "the image is closed", file.name)
            self._files.add(file)

    def __del__(self) -> None:
        try:
            forgotten = self.writable and not self.closed
        except Exception:  # It was never opened.
            return
        if forgotten:
            warnings.warn(f"unclosed image {self!r}", ResourceWarning, stacklevel=2, source=self)
            if self._file_count():
                # Image and file were freed as a cycle. The engine closes the image after the last file, whose buffer is not flushed yet.
                return
            try:
                self.close()
            except OSError:
                pass

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports pickling of images in host files that are open for reading: other processes open them again."""
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

    def statvfs(self, path: ImagePathLike = "/") -> os.statvfs_result:
        """Returns totals of space and inodes in the form of ``os.statvfs``."""
        self.stat(path)
        found = self.statfs()
        flags = 0 if self.writable else os.ST_RDONLY
        sizes = (found.block_size, found.block_size, found.blocks, found.blocks_free, found.blocks_free)
        inodes = (found.inodes, found.inodes_free, found.inodes_free)
        return os.statvfs_result((*sizes, *inodes, flags, found.name_len_max))

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

    def glob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[ImagePath]:
        """The paths that match a pattern, from the root on: see :meth:`ImagePath.glob`."""
        return self.root.glob(
            str(pattern).lstrip("/"), case_sensitive=case_sensitive, recurse_symlinks=recurse_symlinks
        )

    def is_dir(self, path: ImagePathLike) -> bool:
        """Whether a path leads to a directory."""
        return (self / path).is_dir()

    def is_file(self, path: ImagePathLike) -> bool:
        """Whether a path leads to a regular file."""
        return (self / path).is_file()

    def is_symlink(self, path: ImagePathLike) -> bool:
        """Whether a path is a symbolic link."""
        return (self / path).is_symlink()

    def samefile(self, path: ImagePathLike, other: ImagePathLike) -> bool:
        """Whether two paths lead to the same file. Paths of two images never do."""
        return (self / path).samefile(other)

    # Listing.

    def listdir(self, path: ImagePathLike = "/") -> list[str]:
        """The names in a directory."""
        return self._listdir(path)

    def scandir(self, path: ImagePathLike = "/") -> ScanDir:
        """Returns the entries of a directory in the form of ``os.scandir``."""
        return self._scandir(path)

    def walk(
        self,
        top: ImagePathLike = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Each directory from ``top`` down, with the names in it: as ``os.walk``.

        An entry that cannot be resolved is among the files. Damage is passed to ``onerror``, and the walk continues. A
        directory that is inside itself, as in damaged images, is an error there and is not entered again.
        """
        return self._walk(top, topdown, onerror, followlinks, True)

    def _walk(
        self,
        top: ImagePathLike,
        topdown: bool,
        onerror: Callable[[OSError], object] | None,
        followlinks: bool,
        links_as_dirs: bool,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        self._check_owner(top)
        report = onerror if onerror is not None else lambda error: None
        # Directories to list, with the inode numbers of their ancestors, and for a bottom-up walk those already listed.
        above: tuple[Any, ...] = ()
        pending: list[Any] = [(text_of(top), None, above)]
        while pending:
            step = pending.pop()
            if len(step) == 1:
                yield step[0]
                continue
            path, ino, above = step
            listed = self._walk_step(path, report, links_as_dirs)
            if listed is None:
                continue
            dirs, files, inodes, links = listed
            if topdown:
                yield path, dirs, files
            else:
                pending.append(((path, dirs, files),))
            above = (ino, above) if ino is not None else above
            start = path if path.endswith("/") or not path else path + "/"
            for name in reversed(dirs):
                if name in links:
                    if followlinks:
                        pending.append((start + name, None, above))
                elif _is_inside_itself(inodes.get(name), above):
                    report(OSError(errno.ELOOP, "the directory contains itself; the image is damaged", start + name))
                else:
                    pending.append((start + name, inodes.get(name), above))

    def _walk_step(
        self, path: str, report: Callable[[OSError], object], links_as_dirs: bool
    ) -> tuple[list[str], list[str], dict[str, int], set[str]] | None:
        """Directories and other files in a directory, the inode numbers of the former and the links among them."""
        dirs: list[str] = []
        files: list[str] = []
        inodes: dict[str, int] = {}
        links: set[str] = set()
        try:
            entries = self.scandir(path)
        except ClosedImage:
            raise
        except OSError as error:
            report(error)
            return None
        with entries:
            while True:
                try:
                    for entry in entries:
                        name = entry.name
                        try:
                            is_dir = entry.is_dir()
                        except OSError as error:
                            is_dir = False
                            _report_damage(error, report)
                        # The type of an entry that is a directory is known.
                        is_link = is_dir and entry.is_symlink()
                        if not is_dir or (is_link and not links_as_dirs):
                            files.append(name)
                            continue
                        dirs.append(name)
                        if is_link:
                            links.add(name)
                        else:
                            inodes[name] = entry.inode()
                    return dirs, files, inodes, links
                except ClosedImage:
                    raise
                except OSError as error:
                    # The directory is partly damaged. The entries after the damage are listed.
                    report(error)

    def tree(
        self,
        top: ImagePathLike = "/",
        *,
        sorted: bool = False,
        onerror: Callable[[OSError], object] | None = None,
    ) -> Iterator[tuple[str, Stat]]:
        """Everything from ``top`` down with its attributes, ``top`` first: the fastest way through an image.

        Directories come before their contents, links are not followed. With ``onerror``, it is called with the error of
        each file that cannot be read, and the listing continues. Without it, the error is raised.
        """
        return self._tree(top, sorted, onerror)

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
        """Opens a file like the function ``open``. ``permissions`` are the permissions of a new file.

        Closing the image flushes and closes it.
        """
        self._check_owner(path)
        return open_file(
            self, text_of(path), mode, buffering, encoding, errors, newline, permissions
        )

    def read_text(
        self,
        path: ImagePathLike,
        encoding: str | None = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> str:
        """Returns the contents of a file as text."""
        return (self / path).read_text(encoding, errors, newline)

    def write_text(
        self,
        path: ImagePathLike,
        data: str,
        encoding: str | None = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Creates or replaces the contents of a file with text, and returns the number of characters."""
        return (self / path).write_text(data, encoding, errors, newline)

    def copy_file(self, source: ImagePathLike, target: ImagePathLike) -> int:
        """Copies contents and permissions of a file, and returns the number of bytes.

        Both may be an :class:`ImagePath` of another image.
        """
        ours = [not isinstance(path, ImagePath) or path.image is self for path in (source, target)]
        if all(ours):
            return self._copy_file(source, target)
        paths = [path if isinstance(path, ImagePath) else self / path for path in (source, target)]
        return copy_between(paths[0], paths[1])

    # Names and attributes.

    def mkdir(self, path: ImagePathLike, mode: int | None = None) -> None:
        """Creates a directory, by default with the permissions 0o755."""
        self._mkdir(path, mode)

    def makedirs(self, path: ImagePathLike, mode: int | None = None, exist_ok: bool = False) -> None:
        """Creates a directory and the missing ones above it, as ``os.makedirs``. ``mode`` is for the last one."""
        self._check_owner(path)
        parent = text_of(path).rstrip("/").rpartition("/")[0]
        if parent:
            self._makedirs(parent)
        try:
            self._mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir(path):
                raise

    def mknod(
        self,
        path: ImagePathLike,
        mode: int = 0o600,
        device: int = 0,
        *,
        major: int | None = None,
        minor: int | None = None,
    ) -> None:
        """Creates a device, pipe, socket or empty file, as ``os.mknod``.

        ``device`` is a number of ``os.makedev``; ``major`` and ``minor`` replace it.
        """
        self._mknod(
            path,
            mode if modes.S_IFMT(mode) else mode | modes.S_IFREG,
            os.major(device) if major is None else major,
            os.minor(device) if minor is None else minor,
        )

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
        """Copies a file or directory of the host with its contents to ``target``, or into it if it is a directory.

        With ``preserve``, owners, permissions, times and extended attributes are kept. Other threads remove no names
        during the copy.
        """
        return _report(self._copy_in(source, target, preserve), None)

    def copy_out(
        self,
        source: ImagePathLike,
        target: StrOrBytesPath,
        *,
        preserve: bool = True,
        onerror: Callable[[OSError], object] | None = None,
    ) -> CopyReport:
        """Copies a file or directory with its contents to ``target`` on the host, or into it if it is a directory.

        With ``preserve``, owners (as root), permissions, times and extended attributes are kept. With ``onerror``, the copy
        continues after damage: files that cannot be read are left out or filled with zeros. ``onerror`` is called with the
        errors at the end, with at most 10,000; ``unreadable`` of the report counts all.
        """
        return _report(self._copy_out(source, target, preserve, onerror is not None), onerror)

    def _check_owner(self, path: ImagePathLike) -> None:
        if isinstance(path, ImagePath) and path.image is not self:
            raise OSError(errno.EXDEV, "the path belongs to another image", str(path))


def _is_inside_itself(ino: int | None, above: tuple[Any, ...]) -> bool:
    while above:
        if above[0] == ino:
            return True
        above = above[1]
    return False


def _report(found: dict[str, Any], onerror: Callable[[OSError], object] | None) -> CopyReport:
    report = CopyReport(
        found["files"], found["bytes"], found["left_out"], tuple(found["warnings"]), found["unreadable"]
    )
    if onerror is not None:
        for error in found["errors"]:
            onerror(error)
    return report


def _opened_again(source: str, how: dict[str, Any]) -> Image:
    return Image(source, **how)


def open_image(
    source: StrOrBytesPath | Any,
    *,
    writable: bool = False,
    partition: int | None = None,
    offset: int = 0,
    norecovery: bool = False,
    salvage: bool = False,
    cache_bytes: int | None = None,
    owner: tuple[int, int] = (0, 0),
) -> Image:
    """Opens an image: a file, a block device, or any file object.

    - ``source``: a path; a binary file object with ``seek``, ``read`` and, to change the image, ``write``; or an object
      with ``size``, ``pread(size, offset)`` and ``pwrite(data, offset)``.
    - ``writable``: to change it. In a file it is locked against other programs then.
    - ``partition``: the number of a partition of a disk (GPT or MBR), from 1 on (see :func:`partitions`); ``offset``: the
      first byte of the image.
    - ``norecovery``: ignore the contents of the journal or log.
    - ``salvage``: repair a damaged image in memory and read the result, as ``diskwright extract --salvage``. The file is not
      written. Only for files of the host.
    - ``cache_bytes``: memory for metadata. ``owner``: user and group of new files.

    Raises :class:`UnsupportedImage` if there is no known file system, :class:`ImageInUse` if another program or mount uses
    it, :class:`DamagedImage` if it is too damaged to be opened.
    """
    return Image(
        source,
        writable=writable,
        partition=partition,
        offset=offset,
        norecovery=norecovery,
        salvage=salvage,
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
    """Creates an empty file system and opens it for writing: in a new file of ``size`` bytes, or on a file object.

    ``features`` changes the defaults (``"-has_journal,casefold"``), in the words of mke2fs and mkfs.xfs. ``small``
    allows XFS below 300 MiB. Sizes and labels that no file system can have are a :class:`ValueError`.
    """
    size, block_size = size_of("size", size), size_of("block_size", block_size)
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
        # Some file objects, such as io.BytesIO, do not grow by it.
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
    """Converts a UUID for the compiled half."""
    return list((uuid if isinstance(uuid, UUID) else UUID(uuid)).bytes)


__all__ += ["pure", "text_of", "uuid_bytes"]
