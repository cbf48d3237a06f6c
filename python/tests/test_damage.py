"""Damage of one file hides no other file: listings and copies report it and continue, and salvage reads the rest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import diskwright
from diskwright.fsspec import DiskFileSystem

#: Files of the damaged image besides lost+found.
FILES = ["/d/bad", "/d/deep/file", "/d/good", "/d/loop", "/d/lost", "/top"]


@pytest.fixture
def damaged(path: Path, fs: str) -> Iterator[Path]:
    """An image in which the inode of /d/bad is damaged, and /d has a looping and a broken link."""
    with diskwright.open(path, writable=True) as image:
        image.makedirs("/d/deep")
        for name in ("/d/good", "/d/deep/file", "/top"):
            image.write_bytes(name, name.encode())
        image.write_bytes("/d/bad", b"bad")
        image.symlink("loop", "/d/loop")
        image.symlink("nowhere", "/d/lost")
        ino = image.stat("/d/bad").st_ino
        size = image.statfs().block_size
    damage(path, fs, ino, size)
    yield path


def damage(path: Path, fs: str, ino: int, block_size: int) -> None:
    """Damages an inode."""
    with open(path, "r+b") as file:
        file.seek(place_of(path, fs, ino, block_size))
        damaged = bytearray(file.read(64))
        damaged[40] ^= 0xFF
        file.seek(-64, os.SEEK_CUR)
        file.write(damaged)


def place_of(path: Path, fs: str, ino: int, block_size: int) -> int:
    """Returns the byte offset of an inode: for ext4 from debugfs, for XFS from the geometry in the superblock."""
    if fs == "ext4":
        told = subprocess.run(
            ["debugfs", "-R", f"imap <{ino}>", path], capture_output=True, text=True, check=True
        ).stdout
        block, offset = told.rpartition("located at block ")[2].split(", offset ")
        return int(block) * block_size + int(offset, 16)
    head = path.read_bytes()[:256]
    inopblog, agblklog = head[123], head[124]
    ag_blocks, inode_size = int.from_bytes(head[84:88], "big"), int.from_bytes(head[104:106], "big")
    group, block = ino >> (inopblog + agblklog), (ino >> inopblog) & ((1 << agblklog) - 1)
    return (group * ag_blocks + block) * block_size + (ino & ((1 << inopblog) - 1)) * inode_size


def own(names: Iterator[str] | list[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("/lost+found") and name != "/")


def test_walks_report_and_go_on(damaged: Path) -> None:
    with diskwright.open(damaged) as image:
        with pytest.raises(diskwright.DamagedImage):
            image.stat("/d/bad")
        for topdown in (True, False):
            errors: list[OSError] = []
            found = list(image.walk("/", topdown, errors.append))
            files = [f"{top}/{name}".replace("//", "/") for top, _, names in found for name in names]
            assert own(files) == FILES
            # The entry says that it is a file, so its inode is not read.
            assert not errors
        assert own(f"{top}/{name}" for top, _, names in (image / "d").walk() for name in names) == FILES[:5]
        assert [str(path) for path in image.glob("d/*/file")] == ["/d/deep/file"]
        with pytest.raises(diskwright.DamagedImage):
            list(image.tree())
        errors = []
        tree = [name for name, _ in image.tree("/", sorted=True, onerror=errors.append)]
        assert [error.filename for error in errors] == ["/d/bad"]
        assert own(tree) == own(["/d", "/d/deep", *FILES[1:]])

        def stops(error: OSError) -> None:
            raise KeyError

        with pytest.raises(KeyError):
            list(image.tree(onerror=stops))
        image.close()
        with pytest.raises(diskwright.ClosedImage):
            list(image.walk("/", onerror=errors.append))


def test_walks_report_damaged_directories(path: Path, fs: str) -> None:
    with diskwright.open(path, writable=True) as image:
        image.makedirs("/tree/gone/below")
        image.write_bytes("/tree/kept", b"")
        ino, size = image.stat("/tree/gone").st_ino, image.statfs().block_size
    damage(path, fs, ino, size)
    with diskwright.open(path) as image:
        errors: list[OSError] = []
        by_name = [(top, files) for top, _, files in image.walk("/tree", onerror=errors.append)]
        by_path = [(str(top), files) for top, _, files in (image / "tree").walk(on_error=errors.append)]
        assert by_name == by_path == [("/tree", ["kept"])]
        assert [error.filename for error in errors] == ["/tree/gone"] * 2
        assert all(isinstance(error, diskwright.DamagedImage) for error in errors)


def test_copies_report_and_go_on(damaged: Path, tmp_path: Path) -> None:
    with diskwright.open(damaged) as image:
        with pytest.raises(diskwright.DamagedImage):
            image.copy_out("/d", tmp_path / "stops")
        errors: list[OSError] = []
        report = image.copy_out("/d", tmp_path / "all", onerror=errors.append)
        assert report.unreadable == 1 and [error.filename for error in errors] == ["/d/bad"]
        assert isinstance(errors[0], diskwright.DamagedImage) and errors[0].structure
        assert sorted(os.listdir(tmp_path / "all")) == ["deep", "good", "loop", "lost"]
        assert (tmp_path / "all" / "deep" / "file").read_text() == "/d/deep/file"


def test_fsspec_reports_and_goes_on(damaged: Path) -> None:
    disk = DiskFileSystem(str(damaged), skip_instance_cache=True)
    with pytest.raises(diskwright.DamagedImage):
        disk.find("")
    errors: list[OSError] = []
    found = disk.find("", detail=True, onerror=errors.append)
    assert own(f"/{name}" for name in found) == FILES[1:] and len(errors) == 1
    entries = {entry["name"]: entry for entry in disk.ls("d")}
    assert set(entries) == {"d/bad", "d/deep", "d/good", "d/loop", "d/lost"}
    assert "error" in entries["d/bad"] and "error" not in entries["d/good"]
    disk.close()


def test_salvage_reads_what_cannot_be_opened(fs: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.img"
    # Small blocks give small groups in ext4, and so copies of the superblock.
    block_size = 1024 if fs == "ext4" else None
    with diskwright.create(path, 64 << 20, fs=fs, small=True, block_size=block_size) as image:  # type: ignore[arg-type]
        image.makedirs("/d/deep")
        image.write_bytes("/d/good", b"good")
    with open(path, "r+b") as file:
        file.seek(1024 if fs == "ext4" else 0)
        file.write(bytes(512))
    broken = path.read_bytes()
    with pytest.raises(diskwright.UnsupportedImage, match=r"salvage=True"):
        diskwright.open(path)
    with diskwright.open(path, salvage=True) as image:
        assert image.read_bytes("/d/good") == b"good" and not image.writable
        errors: list[OSError] = []
        report = image.copy_out("/", tmp_path / "saved", onerror=errors.append)
        assert report.files >= 4 and (tmp_path / "saved" / "d" / "good").read_text() == "good"
    assert path.read_bytes() == broken
    with pytest.raises(ValueError):
        diskwright.open(path, salvage=True, writable=True)
    with open(path, "rb") as opened, pytest.raises(TypeError):
        diskwright.open(opened, salvage=True)


def test_reports_are_readable(damaged: Path) -> None:
    report = diskwright.check(damaged)
    first, *lines = str(report).splitlines()
    assert first.startswith(f"{report.format}: damaged: ")
    assert any(report.findings[0].code in line and "inode" in line for line in lines)
    planned = diskwright.repair(damaged, plan=True)
    assert str(planned).startswith("planned\n  ") and planned.actions[0] in str(planned)
    diskwright.repair(damaged)
    clean = diskwright.check(damaged)
    assert str(clean) == f"{clean.format}: clean"
