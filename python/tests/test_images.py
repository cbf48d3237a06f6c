"""Images as a whole: opened, closed, in use, damaged, forked, in threads and in other processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import judge

import diskwright
from diskwright import Image


def test_a_closed_image_is_an_error(path: Path) -> None:
    image = diskwright.open(path, writable=True)
    file = image.open("/file", "wb", 0)
    entries = image.scandir()
    tree = image.tree()
    image.close()
    image.close()
    assert image.closed
    for act in (
        image.listdir,
        image.sync,
        lambda: image.stat("/"),
        lambda: file.write(b"x"),
        lambda: image.open("/file"),
        lambda: list(entries),
        lambda: list(tree),
        lambda: (image / "x").exists(),
    ):
        with pytest.raises(diskwright.ClosedImage) as raised:
            act()
        assert isinstance(raised.value, OSError) and isinstance(raised.value, ValueError)
    file.close()


def test_an_image_that_is_in_use(path: Path) -> None:
    with diskwright.open(path, writable=True):
        for writable in (True, False):
            with pytest.raises(diskwright.ImageInUse) as raised:
                diskwright.open(path, writable=writable)
            assert raised.value.errno == 16 and raised.value.filename == str(path)
        diskwright.open(path, norecovery=True).close()
        with pytest.raises(diskwright.ImageInUse):
            diskwright.repair(path)
    with diskwright.open(path), diskwright.open(path):
        with pytest.raises(diskwright.ImageInUse):
            diskwright.open(path, writable=True)


def test_what_is_no_image(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        diskwright.open(tmp_path / "none")
    assert raised.value.filename == str(tmp_path / "none")
    (tmp_path / "text").write_text("no image" * 1000)
    with pytest.raises(diskwright.UnsupportedImage):
        diskwright.open(tmp_path / "text")
    with pytest.raises(OSError):
        diskwright.open(tmp_path)
    with pytest.raises(ValueError):
        diskwright.open(tmp_path / "text", offset=1 << 40)
    with pytest.raises(OSError) as other:
        diskwright.open(tmp_path / "text", partition=1)
    assert other.value.errno == 6


def test_damage_says_where(path: Path, fs: str) -> None:
    with diskwright.open(path, writable=True) as image:
        image.makedirs("/d")
        for number in range(300):
            image.write_bytes(f"/d/{number:0100}", b"")
    size = diskwright.info(path)["block_size"]
    # Blocks of the directory with this name, and stale copies in the journal; XFS blocks have a magic number.
    data, blocks, at = path.read_bytes(), set(), -1
    while (at := data.find(f"{250:0100}".encode(), at + 1)) >= 0:
        block = at // size
        if fs == "ext4" or data[block * size : block * size + 4] == b"XDD3":
            blocks.add(block)
    assert blocks
    with open(path, "r+b") as file:
        for block in blocks:
            file.seek(block * size)
            file.write(b"\xa5" * size)
    with diskwright.open(path) as image:
        with pytest.raises(diskwright.DamagedImage) as raised:
            image.listdir("/d")
        error = raised.value
        assert error.errno == 117 and error.filename == "/d" and error.structure and error.problem
        assert error.inode is not None or error.block is not None
        again = pickle.loads(pickle.dumps(error))
        assert again.structure == error.structure and again.errno == 117
    report = diskwright.check(path)
    assert not report and report.verdict == "damaged" and report.findings[0].code.startswith(fs)
    planned = diskwright.repair(path, plan=True)
    assert planned.verdict == "planned" and planned.actions
    before = path.read_bytes()
    done = diskwright.repair(path, undo=path.with_suffix(".undo"))
    assert done.verdict == "repaired" and diskwright.check(path), done
    judge(path)
    assert diskwright.restore(path, path.with_suffix(".undo")) > 0
    assert path.read_bytes() == before


def test_what_nobody_closed_is_told_and_closed(path: Path) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        image = diskwright.open(path, writable=True)
        image.write_bytes("/x", b"1")
        del image
    assert any(issubclass(warning.category, ResourceWarning) for warning in told)
    with diskwright.open(path) as image:
        assert image.read_bytes("/x") == b"1"
    judge(path)


def test_threads(image: Image) -> None:
    (image / "shared").write_bytes(b"s" * 100_000)

    def work(number: int) -> int:
        top = image / str(number)
        top.mkdir()
        for each in range(50):
            (top / str(each)).write_bytes(bytes([number]) * each * 10)
            assert len((image / "shared").read_bytes()) == 100_000
        assert {path.name for path in top.iterdir()} == set(map(str, range(50)))
        return sum(path.stat().st_size for path in top.iterdir())

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(16))) == [sum(range(50)) * 10] * 16


def test_a_thread_may_close_while_others_work(path: Path) -> None:
    image = diskwright.open(path, writable=True)
    begun = threading.Barrier(5)

    def work(number: int) -> str:
        begun.wait()
        try:
            for each in range(100_000):
                image.write_bytes(f"/{number}", b"x" * (each % 5000))
        except diskwright.ClosedImage:
            return "closed"
        return "not closed"

    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(work, number) for number in range(4)]
        begun.wait()
        image.close()
        assert [answer.result() for answer in answers] == ["closed"] * 4
    assert diskwright.check(path)
    judge(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_no_image(path: Path) -> None:
    with diskwright.open(path, writable=True) as image:
        file = image.open("/file", "w+b", 0)
        file.write(b"parent")
        entries = image.scandir("/")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            status = 1
            try:
                refused = 0
                for act in (
                    lambda: image.write_bytes("/child", b"x"),
                    lambda: file.write(b"child"),
                    lambda: list(entries),
                    image.sync,
                ):
                    try:
                        act()
                    except OSError as error:
                        refused += error.errno == 9
                image.close()
                file = entries = image = None  # type: ignore[assignment]
                status = 0 if refused == 4 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        image.write_bytes("/after", b"1")
        assert file.tell() == 6
        file.close()
    with diskwright.open(path) as image:
        assert image.read_bytes("/file") == b"parent" and not image.exists("/child")
    assert diskwright.check(path)
    judge(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_ends_as_programs_do_leaves_the_image_alone(path: Path) -> None:
    program = f"""
