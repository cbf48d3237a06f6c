"""Open files behave like those of io: pathlib and open have the same effect in an image as on the host."""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diskwright import Image, RawFile
from diskwright._file import BUFFER_BYTES


def test_open_gives_the_layers_of_io(image: Image) -> None:
    path = image / "file"
    with path.open("wb", buffering=0) as raw:
        assert isinstance(raw, RawFile) and raw.write(b"one\ntwo\n") == 8 and raw.tell() == 8
        assert raw.writable() and not raw.readable() and raw.seekable()
        with pytest.raises(io.UnsupportedOperation):
            raw.fileno()
    with path.open("rb") as buffered:
        assert isinstance(buffered, io.BufferedReader) and buffered.readline() == b"one\n"
        assert buffered.peek(1)[:1] == b"t"
    with path.open("r+b") as both:
        assert isinstance(both, io.BufferedRandom)
        both.seek(4)
        both.write(b"TWO")
    with path.open() as text:
        assert isinstance(text, io.TextIOWrapper) and list(text) == ["one\n", "TWO\n"]
        assert text.name == "/file" and text.mode == "r"
    with path.open("a") as text:
        text.write("three\n")
    assert path.read_text() == "one\nTWO\nthree\n"
    with pytest.raises(FileExistsError):
        path.open("x")
    with pytest.raises(FileNotFoundError):
        (image / "none").open()
    with pytest.raises(IsADirectoryError):
        image.open("/", "rb")
    for mode in ("", "rw", "q", "rbt", "+", "rr"):
        with pytest.raises(ValueError):
            path.open(mode)
    for arguments in (("r", 0), ("rb", -1, "utf-8")):
        with pytest.raises(ValueError):
            path.open(*arguments)  # type: ignore[arg-type, call-overload]


def test_files_are_not_open_for_everything(image: Image) -> None:
    (image / "file").write_bytes(b"1")
    with image.open("/file", "rb", 0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.write(b"2")
    with image.open("/file", "wb", 0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.read(1)
    with image.open("/file", "rb", 0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.truncate(0)
    raw.close()
    for act in (raw.tell, raw.read, lambda: raw.seek(0)):
        with pytest.raises(ValueError):
            act()


def test_a_removed_file_lives_until_it_is_closed(image: Image) -> None:
    with image.open("/file", "w+b") as file:
        (image / "file").unlink()
        file.write(b"still here")
        file.seek(0)
        assert file.read() == b"still here"


def test_buffers_of_all_kinds(image: Image) -> None:
    with image.open("/file", "w+b", 0) as raw:
        assert isinstance(raw, RawFile)
        assert raw.write(memoryview(b"0123456789")[2:5]) == 3
        assert raw.write(bytearray(b"abc")) == 3
        raw.seek(0)
        large = bytearray(b"." * 10)
        assert raw.readinto(large) == 6 and large == b"234abc...."
        raw.seek(1)
        assert raw.readinto(memoryview(large)[:2]) == 2 and large[:2] == b"34"
        with pytest.raises((BufferError, TypeError)):
            raw.readinto(b"12")  # type: ignore[arg-type]
        assert raw.seek(3 << 20) == 3 << 20 and raw.write(b"end") == 3
        raw.seek(0)
        assert raw.readinto(bytearray(4 << 20)) == (3 << 20) + 3
        assert len(raw.read(1 << 40)) == 0
        raw.seek(0)
        assert len(raw.read()) == (3 << 20) + 3
        with pytest.raises(ValueError):
            raw.seek(-1)
        raw.sync()
        assert raw.stat().st_size == (3 << 20) + 3


def test_others_take_them_for_files(image: Image) -> None:
    with image.open("/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x", "contents")
    with image.open("/a.zip", "rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("x") == b"contents"
    with image.open("/a.zip", "rb") as source, image.open("/b.zip", "wb") as target:
        shutil.copyfileobj(source, target)
    assert (image / "a.zip").read_bytes() == (image / "b.zip").read_bytes()


STEP = st.one_of(
    st.tuples(st.just("write"), st.binary(max_size=5000)),
    st.tuples(st.just("seek"), st.integers(0, 20000)),
    st.tuples(st.just("read"), st.integers(-1, 9000)),
    st.tuples(st.just("truncate"), st.integers(0, 20000)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mode=st.sampled_from(["r+b", "w+b", "a+b"]), buffering=st.sampled_from([0, 16, -1]), steps=st.lists(STEP, max_size=20))
def test_a_file_does_what_one_of_the_host_does(
    image: Image, tmp_path: Path, mode: str, buffering: int, steps: list[tuple[str, object]]
) -> None:
    ours, theirs = image / "model", tmp_path / "model"
    for path in (ours, theirs):
        path.write_bytes(b"0123456789" * 700)
    # In append mode the size of the buffer decides what a position after a read is.
    size = BUFFER_BYTES if buffering < 0 else buffering
    with ours.open(mode, buffering) as one, theirs.open(mode, size) as other:  # type: ignore[call-overload]
        for name, argument in steps:
            results = []
            for file in (one, other):
                results.append(getattr(file, name)(argument))
            assert results[0] == results[1], name
            assert one.tell() == other.tell()
    assert ours.read_bytes() == theirs.read_bytes()


def test_threads_share_the_position_of_a_file_without_a_buffer(image: Image) -> None:
    records = [[f"{thread}{number:06}\n".encode() for number in range(300)] for thread in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with (image / "shared").open("w+b", buffering=0) as raw:
            threads = [threading.Thread(target=lambda own=own: [raw.write(it) for it in own]) for own in records]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert raw.tell() == 4 * 300 * 8
            raw.seek(0)
            assert sorted(raw.read().splitlines(keepends=True)) == sorted(sum(records, []))
    finally:
        sys.setswitchinterval(interval)


def test_copies_from_and_to_the_host(image: Image, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "file").write_bytes(b"x" * 100_000)
    (source / "link").symlink_to("sub/file")
    os.utime(source / "sub" / "file", ns=(5, 7))
    os.link(source / "sub" / "file", source / "hard")
    report = image.copy_in(source, "/copied")
    assert report.files >= 4 and report.left_out == 0 and report.warnings == ()
    copied = image / "copied"
    assert (copied / "sub" / "file").stat().st_mtime_ns == 7
    assert (copied / "hard").samefile("/copied/sub/file") and (copied / "link").is_symlink()
    copied.copy_out(tmp_path / "back")
    assert (tmp_path / "back" / "sub" / "file").read_bytes() == b"x" * 100_000
    assert (tmp_path / "back" / "hard").samefile(tmp_path / "back" / "sub" / "file")
    with pytest.raises(FileNotFoundError):
        image.copy_in(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        image.copy_out("/none", tmp_path / "none")


def test_repr_tells(image: Image) -> None:
    with image.open("/file", "wb", 0) as raw:
        assert repr(raw) == "<diskwright.RawFile '/file' mode='wb'>"
    assert repr(raw).endswith("closed>")
    assert "writable" in repr(image) and "test.img" in repr(image)
    image.close()
    assert repr(image).endswith("closed>") and image.closed
