"""Devices that are Python objects: correct ones, and ones with every kind of fault."""

from __future__ import annotations

import gc
import io
import threading
from pathlib import Path
from typing import Any

import pytest

import diskwright
from diskwright import Image


class Pread:
    """A device in memory with access by offset."""

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.size = size
        self.flushes = 0

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self.bytes[offset : offset + size])

    def pwrite(self, data: bytes, offset: int) -> int:
        self.bytes[offset : offset + len(data)] = data
        return len(data)

    def flush(self) -> None:
        self.flushes += 1


def made(fs: str, size: int = 32 << 20) -> io.BytesIO:
    """An image in memory with a file in it."""
    device = io.BytesIO()
    with diskwright.create(device, size, fs=fs, small=True) as image:  # type: ignore[arg-type]
        image.write_bytes("/file", b"contents" * 10_000)
        image.makedirs("/a/b")
    return device


def test_an_image_in_memory(fs: str) -> None:
    device = made(fs)
    with diskwright.open(device) as image:
        assert image.read_bytes("/file") == b"contents" * 10_000
        assert repr(image) == "<diskwright.Image 'BytesIO object' open for reading>"
        with pytest.raises(OSError) as raised:
            image.write_bytes("/file", b"")
        assert raised.value.errno == 30
    assert diskwright.check(device)
    assert device.closed is False


def test_an_image_by_places(fs: str) -> None:
    device = Pread(32 << 20)
    with diskwright.create(device, fs=fs, small=True) as image:  # type: ignore[arg-type]
        image.write_bytes("/x", b"1")
        image.sync()
        assert device.flushes > 0
    with diskwright.open(device) as image:
        assert image.read_bytes("/x") == b"1"


def test_an_image_in_an_open_file(path: Path) -> None:
    with open(path, "r+b") as file, diskwright.open(file, writable=True) as image:
        image.write_bytes("/x", b"1")
    with open(path, "rb", buffering=0) as raw, diskwright.open(raw) as image:
        assert image.read_bytes("/x") == b"1"


def test_an_image_in_an_image(image: Image) -> None:
    with image.open("/inner.img", "w+b") as file:
        with diskwright.create(file, 16 << 20) as inner:
            inner.write_bytes("/deep", b"down")
    with image.open("/inner.img", "rb") as file, diskwright.open(file) as inner:
        assert inner.read_bytes("/deep") == b"down"


class Bad(io.BytesIO):
    """A device that calls a function from a given read or write on."""

    def __init__(self, device: io.BytesIO) -> None:
        super().__init__(device.getvalue())
        self.on_read: Any = None
        self.on_write: Any = None

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        return data if self.on_read is None else self.on_read(data)

    def write(self, data: Any, /) -> int:
        return super().write(data) if self.on_write is None else self.on_write(data)


def raising(error: BaseException) -> Any:
    def act(data: bytes) -> bytes:
        raise error

    return act


