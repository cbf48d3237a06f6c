"""Functions have the arguments and errors of os, pathlib and io."""

from __future__ import annotations

import errno
import inspect
import io
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from conftest import judge

import diskwright
import diskwright.fsspec
from diskwright import Entry, Image


def public_names() -> list[tuple[str, Any]]:
    """Returns all public functions, classes, methods and properties of the package."""
    found: list[tuple[str, Any]] = []
    modules = {"diskwright": diskwright, "diskwright.fsspec": diskwright.fsspec}
    for module, exports in modules.items():
        for name in exports.__all__:
            value = getattr(exports, name)
            found.append((f"{module}.{name}", value))
            if not inspect.isclass(value):
                continue
            for owner in value.__mro__:
                if not owner.__module__.startswith("diskwright"):
                    continue
                for key, member in vars(owner).items():
                    is_data = not (inspect.isroutine(member) or inspect.isdatadescriptor(member))
                    if not key.startswith("_") and not is_data and type(member).__name__ != "member_descriptor":
                        found.append((f"{module}.{name}.{key}", member))
    return found


def test_all_public_names_have_a_docstring() -> None:
    names = public_names()
    assert len(names) > 200
    assert [name for name, value in names if not (value.__doc__ or "").strip()] == []


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert diskwright.__version__ == version("diskwright")


def test_names_of_os(image: Image) -> None:
    image.makedirs("/a/b")
    with pytest.raises(FileExistsError):
        image.makedirs("/a/b")
    image.makedirs("/a/b/", exist_ok=True)
    image.makedirs("/a/c/d", 0o700)
    assert stat.S_IMODE(image.stat("/a/c/d").st_mode) == 0o700
    assert stat.S_IMODE(image.stat("/a/c").st_mode) == 0o755
    image.write_bytes("/file", b"1")
    with pytest.raises(FileExistsError):
        image.makedirs("/file", exist_ok=True)
    image.write_bytes("/other", b"2")
    image.replace("/other", "/file")
    assert image.read_bytes("/file") == b"2" and not image.exists("/other")
    image.remove("/file")
    with pytest.raises(FileNotFoundError):
        image.remove("/file")
    found = image.statvfs("/")
    assert isinstance(found, os.statvfs_result) and found.f_namemax == 255 and found.f_bfree <= found.f_blocks
    assert found.f_frsize == 4096 and not found.f_flag & os.ST_RDONLY
    with pytest.raises(FileNotFoundError):
        image.statvfs("/none")


