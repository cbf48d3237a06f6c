"""``ext4://``, ``xfs://`` and ``disk://`` for fsspec: ``fsspec.open("ext4://etc/motd::root.img")``.

The image may be anything that fsspec opens (``::https://…``, ``::s3://…``, ``::zip://…``, caching ones); to be changed it
must be something that is opened with ``"r+b"``: a file, or one in memory.
"""

from __future__ import annotations

import os
import secrets
import stat as modes
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from glob import has_magic
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from ._diskwright import Stat
from ._errors import ClosedImage, DamagedImage, ImageInUse
from ._image import Image

__all__ = ["DiskFileSystem", "Ext4FileSystem", "ImageFile", "XfsFileSystem"]

_TYPES = {
    modes.S_IFREG: "file",
    modes.S_IFDIR: "directory",
    modes.S_IFLNK: "link",
}


#: All file systems of this process by ID. fsspec caches them, and so their images, for later callers.
_all: weakref.WeakValueDictionary[int, DiskFileSystem] = weakref.WeakValueDictionary()


class DiskFileSystem(AbstractFileSystem):  # type: ignore[misc,unused-ignore]
    """A file system in an image.

    - ``fo``: the image: a path, a URL, or a file object.
    - ``partition``, ``offset``: where in it the file system is.
    - ``writable``: unless told, the image is opened to be changed only while something changes it, so that others can
      read it before and after; with True it is so until ``close``, which is faster, and with False never.
    - ``target_protocol``, ``target_options``: of what is opened as ``fo``.

    Names have no slash before them. Directories that are missing above what is made are made.
    """

    protocol: Any = "disk"
    root_marker = ""

    def __init__(
        self,
        fo: Any = "",
        partition: int | None = None,
        offset: int = 0,
        writable: bool | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not fo:
            raise ValueError("name an image: ext4://etc/motd::root.img, or fo=…")
        self.fo = fo
        self.partition = partition
        self.offset = offset
        self.writable = writable
        self.target_protocol = target_protocol
        self.target_options = target_options or {}
        self._forget()
        _all[id(self)] = self

    # The image.

    def _forget(self) -> None:
        self._image: Image | None = None
        self._opened: Any = None
        self._target: Any = None
        self._condition = threading.Condition()
        self._readers = 0
        self._writer: int | None = None
        self._depth = 0
        self._pid = os.getpid()

    def _open_image(self, writable: bool) -> Image:
        how: dict[str, Any] = {
            "writable": writable,
            "partition": self.partition,
            "offset": self.offset,
        }
        if not isinstance(self.fo, (str, bytes, os.PathLike)):
            return Image(self.fo, **how)
        if self.target_protocol in (None, "file", "local"):
            path = os.fsdecode(self.fo).removeprefix("file://")
            try:
                return Image(path, **how)
            except ImageInUse:
                if not self._others_make_way():
                    raise
                return Image(path, **how)
        fs = fsspec.filesystem(self.target_protocol, **self.target_options)
        opened = fs.open(os.fsdecode(self.fo), "r+b" if writable else "rb")
        try:
            image = Image(opened, **how)
        except BaseException:
            opened.close()
            raise
        # A dropped file system closes its open files, like the file systems of archives.
        self._opened, self._target = opened, fs
        return image

    def _host_path(self) -> str:
        return os.path.realpath(os.fsdecode(self.fo).removeprefix("file://"))

    def _others_make_way(self) -> bool:
        """Closes the image in other file systems of this process that do not use it. Returns whether there was one."""
        path = self._host_path()
        others = (other for other in list(_all.values()) if other is not self and other._pid == os.getpid())
        return any([other._make_way(path) for other in others])

    def _make_way(self, path: str) -> bool:
        # A user of the image holds the condition and may wait for this thread. The image is then in use.
        if self.writable or not self._condition.acquire(blocking=False):
            return False
        try:
            idle = self._image is not None and self._writer is None and self._readers == 0
            if not idle or self._opened is not None or not isinstance(self.fo, (str, bytes, os.PathLike)):
                return False
            if self._host_path() != path:
                return False
            self._close_image()
            return True
        finally:
            self._condition.release()

    def _close_image(self) -> None:
        image, opened = self._image, self._opened
        self._image = self._opened = None
        try:
            if image is not None:
                image.close()
        finally:
            if opened is not None:
                opened.close()

    @contextmanager
    def _use(self, write: bool = False) -> Iterator[Image]:
        """Returns the image, for reading or for changes. Only one thread changes it at a time, without concurrent readers."""
        if self._pid != os.getpid():
            # A child has neither the parent's locks nor its image.
            self._forget()
        me = threading.get_ident()
        if self._writer == me:
            self._depth += 1
            try:
                assert self._image is not None
                yield self._image
            finally:
                self._depth -= 1
            return
        if write:
            yield from self._write(me)
        else:
            yield from self._read()

    def _read(self) -> Iterator[Image]:
        with self._condition:
            self._condition.wait_for(lambda: self._writer is None)
            if self._image is None:
                self._image = self._open_image(bool(self.writable))
            image = self._image
            self._readers += 1
        try:
            yield image
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    def _write(self, me: int) -> Iterator[Image]:
        if self.writable is False:
            raise OSError(30, "the file system was opened with writable=False", str(self.fo))
        with self._condition:
            self._condition.wait_for(lambda: self._writer is None and self._readers == 0)
            if self._image is None or not self._image.writable:
                self._close_image()
                self._image = self._open_image(True)
            image = self._image
            self._writer = me
        try:
            yield image
        finally:
            with self._condition:
                self._writer = None
                try:
                    if self.writable is None:
                        self._close_image()
                finally:
                    self._condition.notify_all()

    def sync(self) -> None:
        """Returns when all changes are durable."""
        with self._use() as image:
            image.sync()

    def close(self) -> None:
        """Closes the image. It is opened again when it is next needed."""
        if self._pid == os.getpid():
            with self._condition:
                self._condition.wait_for(lambda: self._writer is None and self._readers == 0)
                self._close_image()

    def __del__(self) -> None:
        try:
            if self._pid == os.getpid():
                self._close_image()
        except Exception:
            pass

    # Paths.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path) if hasattr(path, "__fspath__") else str(path)
        protocols = (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol
        for protocol in protocols:
            path = path.removeprefix(f"{protocol}://")
        return path.strip("/")

    # Properties of files.

    def _info(self, image: Image, path: str, found: Stat | None = None) -> dict[str, Any]:
        own = image.lstat("/" + path) if found is None else found
        told: dict[str, Any] = {"name": path, "islink": modes.S_ISLNK(own.st_mode)}
        if told["islink"]:
            told["destination"] = image.readlink("/" + path)
            try:
                own = image.stat("/" + path)
            except OSError:
                pass
        kind = _TYPES.get(modes.S_IFMT(own.st_mode), "other")
        if told["islink"] and kind == "directory":
            # A walk must not follow cycles.
            kind = "link"
        told |= {
            "type": kind,
            "size": own.st_size if kind == "file" else 0,
            "mode": own.st_mode,
            "uid": own.st_uid,
            "gid": own.st_gid,
            "mtime": own.st_mtime,
            "created": own.st_birthtime if own.st_birthtime is not None else own.st_ctime,
            "ino": own.st_ino,
            "nlink": own.st_nlink,
        }
        return told

    def _entry(self, image: Image, path: str) -> dict[str, Any]:
        """The attributes of an entry of a directory. Damage of one entry does not hide the others."""
        try:
            return self._info(image, path)
        except DamagedImage as error:
            return {"name": path, "type": "other", "size": None, "islink": False, "error": str(error)}

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """The attributes of a file, those of the target for a symbolic link."""
        with self._use() as image:
            return self._info(image, self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """The entries of a directory, with their attributes if ``detail``. A damaged one has the key ``error``."""
        path = self._strip_protocol(path)
        with self._use() as image:
            if not image.is_dir("/" + path):
                top = self._info(image, path)
                return [top] if detail else [path]
            start = path + "/" if path else ""
            names = sorted(start + name for name in image.listdir("/" + path))
            return [self._entry(image, name) for name in names] if detail else names

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        onerror: Callable[[OSError], object] | None = None,
        **kwargs: Any,
    ) -> Any:
        """All files below a directory.

        With ``onerror``, it is called with the error of each file that cannot be read, and the search continues. Without
        it, the error is raised.
        """
        path = self._strip_protocol(path)
        if maxdepth is not None:
            return super().find(path, maxdepth, withdirs, detail, **kwargs)
        found: dict[str, Any] = {}

        def add(image: Image, name: str, own: Stat) -> None:
            if name == path and modes.S_ISDIR(own.st_mode) and not (withdirs and path):
                return
            if withdirs or not modes.S_ISDIR(own.st_mode):
                found[name] = self._info(image, name, own) if detail else None

        with self._use() as image:
            try:
                for name, own in image.tree("/" + path, onerror=onerror):
                    try:
                        add(image, name.strip("/"), own)
                    except ClosedImage:
                        raise
                    except OSError as error:
                        if onerror is None:
                            raise
                        onerror(error)
            except (FileNotFoundError, NotADirectoryError):
                pass
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether a path leads to a file."""
        with self._use() as image:
            return image.exists("/" + self._strip_protocol(path))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """Whether a path exists, also as a broken symbolic link."""
        with self._use() as image:
            return image.path(str(self._strip_protocol(path))).exists(follow_symlinks=False)

    def isdir(self, path: str) -> bool:
        """Whether a path leads to a directory."""
        with self._use() as image:
            return image.is_dir("/" + self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        """Whether a path leads to a regular file."""
        with self._use() as image:
            return image.is_file("/" + self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        """Returns the creation time of a file, or its last change if the image does not store creation times."""
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        """The time when the contents of a file last changed."""
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    # Contents.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> ImageFile:
        if mode == "rb" and self.isdir(path):
            raise IsADirectoryError(21, "is a directory", path)
        if mode == "xb" and self.exists(path):
            raise FileExistsError(17, "file exists", path)
        size = "default" if block_size is None else block_size
        return ImageFile(self, path, mode, size, autocommit, cache_options=cache_options, **kwargs)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Returns the contents of a file, or a part of them."""
        path = "/" + self._strip_protocol(path)
        with self._use() as image:
            if start is None and end is None:
                return image.read_bytes(path)
            with image.open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                first = 0 if start is None else start if start >= 0 else max(size + start, 0)
                last = size if end is None else end if end >= 0 else size + end
                file.seek(first)
                return file.read(max(last - first, 0))

    def pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Writes the contents of a file."""
        path = self._strip_protocol(path)
        with self._use(write=True) as image:
            if mode == "create" and image.exists("/" + path):
                raise FileExistsError(17, "file exists", path)
            self._make_parents(image, path)
            image.write_bytes("/" + path, value)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Copies files of the host into the image, all while it is open for writing once."""
        with self._use(write=True):
            return super().put(*args, **kwargs)

    def pipe(self, *args: Any, **kwargs: Any) -> Any:
        """Writes the contents of files, all while the image is open for writing once."""
        with self._use(write=True):
            return super().pipe(*args, **kwargs)

    def copy(self, path1: Any, path2: Any, *args: Any, **kwargs: Any) -> Any:
        """Copies files inside the image, all while it is open for writing once."""
        with self._use(write=True):
            path1, path2 = self._inside(path1, path2, self.isdir)
            return super().copy(path1, path2, *args, **kwargs)

    def get(self, rpath: Any, lpath: Any, *args: Any, **kwargs: Any) -> Any:
        """Copies files to the host."""
        rpath, lpath = self._inside(rpath, lpath, os.path.isdir)
        return super().get(rpath, lpath, *args, **kwargs)

    def _inside(self, source: Any, target: Any, is_dir: Callable[[str], bool]) -> tuple[Any, Any]:
        """Source and target of a copy of a file or directory of the root into a directory.

        fsspec takes the directory of the source from its path, where a name without a slash has none. So the target gets
        the name here.
        """
        if not isinstance(source, str) or not isinstance(target, (str, os.PathLike)):
            return source, target
        name, into = self._strip_protocol(source), os.fspath(target)
        if not name or "/" in name or source.endswith("/") or has_magic(name):
            return source, target
        if not into.endswith("/") and not is_dir(into):
            return source, target
        return name + "/" if self.isdir(name) else name, f"{into.rstrip('/')}/{name}"

    # Names.

    def _make_parents(self, image: Image, path: str) -> None:
        parent = self._parent(path)
        if parent:
            image.makedirs("/" + parent, exist_ok=True)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Creates a directory."""
        path = self._strip_protocol(path)
        with self._use(write=True) as image:
            if create_parents:
                self._make_parents(image, path)
            image.mkdir("/" + path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Creates a directory and the missing ones above it."""
        path = self._strip_protocol(path)
        with self._use(write=True) as image:
            if not exist_ok and image.exists("/" + path):
                raise FileExistsError(17, "file exists", path)
            if path:
                image.makedirs("/" + path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        with self._use(write=True) as image:
            image.rmdir("/" + self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        with self._use(write=True) as image:
            image.unlink("/" + self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and with ``recursive`` directories."""
        paths = path if isinstance(path, list) else [path]
        with self._use(write=True) as image:
            for each in self.expand_path(paths, recursive=False):
                name = "/" + each
                if not (image / each).is_symlink() and image.is_dir(name):
                    if not recursive:
                        raise ValueError(f"{each} is a directory; use recursive=True to remove it")
                    image.rmtree(name)
                else:
                    image.unlink(name)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file, or creates the directory for a directory."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        with self._use(write=True) as image:
            if image.is_dir("/" + source):
                if target:
                    image.makedirs("/" + target, exist_ok=True)
                return
            self._make_parents(image, target)
            image.copy_file("/" + source, "/" + target)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Moves files and directories with their contents."""
        with self._use(write=True) as image:
            if not isinstance(path1, str) or not isinstance(path2, str) or "*" in path1:
                super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
                return
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if source == target:
                return
            if path2.endswith("/") or image.is_dir("/" + target):
                target = "/".join(filter(None, (target, source.rpartition("/")[2])))
            self._make_parents(image, target)
            image.rename("/" + source, "/" + target)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Creates a file or sets its times, and empties it with ``truncate``."""
        path = self._strip_protocol(path)
        with self._use(write=True) as image:
            if truncate or not image.exists("/" + path):
                self._make_parents(image, path)
                image.write_bytes("/" + path, b"")
            image.utime("/" + path)

    def chmod(self, path: str, mode: int) -> None:
        """Sets the permission bits of a file."""
        with self._use(write=True) as image:
            image.chmod("/" + self._strip_protocol(path), mode)

    def symlink(self, target: str, path: str) -> None:
        """Creates a symbolic link."""
        with self._use(write=True) as image:
            image.symlink(target, "/" + self._strip_protocol(path))


class Ext4FileSystem(DiskFileSystem):
    """``ext4://``: ext2, ext3 and ext4."""

    protocol = "ext4"


class XfsFileSystem(DiskFileSystem):
    """``xfs://``."""

    protocol = "xfs"


class ImageFile(AbstractBufferedFile):  # type: ignore[misc,unused-ignore]
    """An open file. Each read and write opens the file of the image by its name."""

    def __init__(
        self, fs: DiskFileSystem, path: str, mode: str, block_size: Any, autocommit: bool, **kwargs: Any
    ) -> None:
        self._place = "/" + path
        self._at = 0
        super().__init__(fs, path, mode, block_size, autocommit, **kwargs)
        if mode != "rb":
            # Errors of opening for writing are reported here.
            self.offset = 0
            try:
                self._initiate_upload()
            except BaseException:
                self.closed = True
                raise

    def _fetch_range(self, start: int, end: int) -> bytes:
        with self.fs._use() as image, image.open(self._place, "rb", 0) as file:
            file.seek(start)
            return bytes(file.read(end - start))

    def _initiate_upload(self) -> None:
        with self.fs._use(write=True) as image:
            if not self.autocommit:
                self._place = f"/{self.path}.{secrets.token_hex(8)}.part"
            self.fs._make_parents(image, self.path)
            if self.mode == "ab" and image.exists("/" + self.path):
                if not self.autocommit:
                    image.copy_file("/" + self.path, self._place)
                self._at = image.stat(self._place).st_size
            else:
                image.write_bytes(self._place, b"")

    def _upload_chunk(self, final: bool = False) -> None:
        data = self.buffer.getvalue()
        if data:
            with self.fs._use(write=True) as image, image.open(self._place, "r+b", 0) as file:
                file.seek(self._at)
                file.write(data)
            self._at += len(data)

    def commit(self) -> None:
        """Gives a file of a transaction its name."""
        with self.fs._use(write=True) as image:
            image.rename(self._place, "/" + self.path)

    def discard(self) -> None:
        """Removes a file of a transaction."""
        with self.fs._use(write=True) as image:
            (image / self._place).unlink(missing_ok=True)