def test_what_a_device_raises_is_the_cause(fs: str) -> None:
    device = Bad(made(fs))
    with diskwright.open(device, cache_bytes=1 << 20) as image:
        failure = ConnectionError("the cable")
        device.on_read = raising(failure)
        with pytest.raises(OSError) as raised:
            image.read_bytes("/file")
        assert raised.value.__cause__ is failure and raised.value.errno == 5
        assert not isinstance(raised.value, diskwright.DamagedImage)
        device.on_read = raising(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            image.read_bytes("/file")
        device.on_read = raising(InterruptedError())
        with pytest.raises(OSError):
            image.read_bytes("/file")
        device.on_read = None
        assert image.read_bytes("/file") == b"contents" * 10_000


@pytest.mark.parametrize(
    "answer",
    [lambda data: b"", lambda data: data + b"x", lambda data: None, lambda data: "text", lambda data: 7],
    ids=["nothing", "too much", "None", "text", "a number"],
)
def test_what_a_device_must_not_give(fs: str, answer: Any) -> None:
    device = Bad(made(fs))
    with diskwright.open(device) as image:
        device.on_read = answer
        with pytest.raises(OSError, match="file object"):
            image.read_bytes("/file")
    with pytest.raises((OSError, TypeError)):
        diskwright.open(device)


def test_short_reads_go_on(fs: str) -> None:
    device = Bad(made(fs))

    def short(data: bytes) -> bytes:
        return data[: max(1, len(data) // 3)]

    device.on_read = short
    with diskwright.open(device) as image:
        assert image.read_bytes("/file") == b"contents" * 10_000


def test_a_device_that_becomes_shorter(fs: str) -> None:
    device = made(fs)
    with diskwright.open(device) as image:
        device.truncate(1 << 16)
        with pytest.raises(OSError, match="had 33554432 when it was opened"):
            image.read_bytes("/file")


@pytest.mark.parametrize("answer", [None, 0, -1, 1 << 40, "1"])
def test_writes_that_are_not_done(fs: str, answer: Any) -> None:
    device = Bad(made(fs))
    image = diskwright.open(device, writable=True)
    device.on_write = lambda data: answer
    with pytest.raises(OSError):
        image.write_bytes("/new", b"x" * 100_000)
        image.sync()
    with pytest.raises(OSError):
        image.close()
    device.on_write = None
    # Unwritten data is in the state after a crash.
    with diskwright.open(device, writable=True) as image:
        assert image.read_bytes("/file") == b"contents" * 10_000
    assert diskwright.check(device)


def test_failed_writes_lose_nothing_that_was_synced(fs: str) -> None:
    device = Bad(made(fs))
    image = diskwright.open(device, writable=True)
    image.write_bytes("/synced", b"kept")
    image.sync()
    failure = OSError(28, "no space for the image")
    device.on_write = raising(failure)
    with pytest.raises(OSError) as raised:
        image.write_bytes("/lost", b"x" * 100_000)
        image.sync()
    assert raised.value.__cause__ is failure
    with pytest.raises(OSError):
        image.close()
    with diskwright.open(io.BytesIO(device.getvalue()), writable=True) as image:
        assert image.read_bytes("/synced") == b"kept"


def test_a_device_that_uses_its_own_image_is_refused(fs: str) -> None:
    device = Bad(made(fs))
    with diskwright.open(device) as image:
        device.on_read = lambda data: image.read_bytes("/file")
        with pytest.raises(OSError) as raised:
            image.read_bytes("/file")
        assert isinstance(raised.value.__cause__, OSError) and raised.value.__cause__.errno == 35
        device.on_read = lambda data: image.close()
        with pytest.raises(OSError):
            image.read_bytes("/file")
        device.on_read = None
        assert image.exists("/a/b")


def test_what_is_dropped_in_a_device_is_dropped_later(fs: str) -> None:
    device = Bad(made(fs))
    image = diskwright.open(device, writable=True)
    kept: list[Any] = [image.open("/file", "r+b", 0), image.scandir("/")]

    def drop(data: bytes) -> bytes:
        kept.clear()
        gc.collect()
        return data

    device.on_read = drop
    assert image.read_bytes("/file") == b"contents" * 10_000
    device.on_read = None
    image.write_bytes("/file", b"")
    image.close()
    assert diskwright.check(io.BytesIO(device.getvalue()))


def test_threads_use_one_device(fs: str) -> None:
    device = made(fs)
    failed: list[BaseException] = []

    def work(number: int, image: Image) -> None:
        try:
            for round in range(20):
                path = f"/{number}-{round}"
                image.write_bytes(path, path.encode() * 100)
                assert image.read_bytes(path) == path.encode() * 100
                image.unlink(path)
        except BaseException as error:
            failed.append(error)

    with diskwright.open(device, writable=True) as image:
        threads = [threading.Thread(target=work, args=(number, image)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    assert diskwright.check(device)


def test_what_no_device_can_be() -> None:
    for source in (object(), 3, None, io.StringIO("text"), io.BytesIO()):
        with pytest.raises((TypeError, OSError)):
            diskwright.open(source)
    with pytest.raises(diskwright.UnsupportedImage):
        diskwright.open(io.BytesIO(bytes(1 << 20)))

    class Endless:
        size = 1 << 62

        def pread(self, size: int, offset: int) -> bytes:
            return bytes(size)

    with pytest.raises(OSError):
        diskwright.open(Endless())