def test_mknod_takes_the_arguments_of_os(image: Image) -> None:
    image.mknod("/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    image.mknod("/disk", stat.S_IFBLK | 0o660, device=os.makedev(259, 70_000))
    image.mknod("/plain")
    assert image.stat("/null").st_rdev == os.makedev(1, 3)
    assert image.stat("/disk").st_rdev == os.makedev(259, 70_000)
    assert image.stat("/plain").st_mode == stat.S_IFREG | 0o600
    with pytest.raises(FileExistsError):
        image.mknod("/plain")
    with pytest.raises(ValueError):
        image.mknod("/d", stat.S_IFDIR)


def test_attributes_take_the_arguments_of_os(image: Image, fs: str) -> None:
    path = image / "file"
    path.touch()
    image.setxattr("/file", "user.a", b"1", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        image.setxattr("/file", "user.a", b"2", flags=os.XATTR_CREATE)
    path.setxattr("user.a", b"2", os.XATTR_REPLACE)
    with pytest.raises(OSError) as raised:
        path.setxattr("user.b", b"2", os.XATTR_REPLACE)
    assert raised.value.errno == errno.ENODATA and image.getxattr("/file", attribute="user.a") == b"2"
    with pytest.raises(ValueError):
        path.setxattr("user.a", b"2", 7)
    image.chown("/file", 5, 6)
    image.chown("/file", -1, 7)
    path.chown(8, -1)
    assert (path.owner(), path.group()) == (8, 7)
    for bad in (-2, 1 << 32):
        with pytest.raises(OverflowError):
            image.chown("/file", bad, 0)
    (image / "link").symlink_to("file")
    (image / "link").chmod(0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640, follow_symlinks=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(NotImplementedError):
        (image / "link").lchmod(0o600)


def test_errors_are_those_of_python(image: Image, path: Path, tmp_path: Path, fs: str) -> None:
    image.mkdir("/d")
    for mode in ("r", "rb", "w", "wb", "a", "r+", "w+b"):
        with pytest.raises(IsADirectoryError) as raised:
            image.open("/d", mode)
        assert raised.value.filename == "/d"
    for act in (image.read_bytes, image.read_text, lambda at: image.write_bytes(at, b""), lambda at: image.truncate(at, 0)):
        with pytest.raises(IsADirectoryError):
            act("/d")
    for opens in (diskwright.open, diskwright.check, diskwright.info):
        with pytest.raises(IsADirectoryError):
            opens(tmp_path)
    with pytest.raises(ValueError):
        image.label = "x" * 40
    for size in (-1, 0, 1 << 10, 1 << 70):
        with pytest.raises(ValueError):
            diskwright.create(tmp_path / "y", size, fs=fs)  # type: ignore[arg-type]
    for size in (-1, 1 << 70):
        with pytest.raises(ValueError):
            diskwright.build(tmp_path, tmp_path / "y", size=size)
    for size in (0, 1 << 10):
        with pytest.raises(OSError) as too_small:
            diskwright.build(tmp_path, tmp_path / "y", size=size)
        assert too_small.value.errno == errno.ENOSPC
    with pytest.raises(ValueError):
        diskwright.create(tmp_path / "y", 64 << 20, fs=fs, small=True, label="x" * 40)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        diskwright.create(tmp_path / "y", 64 << 20, fs=fs, small=True, block_size=1000)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        diskwright.build(tmp_path, tmp_path / "y", label="x" * 40)
    for length in (-1, 1 << 64):
        with pytest.raises(ValueError):
            image.truncate("/file", length)
    with pytest.raises(ValueError):
        diskwright.open(path, offset=-1)
    assert not (tmp_path / "y").exists()


def test_messages_name_arguments_of_python(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"x" * 1_000_000)
    source, path = tmp_path / "source", tmp_path / "built.img"

    def message(**wrong: Any) -> str:
        with pytest.raises((OSError, ValueError, TypeError)) as raised:
            diskwright.build(source, path, **wrong)
        text = str(raised.value)
        assert "--" not in text and "Args" not in text, text
        return text

    assert "size" in message(size="5")
    assert "inodes" in message(inodes=1.5)
    assert "label" in message(label=3)
    assert "size=" in message(size=400_000)
    assert "owner" in message(owner="root")
    assert "features" in message(features=[3])
    assert "fs" in message(fs=7)
    diskwright.build(source, path)
    assert "force" in message()
    with pytest.raises(OSError) as raised:
        diskwright.open(path, partition=3)
    assert "--" not in str(raised.value)
    with pytest.raises(ValueError) as invalid:
        diskwright.open(path, offset=1 << 40)
    assert str(invalid.value).startswith("offset is past the end")
    with diskwright.open(path, writable=True), pytest.raises(diskwright.ImageInUse, match="norecovery=True"):
        diskwright.open(path)


def test_bytes_that_are_no_path_are_refused_shortly(image: Image, tmp_path: Path) -> None:
    contents = b"\0" * (1 << 20)
    for opens in (diskwright.open, diskwright.check, diskwright.info, image.stat, image.read_bytes, image.copy_in):
        with pytest.raises(ValueError, match="bytes") as raised:
            opens(contents)
        assert len(str(raised.value)) < 200
    with pytest.raises(ValueError):
        image / contents
    for opens in (diskwright.open, diskwright.check, diskwright.info):
        for view in (bytearray(contents), memoryview(contents)):
            with pytest.raises(TypeError) as refused:
                opens(view)
            assert len(str(refused.value)) < 200


class Failing(io.BytesIO):
    """A device that fails on demand."""

    failure: Exception | None = None

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def read(self, size: int | None = -1, /) -> bytes:
        self._fail()
        return super().read(size)

    def write(self, data: Any, /) -> int:
        self._fail()
        return super().write(data)


def test_a_failing_device_is_the_cause_of_each_error(fs: str) -> None:
    device = Failing()
    image = diskwright.create(device, 32 << 20, fs=fs, small=True)  # type: ignore[arg-type]
    image.write_bytes("/file", b"x" * 100_000)
    image.sync()
    device.failure = ConnectionError("the cable")
    with pytest.raises(OSError) as raised:
        for number in range(1000):
            image.write_bytes(f"/{number}", b"x" * 100_000)
            image.sync()
    assert raised.value.__cause__ is device.failure
    for act in (image.sync, lambda: image.write_bytes("/more", b"x"), image.close):
        try:
            act()
        except OSError as error:
            assert error.__cause__ is device.failure, act
    for opens in (diskwright.open, diskwright.check, diskwright.partitions):
        with pytest.raises(OSError) as raised:
            opens(device)
        assert raised.value.__cause__ is device.failure or raised.value is device.failure, opens
    with pytest.raises(OSError) as raised:
        diskwright.create(device, fs=fs, small=True)  # type: ignore[arg-type]
    assert raised.value.__cause__ is device.failure


def test_data_and_holes_are_found_as_on_the_host(image: Image, tmp_path: Path) -> None:
    for path in (image / "sparse", tmp_path / "sparse"):
        with path.open("wb") as file:
            file.seek(1 << 20)
            file.write(b"x" * 4096)
            file.seek(3 << 20)
            file.write(b"x" * 8192)
            file.truncate(5 << 20)
    with (image / "sparse").open("rb") as ours, (tmp_path / "sparse").open("rb") as theirs:
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            for offset in (0, 4096, 1 << 20, (1 << 20) + 100, 2 << 20, 3 << 20, (3 << 20) + 8192, 5 << 20, 6 << 20):
                results: list[Any] = []
                for file in (ours, theirs):
                    try:
                        results.append((file.seek(offset, whence), file.tell()))
                    except OSError as error:
                        results.append(error.errno)
                assert results[0] == results[1], (whence, offset)


def test_path_options_of_later_pythons(image: Image) -> None:
    for name in ("a/b/c.txt", "a/B.TXT", "e.txt"):
        path = image / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (image / "link").symlink_to("a")
    found = {str(path) for path in image.glob("**/*.txt", case_sensitive=False)}
    assert found == {"/a/b/c.txt", "/a/B.TXT", "/e.txt"}
    assert {str(path) for path in image.root.rglob("c.txt", recurse_symlinks=True)} == {"/a/b/c.txt", "/link/b/c.txt"}
    assert {str(path) for path in (image / "a").rglob(PurePosixPath("*.txt"))} == {"/a/b/c.txt"}  # type: ignore[arg-type]
    path = image / "a" / "b" / "c.txt"
    assert path.match("*.TXT", case_sensitive=False) and not path.match("*.TXT")
    assert path.full_match("/a/**/*.txt") and path.full_match("/A/**", case_sensitive=False)
    assert not path.full_match("*.txt") and path.full_match("/**/c.txt") and not path.full_match("/a/*")
    assert path.relative_to("/e", walk_up=True) == PurePosixPath("../a/b/c.txt")
    with pytest.raises(ValueError):
        path.relative_to("/e")
    assert (image / "link").owner(follow_symlinks=False) == 0 == (image / "link").group(follow_symlinks=False)
    assert not path.is_junction()
    path.write_text("1\r\n", newline="")
    assert path.read_text(newline="") == "1\r\n" and path.read_text() == "1\n"
    walked = {str(top): (sorted(dirs), sorted(files)) for top, dirs, files in image.root.walk()}
    assert "link" in walked["/"][1] and "link" not in walked["/"][0]
    walked = {str(top): (sorted(dirs), sorted(files)) for top, dirs, files in image.root.walk(follow_symlinks=True)}
    assert "link" in walked["/"][0] and walked["/link"] == (["b"], ["B.TXT"])


def test_paths_of_other_images(image: Image, tmp_path: Path) -> None:
    with diskwright.create(tmp_path / "other.img", 16 << 20) as other:
        image.write_bytes("/file", b"here")
        other.write_bytes("/file", b"there")
        with other.open("/sparse", "wb") as file:
            file.seek(3 << 20)
            file.write(b"end")
        (other / "sparse").chmod(0o4711)
        assert image.copy_file(other / "file", "/copied") == 5 and image.read_bytes("/copied") == b"there"
        assert image.copy_file("/file", other / "copied") == 4 and other.read_bytes("/copied") == b"here"
        copied = (other / "sparse").copy(image / "sparse")
        assert copied == image / "sparse" and copied.stat().st_size == (3 << 20) + 3
        assert copied.read_bytes() == (other / "sparse").read_bytes() and copied.stat().st_blocks < 100
        assert stat.S_IMODE(copied.stat().st_mode) == 0o4711
        assert not (image / "file").samefile(other / "file") and not image.samefile("/file", other / "file")
        theirs = other / "file"
        acts: list[Any] = [
            image.read_text,
            image.read_bytes,
            image.stat,
            image.exists,
            image.is_file,
            image.open,
            image.unlink,
            image.listdir,
            image.copy_out,
            lambda path: image.write_text(path, ""),
            lambda path: image.link(path, "/x"),
            lambda path: image.makedirs(path),
            lambda path: list(image.walk(path)),
            lambda path: list(image.tree(path)),
            lambda path: image / path,
            lambda path: image.root.joinpath(path),
            lambda path: (image / "x").hardlink_to(path),
        ]
        for act in acts:
            with pytest.raises(OSError) as raised:
                act(theirs) if act != image.copy_out else act(theirs, tmp_path / "out")
            assert raised.value.errno == errno.EXDEV, act
        with pytest.raises(ValueError):
            (image / "file").relative_to(image / "none")
        assert not (image / "file").is_relative_to(other.root)
        assert theirs.read_bytes() == b"there"


def test_entries_take_a_path_and_a_slash(tmp_path: Path) -> None:
    path = tmp_path / "built.img"
    made = [Entry("d/"), Entry("e/", mode=0o700), Entry("d/file", data=b"1")]
    diskwright.build(iter(made), path)
    with diskwright.open(path) as image:
        assert image.is_dir("/d") and stat.S_IMODE(image.stat("/e").st_mode) == 0o700
        assert image.read_bytes("/d/file") == b"1"
    with pytest.raises(ValueError):
        diskwright.build([Entry("d/", data=b"1")], tmp_path / "x.img")
    judge(path)


def archive(compression: str = "") -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{compression}") as tar:
        member = tarfile.TarInfo("etc/motd")
        member.size = 7
        tar.addfile(member, io.BytesIO(b"welcome"))
    packed.seek(0)
    return packed


def test_build_from_and_into_file_objects(tmp_path: Path, fs: str) -> None:
    built = io.BytesIO(b"old contents" * 10)
    report = diskwright.build(archive("gz"), built, fs=fs, small=True)  # type: ignore[arg-type]
    assert len(built.getvalue()) == report.image_bytes == built.tell()
    with diskwright.open(built) as image:
        assert image.read_text("/etc/motd") == "welcome"
    (tmp_path / "image").write_bytes(built.getvalue())
    judge(tmp_path / "image")
    with open(tmp_path / "file", "w+b") as file:
        diskwright.build([archive(), (archive("gz"), "/srv")], file, fs=fs, small=True)  # type: ignore[arg-type]
    assert os.stat(tmp_path / "file").st_blocks * 512 < os.stat(tmp_path / "file").st_size
    with diskwright.open(tmp_path / "file") as image:
        assert image.read_text("/srv/etc/motd") == image.read_text("/etc/motd")

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.contents = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            taken = bytes(data[:100_000])
            self.contents += taken
            return len(taken)

    pipe = Pipe()
    diskwright.build(archive(), pipe)
    assert len(pipe.contents) > 1 << 16 and diskwright.check(io.BytesIO(pipe.contents))
    with pytest.raises(TypeError):
        diskwright.build(archive(), 3)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        diskwright.build(io.BytesIO(b"\1" * 5000), io.BytesIO())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "image"]


def test_partitions_are_listed(path: Path, tmp_path: Path, fs: str) -> None:
    disk, start = tmp_path / "disk.img", 1 << 20
    size = path.stat().st_size
    with open(disk, "wb") as file:
        entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (start // 512).to_bytes(4, "little")
        file.write(bytes(446) + entry + (size // 512).to_bytes(4, "little") + bytes(48) + b"\x55\xaa")
        file.seek(start)
        file.write(path.read_bytes())
    (one,) = diskwright.partitions(disk)
    assert (one.number, one.offset, one.size, one.contents) == (1, start, size, fs)
    with open(disk, "rb") as opened:
        assert diskwright.partitions(opened) == [one]
    assert diskwright.partitions(path) == []
    with diskwright.open(disk, partition=one.number) as image, diskwright.open(disk, offset=one.offset):
        assert image.exists("/")


def test_the_module_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "a.img"
    with diskwright.create(path, 16 << 20) as image:
        image.write_bytes("/motd", b"welcome")
        image.write_bytes("/\x1b[31m", b"")

    def run(*arguments: object, status: int = 0) -> str:
        command = [sys.executable, "-m", "diskwright", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == status, done
        return done.stdout + done.stderr

    assert run("--version") == f"diskwright {diskwright.__version__}\n"
    assert "motd" in run("ls", path) and "\x1b" not in run("ls", path)
    assert run("cat", path, "/motd") == "welcome"
    assert run("check", path).endswith(": clean\n")
    assert '"label"' in run("info", path)
    run("extract", path, tmp_path / "out", "--path", "/motd")
    assert (tmp_path / "out").read_text() == "welcome"
    (tmp_path / "source").mkdir()
    run("build", tmp_path / "source", tmp_path / "built.img", "--label", "x")
    assert run("cat", path, "/none", status=2).startswith("diskwright: ")
