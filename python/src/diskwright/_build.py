"""Making images of directories, archives, container images, other images and entries of a program's own."""

from __future__ import annotations

import json
import os
import shutil
import stat as modes
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, Any, Literal, TypeAlias, Union, cast
from uuid import UUID

from . import _diskwright
from ._image import text_of, uuid_bytes
from ._types import ImagePathLike, StrOrBytesPath

__all__ = ["BuildReport", "Entry", "build", "convert"]

Progress: TypeAlias = Callable[[int, int], object]
"""Is told how many entries with how many bytes were made; what it raises ends the work."""

Fs: TypeAlias = Literal["ext4", "xfs"]
Output: TypeAlias = Literal["raw", "qcow2", "android-sparse", "zstd"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file of an image that is to be built.

    What it is follows from what is given: ``target`` makes a symbolic link, ``link`` another name of an entry before
    it, ``device`` with the type bits of ``mode`` a device; ``mode`` with the bits of a directory or a pipe makes such a
    one; everything else is a regular file.
    """

    path: ImagePathLike
    """Its path. Directories above it that no entry names are made."""
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


Source: TypeAlias = Union[StrOrBytesPath, Iterable[Entry]]


@dataclass(frozen=True)
class BuildReport:
    """What was built."""

    image_bytes: int
    """Size of the image."""
    entries: int
    """Files of any type that were made."""
    data_bytes: int
    """Bytes of contents."""
    details: Mapping[str, Any]
    """All that the report of the command has."""


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
    source: Source | Sequence[StrOrBytesPath | tuple[StrOrBytesPath, ImagePathLike]],
    image: StrOrBytesPath,
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
    """Makes an image, which gets its name when it is finished: nothing is left of a build that fails.

    - ``source``: a directory or a tar archive (also ``.gz`` and ``.zst``); a text that names more, as on the command
      line (``"oci:dir:tag"``, ``"docker-archive:file"``, ``"image:disk.img:2"``, ``"mtree:file"``); a list of such, later
      ones put over those before, each perhaps as a pair with the directory of the image that it goes to; or an iterable
      of :class:`Entry`, which is kept in a temporary archive beside the image.
    - ``size``: bytes, or the least that holds the source and ``free`` bytes.
    - ``owner``: user and group of everything, instead of the source's.
    - ``force``: replace an image that is there. ``small``: allow XFS below 300 MiB.
    - ``source_date_epoch``: the latest time in the image, unless told that of the environment. The same source and
      options give the same bytes.
    - ``progress(entries, bytes)`` is called at the beginning, now and then, and when the image is there; what it raises
      ends the build.
    """
    if size is not None and free:
        raise ValueError("free goes with a size that is computed: leave one of them out")
    with ExitStack() as kept:
        sources = _sources(source, os.path.dirname(os.path.abspath(os.fsdecode(image))), kept)
        args = {
            "sources": sources,
            "image": image,
            "fs": fs,
            "size": size,
            "free": free,
            "label": label,
            "uuid": None if uuid is None else uuid_bytes(uuid),
            "features": _features(features),
            "block_size": block_size,
            "inode_size": inode_size,
            "inodes": inodes,
            "small": small and fs == "xfs",
            "dedupe": dedupe,
            "owner": owner,
            "platform": platform,
            "threads": threads,
            "force": force,
            "source_date_epoch": _epoch() if source_date_epoch is None else source_date_epoch,
            "output": output,
        }
        return _report(_diskwright.build(args, progress))


def _is_path(source: object) -> bool:
    return isinstance(source, (str, bytes, os.PathLike))


def _named(source: Any, at: str = "") -> tuple[Any, str, bool]:
    # A text may be more than a path, as on the command line; a path is a path.
    return source, at, not isinstance(source, str)


def _sources(source: Any, beside: str, kept: ExitStack) -> list[tuple[Any, str, bool]]:
    if _is_path(source):
        return [_named(source)]
    if isinstance(source, (list, tuple)) and source and not isinstance(source[0], Entry):
        pairs = [each if isinstance(each, tuple) else (each, "") for each in source]
        return [_named(path, text_of(at)) for path, at in pairs]
    archive = kept.enter_context(tempfile.NamedTemporaryFile(dir=beside, suffix=".tar"))
    _write_archive(source, archive)
    return [(archive.name, "", True)]


def _write_archive(entries: Iterable[Entry], out: Any) -> None:
    """Keeps entries as an archive in the format of pax."""
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for entry in entries:
            if not isinstance(entry, Entry):
                raise TypeError(f"a source gives Entry, not {type(entry).__name__}")
            _add(archive, entry)
    out.flush()


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(text_of(entry.path).strip("/") or ".")
    mode = entry.mode if entry.mode is not None else 0
    kind = modes.S_IFMT(mode)
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
    # Its length must be known first, and it stays its owner's to close.
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
    """Makes an image of another one, with all that is in it: in another format, of another size, or as new ones are.

    ``size`` is that of the old one unless told, ``"min"`` the least. The old image is never written.
    """
    args = {
        "source": source,
        "partition": partition,
        "offset": offset,
        "image": image,
        "fs": fs,
        "size": -1 if size == "min" else size,
        "label": label,
        "keep_uuid": keep_uuid,
        "features": _features(features),
        "small": small,
        "dedupe": dedupe,
        "threads": threads,
        "force": force,
        "source_date_epoch": _epoch() if source_date_epoch is None else source_date_epoch,
        "output": output,
    }
    return _report(_diskwright.convert(args, progress))
