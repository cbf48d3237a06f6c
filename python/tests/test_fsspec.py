"""The test suite of fsspec, and further tests."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.copy import AbstractCopyTests
from fsspec.tests.abstract.get import AbstractGetTests
from fsspec.tests.abstract.open import AbstractOpenTests
from fsspec.tests.abstract.pipe import AbstractPipeTests
from fsspec.tests.abstract.put import AbstractPutTests

import diskwright
from diskwright.fsspec import DiskFileSystem


class Fixtures(AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture(params=["ext4", "xfs"])
    def fs(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
        path = tmp_path / "suite.img"
        diskwright.create(path, 32 << 20, fs=request.param, small=True).close()
        # Kept open, because the suite makes thousands of small changes.
        fs = fsspec.filesystem(request.param, fo=str(path), writable=True, skip_instance_cache=True)
        yield fs
        fs.close()
        assert diskwright.check(path)

    @pytest.fixture
    def fs_path(self) -> str:
        return "suite"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True


class TestCopy(AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestAtRoot(Fixtures):
    """The same for directories without a parent directory."""

    @pytest.fixture
    def fs_path(self) -> str:
        return ""

    test_get_directory_recursive = AbstractGetTests.test_get_directory_recursive
    test_put_directory_recursive = AbstractPutTests.test_put_directory_recursive

    def test_files_go_into_directories(self, fs: Any, tmp_path: Path) -> None:
        fs.pipe({"file": b"1", "d/x": b"2"})
        (tmp_path / "into").mkdir()
        fs.get("file", str(tmp_path / "into"))
        fs.get("d", f"{tmp_path}/into/", recursive=True)
        assert (tmp_path / "into" / "file").read_bytes() == b"1"
        assert (tmp_path / "into" / "d" / "x").read_bytes() == b"2"
        fs.copy("file", "d")
        assert fs.find("d") == ["d/file", "d/x"]


def test_chained_urls(path: Path, fs: str) -> None:
    url = f"{fs}://etc/motd::{path}"
    with fsspec.open(url, "wb") as file:
        file.write(b"welcome")
    with fsspec.open(url) as file:
        assert file.read() == b"welcome"
    with fsspec.open(f"{fs}://etc/motd::file://{path}", "rt") as text:
        assert text.read() == "welcome"
    # The image is not in use between two writes.
    found, inside = fsspec.core.url_to_fs(url)
    assert inside == "etc/motd"
    found.close()
    with diskwright.open(path, writable=True) as image:
        assert image.read_bytes("/etc/motd") == b"welcome"
    found.close()


def test_images_elsewhere(path: Path, fs: str, tmp_path: Path) -> None:
    with diskwright.open(path, writable=True) as image:
        (image / "file").write_bytes(b"far away" * 50_000)
    memory = fsspec.filesystem("memory")
    memory.pipe("/far.img", path.read_bytes())
    with fsspec.open(f"{fs}://file::memory://far.img") as file:
        assert file.read() == b"far away" * 50_000
    with fsspec.open(f"{fs}://new::memory://far.img", "wb") as file:
        file.write(b"written")
    with fsspec.open(f"{fs}://new::memory://far.img") as file:
        assert file.read() == b"written"
    cached = f"{fs}://file::simplecache::memory://far.img"
    with fsspec.open(cached, simplecache={"cache_storage": str(tmp_path / "cache")}) as file:
        assert file.read(8) == b"far away"
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, "inner.img")
    with fsspec.open(f"{fs}://file::zip://inner.img::{tmp_path / 'a.zip'}") as file:
        file.seek(8)
        assert file.read(3) == b"far"
    with memory.open("/far.img", "rb") as opened, diskwright.open(opened) as image:
        assert image.read_bytes("/file") == b"far away" * 50_000


def test_partitions(path: Path, tmp_path: Path) -> None:
    disk, start = tmp_path / "disk.img", 1 << 20
    with open(disk, "wb") as file:
        entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0])
        sectors = path.stat().st_size // 512
        entry += (start // 512).to_bytes(4, "little") + sectors.to_bytes(4, "little")
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        file.seek(start)
        file.write(path.read_bytes())
    fs = DiskFileSystem(str(disk), partition=1, skip_instance_cache=True)
    fs.pipe("a/b", b"1")
    assert fs.cat("a/b") == b"1" and fs.find("") == ["a/b"]
    fs.close()
    with fsspec.open(f"disk://a/b::{disk}", disk={"partition": 1}) as file:
        assert file.read() == b"1"
    with diskwright.open(disk, partition=1) as image:
        assert image.read_bytes("/a/b") == b"1"


@pytest.fixture
def disk(path: Path) -> Iterator[DiskFileSystem]:
    fs = DiskFileSystem(str(path), skip_instance_cache=True)
    yield fs
    fs.close()


def test_names_and_infos(disk: DiskFileSystem) -> None:
    disk.pipe({"a/x": b"12", "a/b/y": b"3", "z": b""})
    disk.symlink("a/x", "link")
    assert disk.ls("a", detail=False) == ["a/b", "a/x"] == disk.ls("/a/", detail=False)
    assert disk.info("/a/x")["size"] == 2 and disk.info("")["type"] == "directory"
    assert disk.info("link")["islink"] and disk.info("link")["size"] == 2
    assert disk.find("a") == ["a/b/y", "a/x"]
    assert set(disk.find("a", withdirs=True, detail=True)) == {"a", "a/b", "a/b/y", "a/x"}
    assert disk.find("a", maxdepth=1) == ["a/x"] and disk.find("a/x") == ["a/x"] and disk.find("none") == []
    assert disk.glob("a/**/y") == ["a/b/y"] and disk.du("a") == 3
    assert disk.created("z") <= disk.modified("z") and disk.isfile("z") and not disk.isdir("z")
    assert disk.cat_file("a/x", 1) == b"2" and disk.cat_file("a/x", -2, -1) == b"1"
    assert disk.tail("a/x", 1) == b"2" and disk.head("a/x", 1) == b"1"
    with pytest.raises(FileNotFoundError):
        disk.info("none")
    with pytest.raises(FileNotFoundError):
        disk.open("none")
    with pytest.raises(IsADirectoryError):
        disk.open("a")


def test_changes(disk: DiskFileSystem) -> None:
    disk.makedirs("a/b")
    with pytest.raises(FileExistsError):
        disk.makedirs("a/b")
    disk.makedirs("a/b", exist_ok=True)
    disk.touch("a/b/x")
    with disk.open("a/b/x", "ab") as file:
        file.write(b"one")
    with disk.open("a/b/x", "ab") as file:
        file.write(b"two")
    assert disk.cat("a/b/x") == b"onetwo"
    with pytest.raises(FileExistsError):
        disk.open("a/b/x", "xb")
    disk.mv("a", "c")
    assert disk.cat("c/b/x") == b"onetwo" and not disk.exists("a")
    disk.cp("c", "d", recursive=True)
    assert disk.find("d") == ["d/b/x"]
    with pytest.raises(ValueError):
        disk.rm("d")
    disk.rm("d", recursive=True)
    disk.rm_file("c/b/x")
    disk.rmdir("c/b")
    assert disk.ls("c") == []
    large = bytes(range(256)) * 50_000
    with disk.open("large", "wb", block_size=1 << 20) as file:
        for start in range(0, len(large), 100_000):
            file.write(large[start : start + 100_000])
    with disk.open("large", "rb") as file, disk.open("copy", "wb") as other:
        other.write(file.read())
    assert disk.cat("copy") == large


def test_transactions(disk: DiskFileSystem) -> None:
    with disk.transaction:
        with disk.open("a", "wb") as file:
            file.write(b"1")
        assert not disk.exists("a")
    assert disk.cat("a") == b"1"
    with pytest.raises(RuntimeError), disk.transaction:
        with disk.open("b", "wb") as file:
            file.write(b"1")
        raise RuntimeError
    assert not disk.exists("b") and [name for name in disk.ls("", detail=False) if "part" in name] == []


def test_what_is_not_writable(path: Path) -> None:
    fs = DiskFileSystem(str(path), writable=False, skip_instance_cache=True)
    with pytest.raises(OSError) as raised:
        fs.pipe("a", b"1")
    assert raised.value.errno == 30
    with pytest.raises(OSError):
        fs.open("a", "wb")
    fs.close()
    fs = DiskFileSystem(str(path), writable=True, skip_instance_cache=True)
    fs.pipe("a", b"1")
    with pytest.raises(diskwright.ImageInUse):
        diskwright.open(path)
    fs.sync()
    fs.close()
    with diskwright.open(path) as image:
        assert image.read_bytes("/a") == b"1"
    with pytest.raises(ValueError):
        DiskFileSystem()


def test_who_only_read_makes_way(path: Path) -> None:
    reader = DiskFileSystem(str(path), skip_instance_cache=True)
    writer = DiskFileSystem(f"file://{path}", writable=True, skip_instance_cache=True)
    assert "a" not in reader.ls("", detail=False)
    writer.pipe("a", b"1")
    # A user with write access is affected.
    with pytest.raises(diskwright.ImageInUse):
        reader.cat("a")
    writer.close()
    assert reader.cat("a") == b"1"
    with reader.open("a") as file:
        other = DiskFileSystem(str(path), skip_instance_cache=True)
        other.pipe("a", b"2")
        # Between reads, the image is not in use.
        assert file.read() in (b"1", b"2")
    reader.close()
    other.close()


def test_it_goes_to_other_processes(disk: DiskFileSystem) -> None:
    disk.pipe("a", b"1")
    again = pickle.loads(pickle.dumps(disk))
    assert again.cat("a") == b"1"
    again.close()


def test_sessions_of_several_threads(disk: DiskFileSystem) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> bytes:
        disk.pipe(f"{number}", bytes([number]))
        result: bytes = disk.cat(f"{number}")
        return result

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(work, range(30))) == [bytes([number]) for number in range(30)]
