"""Closing an image loses nothing that was written to its files, and a mount never keeps a program from ending."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import judge, need_mounts

import diskwright


def test_closing_an_image_flushes_and_closes_its_files(path: Path) -> None:
    with diskwright.open(path, writable=True) as image:
        files: list[Any] = [
            image.open("/buffered", "wb"),
            image.open("/random", "w+b"),
            image.open("/text", "w"),
            image.open("/raw", "wb", 0),
            (image / "appended").open("ab"),
        ]
        for file in files:
            file.write("data" if isinstance(file, io.TextIOBase) else b"data")
    assert all(file.closed for file in files)
    with diskwright.open(path) as image:
        for name in ("buffered", "random", "text", "raw", "appended"):
            assert image.read_bytes(f"/{name}") == b"data", name
    for file in files:
        file.close()
        with pytest.raises(ValueError):
            file.write("more" if isinstance(file, io.TextIOBase) else b"more")
    judge(path)


def test_what_cannot_be_flushed_is_an_error_of_close(tmp_path: Path) -> None:
    path = tmp_path / "small.img"
    image = diskwright.create(path, 4 << 20)
    large = image.open("/large", "wb", 64 << 20)
    other = image.open("/other", "wb")
    large.write(b"x" * (16 << 20))
    other.write(b"kept")
    with pytest.raises(OSError) as raised:
        image.close()
    assert raised.value.errno == 28 and image.closed and large.closed and other.closed
    image.close()
    assert diskwright.check(path)
    judge(path)


def test_a_file_keeps_its_image_open(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        file = diskwright.open(path, writable=True).open("/file", "wb")
        gc.collect()
        file.write(b"data")
        file.close()
        del file
        # Both are freed as a cycle.
        image: Any = diskwright.open(path, writable=True)
        cycle: list[Any] = [image, image.open("/cycle", "wb")]
        cycle[1].write(b"data")
        cycle.append(cycle)
        image.cycle = cycle
        del image, cycle
        gc.collect()
    with diskwright.open(path) as image:
        assert image.read_bytes("/file") == b"data"
        assert image.read_bytes("/cycle") == b"data"
    judge(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_flushes_no_files_of_its_parent(path: Path) -> None:
    image = diskwright.open(path, writable=True)
    file = image.open("/file", "wb")
    file.write(b"once")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            image.close()
            os._exit(0 if not file.closed else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    image.close()
    with diskwright.open(path) as image:
        assert image.read_bytes("/file") == b"once"
    judge(path)


def create_own(path: Path) -> None:
    """An image whose root directory belongs to this user."""
    with diskwright.create(path, 16 << 20) as image:
        image.chown("/", os.geteuid(), os.getegid())


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a program that must end by itself within a minute."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def left(tmp_path: Path) -> list[str]:
    """Returns directories left by mounts, and their mounts."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line]
    return [str(path) for path in tmp_path.glob("diskwright-*")] + mounts


def wait_until_free(path: Path) -> None:
    for _ in range(600):
        try:
            diskwright.open(path, writable=True).close()
            return
        except diskwright.ImageInUse:
            time.sleep(0.05)
    pytest.fail("the image stays in use")


def test_leaving_a_mount_with_an_open_file_is_busy(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_mounts()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run(
        """
        import errno, os, sys, diskwright
        try:
            with diskwright.mount(sys.argv[1], writable=True) as point:
                file = open(point / "file", "w")
                file.write("written before")
                file.flush()
        except OSError as error:
            assert error.errno == errno.EBUSY, error
            print("busy", os.path.exists(point))
        # The file can be used until it is closed.
        file.write(" and after")
        file.close()
        """,
        path,
    )
    assert done.returncode == 0 and done.stdout == "busy False\n", done
    assert left(tmp_path) == []
    wait_until_free(path)
    with diskwright.open(path) as image:
        assert image.read_text("/file") == "written before and after"
    judge(path)


def test_an_exception_in_a_mount_comes_before_the_open_file(path: Path, tmp_path: Path) -> None:
    need_mounts()
    with pytest.raises(LookupError) as raised, diskwright.mount(path, writable=True) as point:
        file = open(point / "file", "w")
        raise LookupError
    assert "still open" in raised.value.__notes__[0] and not point.exists()
    file.close()
    wait_until_free(path)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "exit"])
