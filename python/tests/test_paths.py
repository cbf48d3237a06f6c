"""Paths in images behave like those of pathlib."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

import pytest

import diskwright
from diskwright import Image, ImagePath


def test_a_path_says_what_pathlib_says(image: Image) -> None:
    path, pure = image / "srv" / "www" / "a.tar.gz", PurePosixPath("/srv/www/a.tar.gz")
    for name in ("parts", "name", "suffix", "suffixes", "stem", "root", "anchor", "drive"):
        assert getattr(path, name) == getattr(pure, name), name
    assert str(path) == path.as_posix() == str(pure)
    assert str(path.parent) == "/srv/www"
    assert [str(parent) for parent in path.parents] == [str(parent) for parent in pure.parents]
    assert str(path.with_name("b")) == "/srv/www/b"
    assert str(path.with_suffix(".zst")) == "/srv/www/a.tar.zst"
    assert str(path.with_stem("b")) == "/srv/www/b.gz"
    assert path.relative_to("/srv") == PurePosixPath("www/a.tar.gz")
    assert path.is_relative_to(image / "srv") and not path.is_relative_to("/etc")
    assert path.match("*.gz") and image / "/srv" == image / "srv" and image / "a" < image / "b"
    assert path.is_absolute() and path.joinpath("x", "y").parts[-2:] == ("x", "y")
    assert {path, image / "srv/www/a.tar.gz"} == {path}
    assert not isinstance(path, os.PathLike)
    assert repr(path).startswith("<ImagePath '/srv/www/a.tar.gz' of ")


def test_files_are_written_read_and_removed(image: Image) -> None:
    path = image / "motd"
    assert not path.exists()
    assert path.write_text("grüß Gott\n") == 10
    assert path.read_text() == "grüß Gott\n" and path.read_bytes() == "grüß Gott\n".encode()
    assert path.write_bytes(b"abc") == 3 and path.stat().st_size == 3
    with pytest.raises(FileExistsError):
        path.touch(exist_ok=False)
    path.unlink()
    path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError) as raised:
        path.unlink()
    assert raised.value.filename == "/motd" and raised.value.errno == 2


def test_directories_are_made_listed_and_removed(image: Image) -> None:
    top = image / "a"
    with pytest.raises(FileNotFoundError):
        (top / "b").mkdir()
    (top / "b" / "c").mkdir(parents=True, mode=0o700)
    assert stat.S_IMODE((top / "b" / "c").stat().st_mode) == 0o700
    (top / "b").mkdir(exist_ok=True)
    with pytest.raises(FileExistsError):
        (top / "b").mkdir()
    (top / "x").touch()
    with pytest.raises(FileExistsError):
        (top / "x").mkdir(exist_ok=True)
    assert {path.name for path in top.iterdir()} == {"b", "x"} == set(image.listdir("/a"))
    with pytest.raises(OSError, match="not empty"):
        top.rmdir()
    with pytest.raises(NotADirectoryError):
        image.listdir("/a/x")
    with pytest.raises(IsADirectoryError):
        (top / "b").read_bytes()
    top.rmtree()
    assert not top.exists()


def test_links(image: Image) -> None:
    target, link = image / "target", image / "link"
    target.write_bytes(b"1")
    link.symlink_to("target")
    assert link.is_symlink() and link.is_file() and link.readlink() == PurePosixPath("target")
    assert link.resolve() == target and link.samefile(target)
    assert link.lstat().st_ino != link.stat().st_ino == target.stat().st_ino
    (image / "other").hardlink_to(target)
    assert target.stat().st_nlink == 2
    (image / "lost").symlink_to("nowhere")
    assert not (image / "lost").exists() and (image / "lost").exists(follow_symlinks=False)
    (image / "loop").symlink_to("loop")
    assert not (image / "loop").is_file()
    assert (image / "no" / "such").resolve() == image / "no" / "such"
    with pytest.raises(FileNotFoundError):
        (image / "no").resolve(strict=True)


def test_moving(image: Image) -> None:
    (image / "a").write_bytes(b"a")
    (image / "b").write_bytes(b"b")
    moved = (image / "a").rename(image / "b")
    assert moved == image / "b" and moved.read_bytes() == b"a" and not (image / "a").exists()
    (image / "c").write_bytes(b"c")
    image.exchange("/b", "/c")
    assert (image / "b").read_bytes() == b"c"
    with pytest.raises(FileExistsError):
        image.rename("/b", "/c", replace=False)
    assert (image / "b").copy("/d").read_bytes() == b"c"


def test_attributes(image: Image) -> None:
    path = image / "file"
    path.touch()
    path.chmod(0o4711)
    path.chown(1000, 100)
    path.utime(ns=(1, -1))
    found = path.stat()
    assert (found.st_uid, found.st_gid) == (path.owner(), path.group()) == (1000, 100)
    assert found.st_atime_ns == 1 and found.st_mtime_ns == -1
    assert found.st_birthtime is not None and found[6] == found.st_size == 0 and len(found) == 10
    assert tuple(found)[4] == 1000 and os.stat_result(tuple(found)).st_uid == 1000
    path.setxattr("user.a", b"\0\xff")
    assert path.getxattr("user.a") == b"\0\xff" and path.listxattr() == ["user.a"]
    path.removexattr("user.a")
    with pytest.raises(OSError) as raised:
        path.getxattr("user.a")
    assert raised.value.errno == 61
    (image / "link").symlink_to("file")
    (image / "link").setxattr("user.b", b"1")
    assert path.listxattr() == ["user.b"]


def test_devices_and_pipes(image: Image) -> None:
    image.mknod("/null", stat.S_IFCHR | 0o666, major=1, minor=3)
    image.mknod("/fifo", stat.S_IFIFO | 0o600)
    assert (image / "null").is_char_device() and (image / "fifo").is_fifo()
    found = (image / "null").stat()
    assert (found.st_major, found.st_minor) == (1, 3) and found.st_rdev == os.makedev(1, 3)


def test_glob_and_walk_are_those_of_the_host(image: Image, tmp_path: Path) -> None:
    host = tmp_path / "host"
    for name in ("a/b/c.txt", "a/b/d.bin", "a/.hidden.txt", "e.txt", "f/g/h/i.txt"):
        for path in (host / name, image / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
    (host / "link").symlink_to("a")
    (image / "link").symlink_to("a")
    if (image / "lost+found").exists():
        (host / "lost+found").mkdir()
    for pattern in ("*", "*.txt", "**/*.txt", "a/*/*", "*/b/?.bin", "a/[!b]*", "**/g", "link/b/*"):
        ours = {str(path)[1:] for path in image.glob(pattern)}
        assert ours == {str(path.relative_to(host)) for path in host.glob(pattern)}, pattern
    assert {str(path) for path in (image / "a").rglob("*.txt")} == {"/a/b/c.txt", "/a/.hidden.txt"}

    def walked(steps: object) -> list[tuple[str, list[str], list[str]]]:
        return sorted((str(top), sorted(dirs), sorted(files)) for top, dirs, files in steps)  # type: ignore[attr-defined]

    for top_down in (True, False):
        ours = walked(image.walk("/", top_down))
        theirs = walked(os.walk(host, top_down))
        assert [("/" + top[len(str(host)) :].lstrip("/"), *rest) for top, *rest in theirs] == [
            tuple(step) for step in ours
        ]
    tree = {path for path, _ in image.tree("/", sorted=True)}
    assert "/f/g/h/i.txt" in tree and "/link" in tree


def test_scandir_is_that_of_os(image: Image) -> None:
    (image / "d").mkdir()
    for number in range(700):
        (image / "d" / str(number)).touch()
    (image / "d" / "link").symlink_to("..")
    with image.scandir("/d") as entries:
        found = {entry.name: entry for entry in entries}
    assert len(found) == 701 and found["link"].is_symlink()
    assert found["link"].is_dir() and not found["link"].is_dir(follow_symlinks=False)
    entry = found["42"]
    assert entry.is_file() and entry.path == "/d/42" and entry.inode() == entry.stat().st_ino
    assert repr(entry) == "<DirEntry '42'>"


def test_names_that_are_no_text(image: Image) -> None:
    raw = b"/caf\xe9"
    image.write_bytes(raw, b"1")
    (name,) = (name for name in image.listdir() if name != "lost+found")
    assert os.fsencode(name) == raw[1:]
    assert image.read_bytes("/" + name) == b"1" and bytes(image / name) == raw
    assert (image / raw).exists()


def test_what_no_path_can_be(image: Image) -> None:
    for bad in (3, None, object()):
        with pytest.raises(TypeError):
            image.stat(bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            image / bad  # type: ignore[operator]
    for path in ("", "a\0b", "x" * 256):
        with pytest.raises((OSError, ValueError)):
            image.write_bytes(path, b"")
    assert not image.exists("x" * 256) and not image.exists("a\0b")


def test_paths_of_two_images_do_not_meet(image: Image, tmp_path: Path) -> None:
    with diskwright.create(tmp_path / "other.img", 16 << 20) as other:
        (image / "a").touch()
        with pytest.raises(OSError) as raised:
            (image / "a").rename(other / "a")
        assert raised.value.errno == 18
        assert image / "a" != other / "a"
        assert isinstance(image.root, ImagePath)
