"""Operations on whole images: build, check, diff, convert, mount."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import judge, need_mounts

import diskwright
from diskwright import Entry


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree."""
    top = tmp_path / "source"
    (top / "etc").mkdir(parents=True)
    (top / "etc" / "hostname").write_text("box\n")
    (top / "etc" / "large").write_bytes(os.urandom(300_000))
    (top / "link").symlink_to("etc/hostname")
    return top


def test_build_from_a_directory(source: Path, tmp_path: Path, fs: str) -> None:
    path, calls = tmp_path / "built.img", []
    report = diskwright.build(
        source,
        path,
        fs=fs,  # type: ignore[arg-type]
        label="built",
        owner=(0, 0),
        free=1 << 20,
        small=True,
        source_date_epoch=1_000_000_000,
        progress=lambda entries, data: calls.append((entries, data)),
    )
    assert report.entries == 5 and report.data_bytes == 300_004
    assert path.stat().st_size == report.image_bytes and calls[-1] == (5, 300_004)
    with diskwright.open(path) as image:
        assert image.read_text("/etc/hostname") == "box\n" and image.label == "built"
        assert image.read_bytes("/etc/large") == (source / "etc" / "large").read_bytes()
        assert (image / "link").readlink().name == "hostname"
        assert (image / "etc").stat().st_mtime <= 1_000_000_000
    judge(path)
    with pytest.raises(FileExistsError):
        diskwright.build(source, path, fs=fs, small=True)  # type: ignore[arg-type]
    first = path.read_bytes()
    again = diskwright.build(
        source,
        path,
        fs=fs,  # type: ignore[arg-type]
        label="built",
        owner=(0, 0),
        free=1 << 20,
        small=True,
        source_date_epoch=1_000_000_000,
        force=True,
        threads=1,
    )
    assert again.image_bytes == report.image_bytes and path.read_bytes() == first


def test_build_from_archives_and_several(source: Path, tmp_path: Path) -> None:
    archive = tmp_path / "source.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, "")
    path = tmp_path / "built.img"
    diskwright.build([archive, (source / "etc", "srv/etc")], path)
    with diskwright.open(path) as image:
        assert image.read_text("/etc/hostname") == image.read_text("/srv/etc/hostname") == "box\n"
    diskwright.build(f"image:{path}", tmp_path / "copy.img")
    assert diskwright.diff(path, tmp_path / "copy.img") == []
    judge(path)


def test_build_from_an_oci_layout(tmp_path: Path) -> None:
    import hashlib
    import json

    layout = tmp_path / "layout"
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        member = tarfile.TarInfo("hello")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"world"))
    prefix = "application/vnd.oci.image"
    diff_id = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{prefix}.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), f"{prefix}.config.v1+json"),
        "layers": [blob(layer.getvalue(), f"{prefix}.layer.v1.tar")],
    }
    index = {"schemaVersion": 2, "manifests": [blob(json.dumps(manifest).encode(), f"{prefix}.manifest.v1+json")]}
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    diskwright.build(f"oci:{layout}", tmp_path / "built.img")
    with diskwright.open(tmp_path / "built.img") as image:
        assert image.read_bytes("/hello") == b"world"


def entries(host: Path) -> Iterator[Entry]:
    yield Entry(path="etc", mode=stat.S_IFDIR | 0o750, uid=3, mtime=5)
    yield Entry(path="/etc/a", data=b"bytes", mode=0o600, mtime_ns=1_500_000_007, xattrs={"user.x": b"\0\xff="})
    yield Entry(path="etc/b", data=host)
    yield Entry(path="etc/c", data=io.BytesIO(b"a file object"))
    yield Entry(path="etc/hard", link="/etc/a")
    yield Entry(path="etc/soft", target="../etc/a")
    yield Entry(path="dev/null", mode=stat.S_IFCHR | 0o666, device=(1, 3))
    yield Entry(path="dev/pipe", mode=stat.S_IFIFO | 0o600)
    yield Entry(path=b"etc/caf\xe9", data=b"")


def test_build_from_entries(tmp_path: Path, fs: str) -> None:
    path, host = tmp_path / "built.img", tmp_path / "host"
    host.write_bytes(b"of the host")
    report = diskwright.build(entries(host), path, fs=fs, small=True)  # type: ignore[arg-type]
    assert report.entries == 9
    with diskwright.open(path) as image:
        a = image / "etc" / "a"
        assert a.read_bytes() == b"bytes" and a.stat().st_mtime_ns == 1_500_000_007
        assert stat.S_IMODE(a.stat().st_mode) == 0o600 and a.stat().st_nlink == 2
        assert a.getxattr("user.x") == b"\0\xff="
        assert image.read_bytes("/etc/b") == b"of the host"
        assert image.read_bytes("/etc/c") == b"a file object"
        assert image.read_bytes("/etc/soft") == b"bytes"
        assert (image / "etc").stat().st_uid == 3 and (image / "dev/pipe").is_fifo()
        assert (image / "dev/null").stat().st_minor == 3
        assert image.exists(b"/etc/caf\xe9")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["built.img", "host"]
    judge(path)


