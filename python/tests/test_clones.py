"""Clones of an image: they change apart, and return to their snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

import diskwright


@pytest.fixture(params=["ext4", "xfs"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "base.img"
    entries = [diskwright.Entry("name", data=b"base")]
    diskwright.build(entries, path, fs=request.param, free=8 << 20, small=True)
    return path


def name_in(image: Path) -> str:
    with diskwright.open(image) as opened:
        return (opened / "name").read_text()


def write_name(image: Path, text: str) -> None:
    with diskwright.open(image, writable=True) as opened:
        (opened / "name").write_text(text)


def test_clones_change_apart(base: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    diskwright.clone(base, one, other)
    write_name(one, "one")
    assert [name_in(image) for image in (base, one, other)] == ["base", "one", "base"]
    diskwright.commit(one, tmp_path / "new.img")
    assert name_in(tmp_path / "new.img") == "one"
    assert diskwright.check(tmp_path / "new.img").is_clean
    with pytest.raises(FileExistsError):
        diskwright.clone(base, one)
    with pytest.raises(TypeError, match="at least one"):
        diskwright.clone(base)


def test_a_clone_returns_to_a_snapshot(base: Path, tmp_path: Path) -> None:
    clone, first, second = (tmp_path / name for name in ("clone", "first", "second"))
    diskwright.clone(base, clone)
    write_name(clone, "first")
    diskwright.snapshot(clone, first)
    write_name(clone, "second")
    diskwright.snapshot(clone, second)
    write_name(clone, "lost")
    diskwright.reset(clone)
    assert [name_in(image) for image in (clone, first, second)] == ["second", "first", "second"]
    diskwright.reset(clone, to=first)
    assert name_in(clone) == "first"
    diskwright.reset(clone, to_base=True)
    assert name_in(clone) == "base"
    with diskwright.open(clone, writable=True), pytest.raises(diskwright.ImageInUse):
        diskwright.snapshot(clone, tmp_path / "third")
