"""Builds images from directories, archives, container images, other images and generated entries."""

from __future__ import annotations

import errno
import json
import os
import stat as modes
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, Union, cast
from uuid import UUID

from . import _diskwright
from ._arguments import size_of
from ._file import SEEK_DATA, SEEK_HOLE
from ._image import text_of, uuid_bytes
from ._types import ImagePathLike, StrOrBytesPath

if TYPE_CHECKING:
    import tarfile

__all__ = ["BuildReport", "Entry", "build", "convert"]

Progress: TypeAlias = Callable[[int, int], object]
"""Receives the number of entries and bytes so far. An exception that it raises cancels the operation."""

Fs: TypeAlias = Literal["ext4", "xfs"]
Output: TypeAlias = Literal["raw", "qcow2", "android-sparse", "zstd"]


@dataclass(frozen=True)
class Entry:
    """A file of an image that is to be built.

    Its type follows from the arguments: ``target`` makes a symbolic link, ``link`` another name of an earlier entry,
    ``device`` with the type bits of ``mode`` a device; ``mode`` with the bits of a directory or pipe, or a path that ends
    with a slash, makes a directory or pipe; everything else is a regular file.
    """

    path: ImagePathLike
    """Its path. Missing directories above it are created. ``"etc/"`` is a directory."""
    _: KW_ONLY
    data: bytes | StrOrBytesPath | IO[bytes] | None = None
    """Contents: bytes, a path of the host as ``os.PathLike`` or ``str``, or a file object that is read to its end."""
    mode: int | None = None
    """Type and permission bits: 0o644, for directories 0o755."""
    uid: int = 0
    gid: int = 0
    mtime: float = 0
    """Time of the last change, in seconds after 1970; ``mtime_ns`` is more exact."""
    mtime_ns: int | None = None
    target: str | None = None
    link: ImagePathLike | None = None
    device: tuple[int, int] | None = None
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


Part: TypeAlias = Union[StrOrBytesPath, IO[bytes]]
"""A path, a source in the syntax of the command line, or an archive as a file object."""

Source: TypeAlias = Union[Part, Iterable[Entry]]


@dataclass(frozen=True)
class BuildReport:
    """Result of a build."""

    image_bytes: int
    """Size of the image."""
    entries: int
    """Number of created files of all types."""
    data_bytes: int
    """Number of bytes of contents."""
    details: Mapping[str, Any]
    """The complete report of the command."""


def _report(text: str) -> BuildReport:
    told = json.loads(text)
    return BuildReport(told["image_bytes"], told["entries"], told["data_bytes"], told)


def _epoch() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH")
    return None if text is None else int(text)


def _features(features: str | Sequence[str]) -> list[str]:
    names = features.split(",") if isinstance(features, str) else features
    return [name for name in names if name]


def build(
    source: Source | Sequence[Part | tuple[Part, ImagePathLike]],
    image: StrOrBytesPath | IO[bytes],
    *,
    fs: Fs = "ext4",
    size: int | None = None,
    free: int = 0,
    label: str | None = None,
    uuid: UUID | str | None = None,
    features: str | Sequence[str] = (),
    block_size: int | None = None,
    inode_size: int | None = None,
    inodes: int | None = None,
    small: bool = False,
    dedupe: Literal["files", "blocks"] | None = None,
    owner: tuple[int, int] | None = None,
    platform: str | None = None,
    threads: int | None = None,
    force: bool = False,
    source_date_epoch: int | None = None,
    output: Output = "raw",
    progress: Progress | None = None,
) -> BuildReport:
    """Builds an image. The file gets its name when it is complete: a failed build leaves nothing.

    - ``source``: a directory or a tar archive (also ``.gz`` and ``.zst``); a text that names more, as on the command
      line (``"oci:dir:tag"``, ``"docker-archive:file"``, ``"image:disk.img:2"``, ``"mtree:file"``); a binary file object
      with an archive; a list of these, in which later ones replace files of earlier ones, and each may be a pair with the
      directory of the image for it; or an iterable of :class:`Entry`. File objects and entries are kept in a temporary
      file during the build.
    - ``image``: a path, or a writable binary file object. That one gets the image from its current position on, when it
      is complete. It keeps holes if it can seek.
    - ``size``: bytes; by default the minimum for the source and ``free`` bytes.
    - ``owner``: user and group of everything, instead of the source's.
    - ``force``: replace an existing image. ``small``: allow XFS below 300 MiB.
    - ``source_date_epoch``: the latest time in the image; by default that of the environment. The same source and
      options give the same bytes.
    - ``progress(entries, bytes)`` is called at the beginning, at intervals, and at the end; an exception of it ends the
      build.
    """
    if size is not None and free:
        raise ValueError("size and free exclude each other: free requires a computed size")
    with ExitStack() as kept:
        into = None if _is_path(image) else cast("IO[bytes]", image)
        place = _place(image, kept)
        sources = _sources(source, os.path.dirname(os.path.abspath(os.fsdecode(place))), kept)
        args = {
            "sources": sources,
            "image": place,
            "fs": fs,
            "size": size_of("size", size),
            "free": size_of("free", free),
            "label": label,
            "uuid": None if uuid is None else uuid_bytes(uuid),
            "features": _features(features),
            "block_size": size_of("block_size", block_size),
            "inode_size": size_of("inode_size", inode_size),
            "inodes": size_of("inodes", inodes),
            "small": small and fs == "xfs",
            "dedupe": dedupe,
            "owner": owner,
            "platform": platform,
            "threads": size_of("threads", threads),
            "force": force,
            "source_date_epoch": _epoch() if source_date_epoch is None else source_date_epoch,
            "output": output,
        }
        report = _report(_diskwright.build(args, progress))
        if into is not None:
            with open(place, "rb", 0) as built:
                _pour(built, into)
        return report