import os, warnings, diskwright
warnings.simplefilter("ignore")
image = diskwright.open({str(path)!r}, writable=True)
image.write_bytes("/a", b"1" * 50000)
if os.fork() == 0:
    raise SystemExit(0)
assert os.wait()[1] == 0
image.write_bytes("/b", b"2" * 50000)
image.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    with diskwright.open(path) as image:
        assert image.read_bytes("/a") == b"1" * 50000 and image.read_bytes("/b") == b"2" * 50000
    assert diskwright.check(path)
    judge(path)


def _names(image: Image) -> list[str]:
    return image.listdir("/")


def test_other_processes_open_an_image_again(path: Path) -> None:
    with diskwright.open(path, writable=True) as image:
        (image / "x").touch()
        with pytest.raises(TypeError):
            pickle.dumps(image)
    with diskwright.open(path) as image:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as processes:
            assert "x" in processes.submit(_names, image).result()


def test_a_killed_program_leaves_an_image_that_recovers(path: Path) -> None:
    program = f"""
import os, diskwright
image = diskwright.open({str(path)!r}, writable=True)
image.write_bytes("/synced", b"kept")
image.sync()
for number in range(200):
    image.write_bytes(f"/{{number}}", b"x" * 5000)
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    with diskwright.open(path) as image:
        assert image.read_bytes("/synced") == b"kept"
    with diskwright.open(path, writable=True) as image:
        assert image.read_bytes("/synced") == b"kept"
    assert diskwright.check(path)
    judge(path)


def test_create_and_what_it_says(tmp_path: Path, fs: str) -> None:
    path, uuid = tmp_path / "new.img", "12345678-1234-1234-1234-123456789abc"
    with diskwright.create(path, 32 << 20, fs=fs, label="data", uuid=uuid, small=True, owner=(5, 6)) as image:  # type: ignore[arg-type]
        assert image.label == "data" and image.writable
        image.label = "other"
        image.write_bytes("/x", b"")
        assert (image / "x").owner() == 5
        totals = image.statfs()
        assert totals.block_size == 4096 and 0 < totals.blocks_free <= totals.blocks
    told = diskwright.info(path)
    assert (told["label"], told["uuid"]) == ("other", uuid)
    assert told["format"] == fs
    judge(path)
    with pytest.raises(FileExistsError):
        diskwright.create(path, 32 << 20)
    with pytest.raises(ValueError):
        diskwright.create(tmp_path / "y", fs="ext4")
    with pytest.raises(ValueError):
        diskwright.create(tmp_path / "y", 1 << 20, fs="ntfs")  # type: ignore[arg-type]
    with pytest.raises(OSError):
        diskwright.create(tmp_path / "y", 1 << 10)
    assert not (tmp_path / "y").exists()
