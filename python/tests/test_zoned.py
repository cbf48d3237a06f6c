"""XFS images with a zoned realtime section, which Linux 7.2 filled. Kernels alone write them."""

from __future__ import annotations

import errno
import gzip
import hashlib
from pathlib import Path

import pytest

import diskwright

GOLDEN = Path(__file__).parents[2] / "crates/formats/xfs/tests/golden"


def unpacked(name: str, directory: Path) -> Path:
    """Returns an image whose zones are in the image itself."""
    image = directory / name
    image.write_bytes(gzip.decompress(gzip.decompress((GOLDEN / f"{name}.gz.gz").read_bytes())))
    return image


def long() -> bytes:
    """The contents that the kernel wrote into several zones."""
    pieces = bytearray(b"".join(bytes([nth + 1]) * (1 << 20) for nth in range(20)))
    pieces[1 << 20 : (1 << 20) + (64 << 10)] = bytes([1]) * (64 << 10)
    return bytes(pieces)


def test_files_in_zones_are_read_and_not_changed(tmp_path: Path) -> None:
    path = unpacked("zoned-internal.img", tmp_path)
    before = hashlib.sha256(path.read_bytes()).digest()
    with diskwright.open(path) as image:
        assert image.read_bytes("/dir/long") == long()
        with image.open("/dir/long", "rb") as file:
            file.seek(19 << 20)
            assert file.read(5) == bytes([20]) * 5
        assert "long" in image.listdir("/dir")
    assert diskwright.check(path)
    with pytest.raises(OSError) as raised:
        diskwright.open(path, writable=True)
    assert raised.value.errno in (errno.EOPNOTSUPP, errno.EROFS)
    assert "zoned realtime device" in str(raised.value)
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_files_on_a_zoned_device_need_it(tmp_path: Path) -> None:
    path = unpacked("zoned-external.img", tmp_path)
    with diskwright.open(path) as image:
        assert image.stat("/dir/long").st_size == 20 << 20
        with pytest.raises(OSError) as raised:
            image.read_bytes("/dir/long")
        assert "realtime device" in str(raised.value)
