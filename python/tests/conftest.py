"""Shared fixtures: images of both formats, and requirements of the machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import diskwright

FORMATS = ("ext4", "xfs")


def need(condition: bool, what: str) -> None:
    """Skips a test with a message if a requirement is missing. With DISKWRIGHT_REQUIRE_TOOLS=1 the test fails."""
    if not condition:
        if os.environ.get("DISKWRIGHT_REQUIRE_TOOLS") == "1":
            pytest.fail(f"needs {what}")
        pytest.skip(f"SKIPPED: needs {what}")


def need_modules(*names: str) -> None:
    """Skips a test if a module is missing that only the full run installs."""
    for name in names:
        try:
            missing = importlib.util.find_spec(name) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            pytest.skip(f"SKIPPED: needs {name}, as scripts/test-python without --quick installs it")


def need_mounts() -> None:
    may = os.geteuid() == 0 or shutil.which("fusermount3") is not None
    need(may and os.access("/dev/fuse", os.R_OK | os.W_OK), "FUSE, and root or fusermount3, to mount")


@pytest.fixture(params=FORMATS)
def fs(request: pytest.FixtureRequest) -> str:
    """Each format."""
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, fs: str) -> Path:
    """An empty image."""
    path = tmp_path / "test.img"
    with diskwright.create(path, 64 << 20, fs=fs, small=True) as image:  # type: ignore[arg-type]
        # The current user may use a mount of it.
        image.chown("/", os.geteuid(), os.getegid())
    return path


@pytest.fixture
def image(path: Path) -> Iterator[diskwright.Image]:
    """An empty image that is open for changes, and must be clean afterwards."""
    with diskwright.open(path, writable=True) as image:
        yield image
    report = diskwright.check(path)
    assert report, report.findings
    judge(path)


def judge(path: Path) -> None:
    """Checks an image with e2fsck or xfs_repair, if installed."""
    fs = diskwright.info(path)["format"]
    if fs == "xfs":
        # Older releases refuse new features.
        tools = os.environ.get("DISKWRIGHT_TOOLS") or Path(__file__).parents[2] / "target/tools"
        program = shutil.which("xfs_repair", path=f"{tools}/xfsprogs/bin:{os.environ['PATH']}")
        command = [program or "", "-n", "-f", "-o", "force_geometry", str(path)]
    else:
        program = shutil.which("e2fsck")
        command = [program or "", "-fn", str(path)]
    if program is None:
        return
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout + judged.stderr


@contextmanager
def kernel_mount(path: Path, point: Path, *, writable: bool = False) -> Iterator[Path]:
    """The kernel's own mount of an image."""
    need(os.geteuid() == 0, "root, to mount")
    point.mkdir(exist_ok=True)
    options = "loop" if writable else "loop,ro"
    mounted = subprocess.run(
        ["mount", "-o", options, str(path), str(point)], capture_output=True, text=True
    )
    need(mounted.returncode == 0, f"loop devices and this file system: {mounted.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)
