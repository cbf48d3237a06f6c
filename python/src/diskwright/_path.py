"""Paths in an image, with the methods of ``pathlib.Path``."""

from __future__ import annotations

import errno
import functools
import re
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Literal, TextIO, overload

from ._errors import ClosedImage
from ._types import ImagePathLike, StrOrBytesPath

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._copying import CopyReport
    from ._diskwright import DirEntry, Stat
    from ._file import RawFile
    from ._image import Image

__all__ = ["ImagePath"]

#: The limit of Linux: longer bytes are contents that were passed as a path.
PATH_BYTES_MAX = 4096


def pure(path: ImagePathLike) -> PurePosixPath:
    """A path without its image."""
    if isinstance(path, ImagePath):
        return path._pure
    if isinstance(path, bytes):
        if len(path) > PATH_BYTES_MAX:
            raise ValueError(f"bytes are taken as a path, and {len(path)} bytes are too long for one")
        path = path.decode("utf-8", "surrogateescape")
    return PurePosixPath(path)


def _matches(parts: tuple[str, ...], patterns: tuple[str, ...], flags: int) -> bool:
    """Whether all parts match the patterns, of which ``**`` matches any number of parts."""
    # Item `n` says whether the patterns so far match the first `n` parts.
    reached = [True] + [False] * len(parts)
    for pattern in patterns:
        if pattern == "**":
            for count in range(1, len(reached)):
                reached[count] = reached[count] or reached[count - 1]
            continue
        matches = re.compile(translate(pattern), flags).match
        steps = zip(reached, parts)
        reached = [False] + [is_reached and bool(matches(part)) for is_reached, part in steps]
    return reached[-1]


def _leads_to_directory(entry: DirEntry, follow_symlinks: bool) -> bool:
    """Whether an entry is a directory. An entry that cannot be resolved is not."""
    try:
        return entry.is_dir(follow_symlinks=follow_symlinks)
    except ClosedImage:
        raise
    except OSError:
        return False


def _flags(case_sensitive: bool | None) -> int:
    return re.IGNORECASE if case_sensitive is False else 0


