"""Runs the examples and the programs of the documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_modules

import diskwright

PLACE = Path(__file__).parents[1]


def run(name: str, argument: Path) -> str:
    command = [sys.executable, str(PLACE / "examples" / name), str(argument)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tour(tmp_path: Path) -> None:
    told = run("tour.py", tmp_path)
    assert "added /etc/motd" in told and "clean 0" in told and told.endswith("welcome to box\n")


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_other_parsers_find_the_same(fs: str, tmp_path: Path) -> None:
    wanted = ["dissect.xfs"] if fs == "xfs" else ["dissect.extfs", "ext4"]
    need_modules(*wanted)
    with diskwright.create(tmp_path / "a.img", 64 << 20, fs=fs, small=True) as image:  # type: ignore[arg-type]
        for number in range(200):
            file = image / f"d{number % 5}" / f"file-{number}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(os.urandom(number * 37))
        (image / "short").symlink_to("d1")
        (image / "long").symlink_to("d1/" + "x" * 100)
        (image / "large").write_bytes(os.urandom(3_000_000))
    told = run("forensics.py", tmp_path / "a.img")
    assert "not installed" not in told and told.count(" files\n") == len(wanted) + 1


def test_data(tmp_path: Path) -> None:
    need_modules("pandas", "pyarrow", "zarr")
    assert "read what they wrote" in run("data.py", tmp_path)


def programs(document: str) -> list[str]:
    text = (PLACE.parent / document).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("document", ["docs/python.md", "docs/forensics.md", "python/README.md"])
def test_programs_of_the_documents_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = programs(document)
    assert found, document
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rootfs" / "etc").mkdir(parents=True)
    (tmp_path / "rootfs" / "etc" / "hostname").write_text("box\n")
    diskwright.build("rootfs", "root.img", free=16 << 20)
    for program in found:
        try:
            exec(compile(program, document, "exec"), {"__name__": "document"})
        except ModuleNotFoundError as error:
            pytest.skip(f"SKIPPED: needs {error.name}, as scripts/test-python without --quick installs it")
