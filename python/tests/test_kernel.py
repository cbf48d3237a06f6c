"""The kernel's mount of the same image shows the same tree, and files written by the kernel can be read."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import FORMATS, judge, kernel_mount, need
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import diskwright

NAMES = st.sampled_from(["a", "b", "c", "ü", "long" * 60, "b\udcff"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("mkdir"), PATHS),
        st.tuples(st.just("write_bytes"), PATHS, st.binary(max_size=200).map(lambda b: b * 97)),
        st.tuples(st.just("symlink"), st.text("abc/.", min_size=1, max_size=90), PATHS),
        st.tuples(st.just("link"), PATHS, PATHS),
        st.tuples(st.just("rename"), PATHS, PATHS),
        st.tuples(st.just("unlink"), PATHS),
        st.tuples(st.just("rmdir"), PATHS),
        st.tuples(st.just("truncate"), PATHS, st.integers(0, 1 << 21)),
        st.tuples(st.just("chmod"), PATHS, st.integers(0, 0o7777)),
        st.tuples(st.just("chown"), PATHS, st.integers(0, 1 << 31), st.integers(0, 70000)),
        st.tuples(st.just("setxattr"), PATHS, st.sampled_from(["user.a", "user.b"]), st.binary(max_size=300)),
        st.tuples(st.just("utime"), PATHS, st.none(), st.integers(0, 1 << 60)),
    ),
    max_size=25,
)


def shown(top: Path) -> dict[str, Any]:
    """A tree of the host."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            own = os.lstat(path)
            found[path[len(str(top)) :]] = (
                own.st_mode,
                own.st_uid,
                own.st_gid,
                own.st_nlink,
                own.st_size if not stat.S_ISDIR(own.st_mode) else None,
                own.st_mtime_ns,
                own.st_ino,
                os.readlink(path) if stat.S_ISLNK(own.st_mode) else None,
                Path(path).read_bytes() if stat.S_ISREG(own.st_mode) else None,
                {name: os.getxattr(path, name) for name in os.listxattr(path)}
                if stat.S_ISREG(own.st_mode)
                else None,
            )
    return found


def shown_by_us(path: Path) -> dict[str, Any]:
    """The same for an image."""
    found = {}
    with diskwright.open(path) as image:
        for name, own in image.tree("/"):
            if name == "/":
                continue
            file = image / name
            found[name] = (
                own.st_mode,
                own.st_uid,
                own.st_gid,
                own.st_nlink,
                own.st_size if not stat.S_ISDIR(own.st_mode) else None,
                own.st_mtime_ns,
                own.st_ino,
                str(image.readlink(name)) if stat.S_ISLNK(own.st_mode) else None,
                file.read_bytes() if stat.S_ISREG(own.st_mode) else None,
                {name: file.getxattr(name) for name in file.listxattr()}
                if stat.S_ISREG(own.st_mode)
                else None,
            )
    return found


def act(image: diskwright.Image, step: tuple[Any, ...]) -> None:
    name, *arguments = step
    if name == "utime":
        image.utime(arguments[0], ns=(arguments[2], arguments[2]))
    else:
        getattr(image, name)(*arguments)


@pytest.mark.parametrize("fs", FORMATS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_the_kernel_shows_what_we_show(fs: str, steps: list[tuple[Any, ...]]) -> None:
    need(os.geteuid() == 0, "root, to mount")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "test.img"
        with diskwright.create(path, 32 << 20, fs=fs, small=True) as image:  # type: ignore[arg-type]
            for step in steps:
                try:
                    act(image, step)
                except OSError:
                    pass
        ours = shown_by_us(path)
        with kernel_mount(path, Path(directory) / "mount") as point:
            assert shown(point) == ours
        judge(path)


@pytest.mark.parametrize("fs", FORMATS)
def test_we_show_what_the_kernel_wrote(fs: str, tmp_path: Path) -> None:
    path = tmp_path / "test.img"
    diskwright.create(path, 64 << 20, fs=fs, small=True).close()  # type: ignore[arg-type]
    with kernel_mount(path, tmp_path / "mount", writable=True) as point:
        for number in range(300):
            file = point / f"d{number % 7}" / f"{number}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(os.urandom(number * 13))
            os.utime(file, ns=(number, number * 10**9 + 5))
        os.symlink("d1", point / "link")
        os.link(point / "d1" / "1", point / "hard")
        os.setxattr(point / "hard", "user.x", b"1")
        os.mknod(point / "fifo", stat.S_IFIFO | 0o600)
        theirs = shown(point)
    assert shown_by_us(path) == theirs