@functools.total_ordering
class ImagePath:
    """A file or directory of an image, with the interface of ``pathlib.Path``.

    It is not one of ``os.PathLike``: to functions of the host it would be a file of the host.
    """

    __slots__ = ("_image", "_pure", "_text")

    def __init__(self, image: Image, *segments: ImagePathLike) -> None:
        self._image = image
        self._pure = PurePosixPath("/", *map(self._own, segments))
        self._text = str(self._pure)

    def _own(self, path: ImagePathLike) -> PurePosixPath:
        """Returns a path of this image as text. Refuses a path of another image."""
        if isinstance(path, ImagePath) and path._image is not self._image:
            raise OSError(errno.EXDEV, "the path belongs to another image", path._text)
        return pure(path)

    def _with(self, path: PurePosixPath) -> Self:
        other = object.__new__(type(self))
        other._image = self._image
        other._pure = path
        other._text = str(path)
        return other

    # Properties of the path.

    @property
    def image(self) -> Image:
        """The image."""
        return self._image

    @property
    def parts(self) -> tuple[str, ...]:
        """The root and the names of the path."""
        return self._pure.parts

    @property
    def drive(self) -> str:
        """Always empty."""
        return ""

    @property
    def root(self) -> str:
        """Always a slash."""
        return "/"

    @property
    def anchor(self) -> str:
        """Always a slash."""
        return "/"

    @property
    def name(self) -> str:
        """The last name."""
        return self._pure.name

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name."""
        return self._pure.suffixes

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return self._pure.stem

    @property
    def parent(self) -> Self:
        """The directory above."""
        return self._with(self._pure.parent)

    @property
    def parents(self) -> Sequence[Self]:
        """All directories above, the nearest first."""
        return tuple(map(self._with, self._pure.parents))

    def as_posix(self) -> str:
        """The path as text."""
        return self._text

    def is_absolute(self) -> bool:
        """Always true."""
        return True

    def absolute(self) -> Self:
        """The path itself."""
        return self

    def joinpath(self, *segments: ImagePathLike) -> Self:
        """The path with more segments."""
        return self._with(self._pure.joinpath(*map(self._own, segments)))

    def __truediv__(self, segment: ImagePathLike) -> Self:
        try:
            return self._with(self._pure / self._own(segment))
        except TypeError:
            return NotImplemented

    def with_segments(self, *segments: ImagePathLike) -> Self:
        """A path of other segments in the same image."""
        return self._with(PurePosixPath("/", *map(self._own, segments)))

    def with_name(self, name: str) -> Self:
        """The path with another last name."""
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Self:
        """The path with another stem."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Self:
        """The path with another suffix."""
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, other: ImagePathLike, *, walk_up: bool = False) -> PurePosixPath:
        """The path relative to another one above it; with ``walk_up``, it may contain ``..``."""
        base = PurePosixPath("/", self._own(other))
        ups: list[str] = []
        while walk_up and not self._pure.is_relative_to(base):
            if base.name == "..":
                raise ValueError(f"'..' segment in {str(base)!r} cannot be walked")
            base = base.parent
            ups.append("..")
        return PurePosixPath(*ups, self._pure.relative_to(base))

    def is_relative_to(self, other: ImagePathLike) -> bool:
        """Whether it is the other path or below it."""
        is_ours = not isinstance(other, ImagePath) or other._image is self._image
        return is_ours and self._pure.is_relative_to(PurePosixPath("/", pure(other)))

    def match(self, pattern: str, *, case_sensitive: bool | None = None) -> bool:
        """Whether a pattern matches: a relative one the end of the path, an absolute one all of it."""
        if case_sensitive is False:
            return PurePosixPath(self._text.casefold()).match(str(pattern).casefold())
        return self._pure.match(str(pattern))

    def full_match(self, pattern: str, *, case_sensitive: bool | None = None) -> bool:
        """Whether a pattern matches the whole path; ``**`` matches any number of names."""
        return _matches(self.parts, PurePosixPath(pattern).parts, _flags(case_sensitive))

    def __str__(self) -> str:
        return self._text

    def __bytes__(self) -> bytes:
        return self._text.encode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return f"<ImagePath {self._text!r} of {self._image._shown()}>"

    def __hash__(self) -> int:
        return hash((id(self._image), self._pure))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ImagePath):
            return NotImplemented
        return self._image is other._image and self._pure == other._pure

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ImagePath) or self._image is not other._image:
            return NotImplemented
        return self._pure < other._pure

    # Properties of the file.

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Returns the attributes of the file."""
        return self._image.stat(self._text, follow_symlinks=follow_symlinks)

    def lstat(self) -> Stat:
        """Returns the attributes without following a symbolic link."""
        return self._image.lstat(self._text)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it exists. False for a broken or looping symbolic link that is followed."""
        if follow_symlinks:
            return self._image.exists(self._text)
        return self._type(follow_symlinks=False) != 0

    def _type(self, *, follow_symlinks: bool = True) -> int:
        """Returns the file type bits, or 0 if the file does not exist."""
        try:
            return modes.S_IFMT(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return 0
            raise

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory."""
        return self._type(follow_symlinks=follow_symlinks) == modes.S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file."""
        return self._type(follow_symlinks=follow_symlinks) == modes.S_IFREG

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._type(follow_symlinks=False) == modes.S_IFLNK

    def is_block_device(self) -> bool:
        """Whether it is a block device."""
        return self._type() == modes.S_IFBLK

    def is_char_device(self) -> bool:
        """Whether it is a character device."""
        return self._type() == modes.S_IFCHR

    def is_fifo(self) -> bool:
        """Whether it is a named pipe."""
        return self._type() == modes.S_IFIFO

    def is_socket(self) -> bool:
        """Whether it is a socket."""
        return self._type() == modes.S_IFSOCK

    def is_mount(self) -> bool:
        """Whether it is the root: nothing is mounted in an image."""
        return self._text == "/"

    def is_junction(self) -> bool:
        """Always false: junctions exist on Windows only."""
        return False

    def owner(self, *, follow_symlinks: bool = True) -> int:
        """Returns the number of the owner, because an image has no user names."""
        return self.stat(follow_symlinks=follow_symlinks).st_uid

    def group(self, *, follow_symlinks: bool = True) -> int:
        """The number of its group."""
        return self.stat(follow_symlinks=follow_symlinks).st_gid

    def samefile(self, other: ImagePathLike) -> bool:
        """Whether another path leads to the same file. One of another image never does."""
        ours = self.stat()
        if isinstance(other, ImagePath) and other._image is not self._image:
            other.stat()
            return False
        return ours.st_ino == self._image.stat(str(PurePosixPath("/", pure(other)))).st_ino

    def resolve(self, strict: bool = False) -> Self:
        """Resolves symbolic links and ``..`` as far as the path exists."""
        rest: list[str] = []
        path = self._pure
        while True:
            try:
                found = PurePosixPath(self._image.resolve(str(path)))
                return self._with(found.joinpath(*reversed(rest)))
            except (FileNotFoundError, NotADirectoryError):
                if strict or path == path.parent:
                    raise
                rest.append(path.name)
                path = path.parent

    def readlink(self) -> PurePosixPath:
        """Returns the target of a symbolic link unchanged. It can be relative or missing."""
        return PurePosixPath(self._image.readlink(self._text))

    # Contents of directories.

    def iterdir(self) -> Iterator[Self]:
        """Iterates over a directory in on-disk order."""
        names = self._image.listdir(self._text)
        return (self._with(self._pure / name) for name in names)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Each directory below, with the names of directories and of everything else in it.

        Errors are treated as by :meth:`Image.walk`. Symbolic links to directories are among the files, unless they are
        followed.
        """
        walk = self._image._walk(self._text, top_down, on_error, follow_symlinks, follow_symlinks)
        return ((self._with(PurePosixPath(top)), dirs, files) for top, dirs, files in walk)

    def glob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """The paths that match: ``*``, ``?`` and ``[…]`` in names, ``**`` for any directories.

        ``**`` follows symbolic links only with ``recurse_symlinks``.
        """
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        seen: set[str] = set()
        for found in self._glob(parts, case_sensitive, recurse_symlinks):
            if found._text not in seen:
                seen.add(found._text)
                yield found

    def rglob(
        self, pattern: str, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """The paths anywhere below that match."""
        return self.glob(
            f"**/{pattern}", case_sensitive=case_sensitive, recurse_symlinks=recurse_symlinks
        )

    def _glob(self, parts: tuple[str, ...], case: bool | None, links: bool) -> Iterator[Self]:
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._glob(rest, case, links) if rest else iter([self])
            for entry in self._entries():
                if _leads_to_directory(entry, links):
                    yield from self._with(self._pure / entry.name)._glob(parts, case, links)
                elif not rest:
                    yield self._with(self._pure / entry.name)
            return
        if part == ".." or (case is not False and not re.search(r"[*?[]", part)):
            found = self._with(self._pure / part)
            if found.exists(follow_symlinks=False):
                yield from found._glob(rest, case, links) if rest else iter([found])
            return
        matches = re.compile(translate(part), _flags(case)).match
        for entry in self._entries():
            if matches(entry.name) and (not rest or _leads_to_directory(entry, True)):
                found = self._with(self._pure / entry.name)
                yield from found._glob(rest, case, links) if rest else iter([found])

    def _entries(self) -> list[DirEntry]:
        try:
            with self._image.scandir(self._text) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    # Contents.

    @overload
    def open(
        self,
        mode: Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+", "rt", "wt", "at", "xt"] = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> TextIO: ...
    @overload
    def open(
        self,
        mode: Literal["rb", "wb", "ab", "xb", "rb+", "wb+", "ab+", "xb+", "r+b", "w+b", "a+b", "x+b"],
        buffering: int = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
    ) -> BinaryIO: ...
    @overload
    def open(
        self,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> RawFile | BinaryIO | TextIO: ...
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> RawFile | BinaryIO | TextIO:
        """Opens the file like the function ``open``."""
        return self._image.open(self._text, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """Returns the contents."""
        return self._image.read_bytes(self._text)

    def read_text(
        self,
        encoding: str | None = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> str:
        """Returns the contents as text."""
        with self.open("r", encoding=encoding, errors=errors, newline=newline) as file:
            return file.read()

    def write_bytes(self, data: Buffer) -> int:
        """Creates or replaces the contents, and returns the number of bytes."""
        return self._image.write_bytes(self._text, data)

    def write_text(
        self,
        data: str,
        encoding: str | None = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Creates or replaces the contents with text, and returns the number of characters."""
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    # Names.

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Creates an empty file, or sets the times of an existing one to now."""
        if exist_ok and self.exists():
            self._image.utime(self._text)
            return
        self._image.open(self._text, "xb", 0, permissions=mode).close()

    def mkdir(self, mode: int | None = None, parents: bool = False, exist_ok: bool = False) -> None:
        """Creates a directory, by default with the permissions 0o755."""
        try:
            self._image.mkdir(self._text, mode)
        except FileNotFoundError:
            if not parents or self._pure == self._pure.parent:
                raise
            self._image.makedirs(str(self._pure.parent), exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        """Removes an empty directory."""
        self._image.rmdir(self._text)

    def rmtree(self) -> None:
        """Removes a directory with its contents."""
        self._image.rmtree(self._text)

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes a file that is not a directory."""
        try:
            self._image.unlink(self._text)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _target(self, target: ImagePathLike) -> Self:
        if isinstance(target, ImagePath) and target._image is not self._image:
            raise OSError(errno.EXDEV, "not in the same image", self._text, None, str(target))
        return self._with(PurePosixPath("/", self._own(target)))

    def rename(self, target: ImagePathLike) -> Self:
        """Renames it, and replaces an existing target."""
        found = self._target(target)
        self._image.rename(self._text, found._text)
        return found

    def replace(self, target: ImagePathLike) -> Self:
        """Renames it, and replaces an existing target."""
        return self.rename(target)

    def symlink_to(self, target: ImagePathLike, target_is_directory: bool = False) -> None:
        """Creates it as a symbolic link to ``target``, which need not exist."""
        text = target if isinstance(target, (str, bytes)) else str(target)
        self._image.symlink(text, self._text)

    def hardlink_to(self, target: ImagePathLike) -> None:
        """Creates it as another name of ``target``."""
        self._image.link(self._target(target)._text, self._text)

    def copy(self, target: ImagePathLike) -> ImagePath:
        """Copies contents and permissions of a file to another one, of this image or, as a path of it, of another image."""
        found = target if isinstance(target, ImagePath) else self._target(target)
        self._image.copy_file(self, found)
        return found

    # Attributes.

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets the permission bits."""
        self._image.chmod(self._text, mode, follow_symlinks=follow_symlinks)

    def lchmod(self, mode: int) -> None:
        """Sets the permission bits, and does not follow a symbolic link."""
        self.chmod(mode, follow_symlinks=False)

    def chown(
        self, uid: int | None = None, gid: int | None = None, *, follow_symlinks: bool = True
    ) -> None:
        """Sets owner and group. None and -1 keep the present one."""
        self._image.chown(self._text, uid, gid, follow_symlinks=follow_symlinks)

    def utime(
        self,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of last access and change: see :meth:`Image.utime`."""
        self._image.utime(self._text, times, ns=ns, follow_symlinks=follow_symlinks)

    def getxattr(self, attribute: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """Returns the value of an extended attribute."""
        return self._image.getxattr(self._text, attribute, follow_symlinks=follow_symlinks)

    def setxattr(
        self, attribute: str | bytes, value: Buffer, flags: int = 0, *, follow_symlinks: bool = True
    ) -> None:
        """Sets an extended attribute. ``flags`` is 0, ``os.XATTR_CREATE`` or ``os.XATTR_REPLACE``."""
        self._image.setxattr(self._text, attribute, value, flags, follow_symlinks=follow_symlinks)

    def listxattr(self, *, follow_symlinks: bool = True) -> list[str]:
        """Returns the names of the extended attributes."""
        return self._image.listxattr(self._text, follow_symlinks=follow_symlinks)

    def removexattr(self, attribute: str | bytes, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        self._image.removexattr(self._text, attribute, follow_symlinks=follow_symlinks)

    # From and to the host.

    def copy_out(
        self,
        target: StrOrBytesPath,
        *,
        preserve: bool = True,
        onerror: Callable[[OSError], object] | None = None,
    ) -> CopyReport:
        """Copies it with its contents to the host: see :meth:`Image.copy_out`."""
        return self._image.copy_out(self._text, target, preserve=preserve, onerror=onerror)

    def copy_in(self, source: StrOrBytesPath, *, preserve: bool = True) -> CopyReport:
        """Copies a file or directory of the host to it: see :meth:`Image.copy_in`."""
        return self._image.copy_in(source, self._text, preserve=preserve)