def _is_path(source: object) -> bool:
    return isinstance(source, (str, bytes, os.PathLike))


def _place(image: Any, kept: ExitStack) -> StrOrBytesPath:
    """Returns the path of the image to build: for a file object, in a temporary directory."""
    if _is_path(image):
        return cast("StrOrBytesPath", image)
    if not hasattr(image, "write"):
        raise TypeError(f"image must be a path or a file object with write, not {type(image).__name__}")
    import tempfile

    return os.path.join(kept.enter_context(tempfile.TemporaryDirectory(prefix="diskwright-")), "image")


def _pour(built: Any, into: Any) -> None:
    """Writes a file to a file object, from its current position on. Holes are skipped if the object supports seeking."""
    size = os.fstat(built.fileno()).st_size
    try:
        start = into.tell() if into.seekable() else None
    except (AttributeError, OSError):
        start = None
    if start is not None:
        # Old contents must not remain in holes.
        into.truncate(start)
    at = 0
    while at < size:
        data, end = (at, size) if start is None else _run(built, at, size)
        if start is not None:
            into.seek(start + data)
        built.seek(data)
        while data < end:
            piece = built.read(min(end - data, 1 << 20))
            if not piece:
                raise OSError(errno.EIO, "the image was truncated during the copy")
            _write_all(into, piece)
            data += len(piece)
        at = end
    if start is not None:
        if into.seek(0, os.SEEK_END) < start + size:
            # Some file objects, such as io.BytesIO, do not grow by truncate.
            into.seek(start + size - 1)
            _write_all(into, b"\0")
        into.seek(start + size)