def test_builds_that_fail_leave_nothing(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "failed.img"

    def stops(*_: object) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        diskwright.build(source, path, progress=stops)
    with pytest.raises(FileNotFoundError) as raised:
        diskwright.build(tmp_path / "none", path)
    assert raised.value.filename == str(tmp_path / "none")
    with pytest.raises(OSError) as full:
        diskwright.build(source, path, size=200_000)
    assert full.value.errno in (28, 22)

    def broken() -> Iterator[Entry]:
        yield Entry(path="a", data=b"1")
        raise LookupError("no more")

    with pytest.raises(LookupError):
        diskwright.build(broken(), path)
    with pytest.raises(OSError):
        diskwright.build([Entry(path="a"), Entry(path="a")], path)
    with pytest.raises(TypeError):
        diskwright.build(iter([1]), path)  # type: ignore[arg-type]
    for wrong in ({"fs": "ntfs"}, {"output": "vhd"}, {"dedupe": "x"}, {"threads": 0}, {"size": 1 << 20, "free": 1}):
        with pytest.raises(ValueError):
            diskwright.build(source, path, **wrong)  # type: ignore[arg-type]
    (tmp_path / "bad.tar").write_bytes(b"\x01" * 10_000)
    with pytest.raises(OSError):
        diskwright.build(tmp_path / "bad.tar", path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar", "source"]


def test_a_build_that_is_stopped_in_its_midst(tmp_path: Path) -> None:
    many = tmp_path / "many"
    for number in range(5000):
        file = many / str(number % 50) / str(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    seen: list[int] = []

    def stops(made: int, data: int) -> None:
        seen.append(made)
        if made:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        diskwright.build(many, tmp_path / "built.img", progress=stops)
    assert len(seen) == 2 and not (tmp_path / "built.img").exists()


def test_an_interrupt_ends_a_build(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    # Longer than any machine needs to interrupt it.
    for number in range(40):
        (many / f"{number}").write_bytes(os.urandom(64) * 16_384)
    program = (
        "import diskwright, itertools, signal\n"
        # A shell can make background processes ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('begun', flush=True)\n"
        f"[diskwright.build({str(many)!r}, {str(tmp_path / 'built.img')!r}, force=True) for _ in itertools.count()]\n"
    )
    import signal
    import sys

    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"begun\n"
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode != 0 and b"KeyboardInterrupt" in told
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tar"] == []


def test_check_tells_of_phases_and_can_be_stopped(path: Path) -> None:
    phases: set[str] = set()
    report = diskwright.check(path, progress=lambda phase, done, of: phases.add(phase))
    assert report.is_clean and report.findings == () and report.summary["directories"] >= 1
    assert report.verdict == "clean" and phases

    def stops(*_: object) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        diskwright.check(path, progress=stops)
    assert diskwright.repair(path).verdict == "clean"


def test_diff_and_layers(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.img"
    with diskwright.open(path, writable=True) as image:
        (image / "same").write_bytes(b"1")
        (image / "changed").write_bytes(b"1")
        (image / "gone").mkdir()
    shutil.copy(path, other)
    with diskwright.open(other, writable=True) as image:
        (image / "changed").write_bytes(b"2")
        (image / "changed").chmod(0o600)
        (image / "gone").rmdir()
        (image / "new").symlink_to("same")
    changes = {change.path: change for change in diskwright.diff(path, other, ignore=["times"])}
    assert set(changes) == {"/changed", "/gone", "/new"}
    assert changes["/changed"].what == {"contents", "mode"}
    assert changes["/gone"].change == "removed" and changes["/new"].type == "symlink"
    report = diskwright.write_layer(path, other, tmp_path / "layer.tar.gz")
    with tarfile.open(tmp_path / "layer.tar.gz") as layer:
        assert {".wh.gone", "changed", "new"} <= set(layer.getnames())
    assert report["whiteouts"] == 1
    with pytest.raises(ValueError):
        diskwright.diff(path, other, ignore=["everything"])  # type: ignore[list-item]


def test_convert(path: Path, tmp_path: Path, fs: str) -> None:
    with diskwright.open(path, writable=True) as image:
        (image / "file").write_bytes(b"x" * 100_000)
    other = "xfs" if fs == "ext4" else "ext4"
    new = tmp_path / "new.img"
    report = diskwright.convert(path, new, fs=other, size="min", small=True)  # type: ignore[arg-type]
    assert report.image_bytes == new.stat().st_size
    assert diskwright.info(new)["format"] == other
    assert diskwright.diff(path, new) == []
    judge(new)


def test_mount(path: Path, tmp_path: Path) -> None:
    need_mounts()
    with diskwright.mount(path, writable=True) as point:
        (point / "file").write_bytes(b"through the kernel")
        (point / "d").mkdir()
        with pytest.raises(diskwright.ImageInUse):
            diskwright.open(path)
    assert not point.exists()
    with diskwright.open(path) as image:
        assert image.read_bytes("/file") == b"through the kernel"
    (tmp_path / "point").mkdir()
    with diskwright.mount(path, tmp_path / "point") as point:
        assert (point / "file").read_bytes() == b"through the kernel"
        with pytest.raises(OSError):
            (point / "file").write_bytes(b"")
    assert list((tmp_path / "point").iterdir()) == []
    with pytest.raises(RuntimeError), diskwright.mount(path):
        raise RuntimeError
    with pytest.raises(ValueError), diskwright.mount(path, options="nonsense"):
        pass
    with pytest.raises(OSError), diskwright.mount(path, tmp_path / "none"):
        pass
    judge(path)


def test_callbacks_may_use_images(source: Path, tmp_path: Path, image: diskwright.Image) -> None:
    def progress(entries: int, data: int) -> None:
        (image / "progress").write_text(f"{entries}\n")

    diskwright.build(source, tmp_path / "built.img", progress=progress)
    assert image.read_text("/progress") == "5\n"


def test_other_threads_run_during_a_build(tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(3000):
        (many / str(number)).write_bytes(b"x" * 2000)
    ticks, ends = [0], threading.Event()

    def tick() -> None:
        while not ends.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    diskwright.build(many, tmp_path / "built.img")
    after = ticks[0]
    ends.set()
    thread.join()
    assert after > before
