"""Paths in an image, with the methods of ``pathlib.Path``."""

from __future__ import annotations

import errno
import functools
import re
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from fnmatch import translate
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO, overload

from ._types import ImagePathLike, StrOrBytesPath

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from ._copying import CopyReport
    from ._diskwright import Stat
    from ._file import RawFile
    from ._image import Image

__all__ = ["ImagePath"]


def pure(path: ImagePathLike) -> PurePosixPath:
    """A path without its image."""
    if isinstance(path, ImagePath):
        return path._pure
    if isinstance(path, bytes):
        path = path.decode("utf-8", "surrogateescape")
    return PurePosixPath(path)


@functools.total_ordering
class ImagePath:
    """A file or directory of an image, as ``pathlib.Path`` is one of the host.

    It is not one of ``os.PathLike``: to functions of the host it would be a file of the host.
    """

    __slots__ = ("_image", "_pure", "_text")

    def __init__(self, image: Image, *segments: ImagePathLike) -> None:
        self._image = image
        self._pure = PurePosixPath("/", *map(pure, segments))
        self._text = str(self._pure)

    def _with(self, path: PurePosixPath) -> Self:
        other = object.__new__(type(self))
        other._image = self._image
        other._pure = path
        other._text = str(path)
        return other

    # What the path itself says.

    @property
    def image(self) -> Image:
        """The image."""
        return self._image

    @property
    def parts(self) -> tuple[str, ...]:
        return self._pure.parts

    @property
    def drive(self) -> str:
        return ""

    @property
    def root(self) -> str:
        return "/"

    @property
    def anchor(self) -> str:
        return "/"

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        return self._pure.suffixes

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def parent(self) -> Self:
        return self._with(self._pure.parent)

    @property
    def parents(self) -> Sequence[Self]:
        return tuple(map(self._with, self._pure.parents))

    def as_posix(self) -> str:
        return self._text

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> Self:
        return self

    def joinpath(self, *segments: ImagePathLike) -> Self:
        return self._with(self._pure.joinpath(*map(pure, segments)))

    def __truediv__(self, segment: ImagePathLike) -> Self:
        try:
            return self._with(self._pure / pure(segment))
        except TypeError:
            return NotImplemented

    def with_segments(self, *segments: ImagePathLike) -> Self:
        return self._with(PurePosixPath("/", *map(pure, segments)))

    def with_name(self, name: str) -> Self:
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Self:
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Self:
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, other: ImagePathLike) -> PurePosixPath:
        """The path from another one that it lies below."""
        return self._pure.relative_to(PurePosixPath("/", pure(other)))

    def is_relative_to(self, other: ImagePathLike) -> bool:
        return self._pure.is_relative_to(PurePosixPath("/", pure(other)))

    def match(self, pattern: str) -> bool:
        return self._pure.match(pattern)

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

    # What is there.

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        return self._image.stat(self._text, follow_symlinks=follow_symlinks)

    def lstat(self) -> Stat:
        return self._image.lstat(self._text)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks:
            return self._image.exists(self._text)
        return self._type(follow_symlinks=False) != 0

    def _type(self, *, follow_symlinks: bool = True) -> int:
        """The bits of its type; 0 if it is not there."""
        try:
            return modes.S_IFMT(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return 0
            raise

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._type(follow_symlinks=follow_symlinks) == modes.S_IFDIR

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._type(follow_symlinks=follow_symlinks) == modes.S_IFREG

    def is_symlink(self) -> bool:
        return self._type(follow_symlinks=False) == modes.S_IFLNK

    def is_block_device(self) -> bool:
        return self._type() == modes.S_IFBLK

    def is_char_device(self) -> bool:
        return self._type() == modes.S_IFCHR

    def is_fifo(self) -> bool:
        return self._type() == modes.S_IFIFO

    def is_socket(self) -> bool:
        return self._type() == modes.S_IFSOCK

    def is_mount(self) -> bool:
        """Whether it is the root: nothing is mounted in an image."""
        return self._text == "/"

    def owner(self) -> int:
        """The number of its owner: names are those of whoever uses the image."""
        return self.stat().st_uid

    def group(self) -> int:
        """The number of its group."""
        return self.stat().st_gid

    def samefile(self, other: ImagePathLike) -> bool:
        return self.stat().st_ino == self._image.stat(str(PurePosixPath("/", pure(other)))).st_ino

    def resolve(self, strict: bool = False) -> Self:
        """The path without symbolic links and ``..``, as far as it leads somewhere."""
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
        """The target of a symbolic link, as it is: it may be relative, or lead nowhere."""
        return PurePosixPath(self._image.readlink(self._text))

    # What is in it.

    def iterdir(self) -> Iterator[Self]:
        """What is in a directory, in the directory's own order."""
        names = self._image.listdir(self._text)
        return (self._with(self._pure / name) for name in names)

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Each directory below, with the names of directories and of everything else in it."""
        walk = self._image.walk(self._text, top_down, on_error, follow_symlinks)
        return ((self._with(PurePosixPath(top)), dirs, files) for top, dirs, files in walk)

    def glob(self, pattern: str) -> Iterator[Self]:
        """What matches: ``*``, ``?`` and ``[…]`` in names, ``**`` for any directories. No link is followed by ``**``."""
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        seen: set[str] = set()
        for found in self._glob(parts):
            if found._text not in seen:
                seen.add(found._text)
                yield found

    def rglob(self, pattern: str) -> Iterator[Self]:
        """What matches anywhere below."""
        return self.glob("**/" + pattern)

    def _glob(self, parts: tuple[str, ...]) -> Iterator[Self]:
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self._glob(rest) if rest else iter([self])
            for entry in self._entries():
                if entry.is_dir(follow_symlinks=False):
                    yield from self._with(self._pure / entry.name)._glob(parts)
                elif not rest:
                    yield self._with(self._pure / entry.name)
            return
        if part == ".." or not re.search(r"[*?[]", part):
            found = self._with(self._pure / part)
            if found.exists(follow_symlinks=False):
                yield from found._glob(rest) if rest else iter([found])
            return
        matches = re.compile(translate(part)).match
        for entry in self._entries():
            if matches(entry.name) and (not rest or entry.is_dir()):
                found = self._with(self._pure / entry.name)
                yield from found._glob(rest) if rest else iter([found])

    def _entries(self) -> list[Any]:
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
        """Opens it as the function ``open`` does a file of the host."""
        return self._image.open(self._text, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        return self._image.read_bytes(self._text)

    def read_text(self, encoding: str | None = "utf-8", errors: str | None = None) -> str:
        with self.open("r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_bytes(self, data: Buffer) -> int:
        return self._image.write_bytes(self._text, data)

    def write_text(
        self,
        data: str,
        encoding: str | None = "utf-8",
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    # Names.

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        """Makes an empty file, or gives one that is there the time of now."""
        if exist_ok and self.exists():
            self._image.utime(self._text)
            return
        self._image.open(self._text, "xb", 0, permissions=mode).close()

    def mkdir(self, mode: int | None = None, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory, with the permissions 0o755 unless told."""
        try:
            self._image.mkdir(self._text, mode)
        except FileNotFoundError:
            if not parents or self._pure == self._pure.parent:
                raise
            self._image.makedirs(str(self._pure.parent))
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        self._image.rmdir(self._text)

    def rmtree(self) -> None:
        """Removes a directory with all that is in it."""
        self._image.rmtree(self._text)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._image.unlink(self._text)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _target(self, target: ImagePathLike) -> Self:
        if isinstance(target, ImagePath) and target._image is not self._image:
            raise OSError(errno.EXDEV, "not in the same image", self._text, None, str(target))
        return self._with(PurePosixPath("/", pure(target)))

    def rename(self, target: ImagePathLike) -> Self:
        """Moves it; what has the new name is replaced."""
        found = self._target(target)
        self._image.rename(self._text, found._text)
        return found

    def replace(self, target: ImagePathLike) -> Self:
        return self.rename(target)

    def symlink_to(self, target: ImagePathLike, target_is_directory: bool = False) -> None:
        """Makes it a symbolic link to ``target``, which is not looked at."""
        text = target if isinstance(target, (str, bytes)) else str(target)
        self._image.symlink(text, self._text)

    def hardlink_to(self, target: ImagePathLike) -> None:
        """Makes it another name of ``target``."""
        self._image.link(self._target(target)._text, self._text)

    def copy(self, target: ImagePathLike) -> Self:
        """Copies contents and permissions of a file to another one of the image."""
        found = self._target(target)
        self._image.copy_file(self._text, found._text)
        return found

    # Attributes.

    def chmod(self, mode: int) -> None:
        self._image.chmod(self._text, mode)

    def chown(
        self, uid: int | None = None, gid: int | None = None, *, follow_symlinks: bool = True
    ) -> None:
        self._image.chown(self._text, uid, gid, follow_symlinks=follow_symlinks)

    def utime(
        self,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self._image.utime(self._text, times, ns=ns, follow_symlinks=follow_symlinks)

    def getxattr(self, name: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        return self._image.getxattr(self._text, name, follow_symlinks=follow_symlinks)

    def setxattr(self, name: str | bytes, value: Buffer, *, follow_symlinks: bool = True) -> None:
        self._image.setxattr(self._text, name, value, follow_symlinks=follow_symlinks)

    def listxattr(self, *, follow_symlinks: bool = True) -> list[str]:
        return self._image.listxattr(self._text, follow_symlinks=follow_symlinks)

    def removexattr(self, name: str | bytes, *, follow_symlinks: bool = True) -> None:
        self._image.removexattr(self._text, name, follow_symlinks=follow_symlinks)

    # From and to the host.

    def copy_out(self, target: StrOrBytesPath, *, preserve: bool = True) -> CopyReport:
        """Copies it with all that is in it to the host: see :meth:`Image.copy_out`."""
        return self._image.copy_out(self._text, target, preserve=preserve)

    def copy_in(self, source: StrOrBytesPath, *, preserve: bool = True) -> CopyReport:
        """Copies a file or directory of the host to it: see :meth:`Image.copy_in`."""
        return self._image.copy_in(source, self._text, preserve=preserve)