def _run(built: Any, at: int, size: int) -> tuple[int, int]:
    """Returns the start and the end of the next data of a file."""
    try:
        data = os.lseek(built.fileno(), at, SEEK_DATA)
        return data, min(os.lseek(built.fileno(), data, SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size, size
        return at, size


def _write_all(into: Any, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        count = into.write(rest)
        if not isinstance(count, int) or not 0 < count <= len(rest):
            raise OSError(errno.EIO, f"the file object wrote {count!r} of {len(rest)} bytes")
        rest = rest[count:]


def _named(source: Any, at: str, beside: str, kept: ExitStack) -> tuple[Any, str, bool]:
    if hasattr(source, "read"):
        import shutil
        import tempfile

        archive = kept.enter_context(tempfile.NamedTemporaryFile(dir=beside, prefix=".diskwright-"))
        shutil.copyfileobj(source, archive, 1 << 20)
        archive.flush()
        return archive.name, at, True
    # A string can be more than a path, as on the command line.
    return source, at, not isinstance(source, str)


def _sources(source: Any, beside: str, kept: ExitStack) -> list[tuple[Any, str, bool]]:
    if _is_path(source) or hasattr(source, "read"):
        return [_named(source, "", beside, kept)]
    if isinstance(source, (list, tuple)) and source and not isinstance(source[0], Entry):
        pairs = [each if isinstance(each, tuple) else (each, "") for each in source]
        return [_named(path, text_of(at), beside, kept) for path, at in pairs]
    import tempfile

    archive = kept.enter_context(tempfile.NamedTemporaryFile(dir=beside, suffix=".tar"))
    _write_archive(source, archive)
    return [(archive.name, "", True)]


def _write_archive(entries: Iterable[Entry], out: Any) -> None:
    """Writes entries as an archive in pax format."""
    import tarfile

    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for entry in entries:
            if not isinstance(entry, Entry):
                raise TypeError(f"source must be a path, a file object or an iterable of Entry, not of {type(entry).__name__}")
            _add(archive, entry)
    out.flush()


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    import tarfile

    name = text_of(entry.path)
    member = tarfile.TarInfo(name.strip("/") or ".")
    mode = entry.mode if entry.mode is not None else 0
    kind = modes.S_IFMT(mode)
    if name.endswith("/"):
        others = (entry.data, entry.target, entry.link, entry.device)
        if kind not in (0, modes.S_IFDIR) or any(other is not None for other in others):
            raise ValueError(f"{name!r} ends with a slash, so it is a directory, which has only a mode and attributes")
        kind = modes.S_IFDIR
    member.uid, member.gid = entry.uid, entry.gid
    nanoseconds = entry.mtime_ns if entry.mtime_ns is not None else round(entry.mtime * 1e9)
    member.mtime = nanoseconds // 10**9
    whole, part = divmod(abs(nanoseconds), 10**9)
    member.pax_headers = {"mtime": f"{'-' if nanoseconds < 0 else ''}{whole}.{part:09}"}
    for name, value in entry.xattrs.items():
        key = "SCHILY.xattr." + name.replace("%", "%25").replace("=", "%3D")
        member.pax_headers[key] = value.decode("utf-8", "surrogateescape")
    contents: IO[bytes] | None = None
    if entry.target is not None:
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
    elif entry.link is not None:
        member.type, member.linkname = tarfile.LNKTYPE, text_of(entry.link).strip("/")
    elif kind == modes.S_IFDIR:
        member.type = tarfile.DIRTYPE
    elif kind == modes.S_IFIFO:
        member.type = tarfile.FIFOTYPE
    elif entry.device is not None:
        member.type = tarfile.BLKTYPE if kind == modes.S_IFBLK else tarfile.CHRTYPE
        member.devmajor, member.devminor = entry.device
    else:
        contents = _contents(entry.data)
    usual = 0o755 if member.type == tarfile.DIRTYPE else 0o644
    member.mode = modes.S_IMODE(mode) if entry.mode is not None else usual
    if contents is None:
        archive.addfile(member)
        return
    with contents:
        member.size = contents.seek(0, os.SEEK_END)
        contents.seek(0)
        archive.addfile(member, contents)


def _contents(data: Any) -> IO[bytes]:
    if data is None:
        return BytesIO()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return BytesIO(data)
    if _is_path(data):
        return open(data, "rb")
    import shutil
    import tempfile

    # Its length must be known first, and the caller closes it.
    rest: Any = tempfile.SpooledTemporaryFile(max_size=1 << 20)
    shutil.copyfileobj(data, rest)
    return cast(IO[bytes], rest)


def convert(
    source: StrOrBytesPath,
    image: StrOrBytesPath,
    *,
    fs: Fs | None = None,
    size: int | Literal["min"] | None = None,
    partition: int | None = None,
    offset: int = 0,
    label: str | None = None,
    keep_uuid: bool = False,
    features: str | Sequence[str] = (),
    small: bool = False,
    dedupe: Literal["files", "blocks"] | None = None,
    threads: int | None = None,
    force: bool = False,
    source_date_epoch: int | None = None,
    output: Output = "raw",
    progress: Progress | None = None,
) -> BuildReport:
    """Copies an image with all its contents into a new one with another format, another size, or new defaults.

    ``size`` is by default that of the old one; ``"min"`` is the minimum. The old image is never written.
    """
    args = {
        "source": source,
        "partition": size_of("partition", partition),
        "offset": size_of("offset", offset),
        "image": image,
        "fs": fs,
        "size": -1 if size == "min" else size_of("size", size),
        "label": label,
        "keep_uuid": keep_uuid,
        "features": _features(features),
        "small": small,
        "dedupe": dedupe,
        "threads": size_of("threads", threads),
        "force": force,
        "source_date_epoch": _epoch() if source_date_epoch is None else source_date_epoch,
        "output": output,
    }
    return _report(_diskwright.convert(args, progress))