def test_a_program_with_a_mount_can_be_killed(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_mounts()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "a.img"
    create_own(path)
    done = run(
        """
        import os, signal, sys, diskwright
        mounted = diskwright.mount(sys.argv[1], writable=True)
        file = open(mounted.__enter__() / "file", "w")
        file.write("data")
        file.flush()
        if sys.argv[2] != "exit":
            os.kill(os.getpid(), getattr(signal, sys.argv[2]))
        """,
        path,
        how,
    )
    assert done.returncode == (0 if how == "exit" else -getattr(signal, how)), done
    wait_until_free(path)
    assert [line for line in left(tmp_path) if line.startswith("/dev")] == []
    with diskwright.open(path) as image:
        assert image.read_text("/file") == "data"
    judge(path)


def test_a_server_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    need_mounts()
    path = tmp_path / "a.img"
    create_own(path)
    from diskwright import _mount

    begun = time.monotonic()
    with pytest.raises(TimeoutError), diskwright.mount(path, timeout=0.2) as point:
        (server,) = [server for server in _mount._servers if server.point == os.fsencode(point)]
        os.kill(server.process.pid, signal.SIGSTOP)
    assert not point.exists() and time.monotonic() - begun < 30
    with pytest.raises(OSError, match="signal 9"), diskwright.mount(path) as point:
        (server,) = [server for server in _mount._servers if server.point == os.fsencode(point)]
        os.kill(server.process.pid, signal.SIGKILL)
    assert not point.exists()
    with diskwright.mount(path) as point:
        assert point.is_mount()
    judge(path)


@pytest.fixture
def switches() -> Iterator[None]:
    """Makes threads switch often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize(
    ("closed", "mode", "options"),
    [
        ("image", "wb", {"buffering": 4096}),
        ("image", "wb", {"buffering": 0}),
        ("image", "w+b", {"buffering": 4096}),
        ("image", "w", {}),
        ("image", "w", {"buffering": 1}),
        ("file", "a", {"encoding": "cp1252"}),
    ],
)
def test_threads_may_write_while_the_image_is_closed(
    path: Path, closed: str, mode: str, options: dict[str, Any]
) -> None:
    image = diskwright.open(path, writable=True)
    files: list[Any] = [image.open(f"/{number}", mode, **options) for number in range(4)]
    data: Any = b"x" * 100 if "b" in mode else "x" * 100
    begun = threading.Barrier(len(files) + 1)
    written = [0] * len(files)

    def work(number: int) -> None:
        begun.wait()
        try:
            while written[number] < 8 << 20:
                files[number].write(data)
                written[number] += len(data)
        except ValueError:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(files))]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(0.01)
    if closed == "file":
        for file in files:
            file.close()
    image.close()
    for thread in threads:
        thread.join()
    with diskwright.open(path) as image:
        assert [image.stat(f"/{number}").st_size for number in range(len(files))] == written
    judge(path)


@pytest.mark.usefixtures("switches")
def test_threads_may_open_files_while_the_image_is_closed(path: Path) -> None:
    image = diskwright.open(path, writable=True)
    begun = threading.Barrier(2)
    files: list[Any] = []

    def work() -> None:
        begun.wait()
        try:
            while True:
                file = image.open(f"/{len(files)}", "wb")
                file.write(b"data")
                files.append(file)
        except ValueError:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    time.sleep(0.02)
    image.close()
    thread.join()
    assert files and all(file.closed for file in files)
    with diskwright.open(path) as image:
        assert [image.stat(f"/{number}").st_size for number in range(len(files))] == [4] * len(files)
    judge(path)


def test_an_image_is_closed_by_one_thread(path: Path) -> None:
    image = diskwright.open(path, writable=True)
    files = [image.open(f"/{number}", "wb") for number in range(8)]
    for file in files:
        file.write(b"x" * 100_000)
    failed: list[BaseException] = []

    def close() -> None:
        try:
            image.close()
            assert image.closed
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with diskwright.open(path) as image:
        assert [image.stat(f"/{number}").st_size for number in range(8)] == [100_000] * 8
