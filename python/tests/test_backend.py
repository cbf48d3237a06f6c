"""Building the package: a missing cargo is named, and progress is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from conftest import need_modules

BACKEND = Path(__file__).parents[1] / "backend"


def run(program: str, **changed: str) -> subprocess.CompletedProcess[str]:
    need_modules("maturin")
    start = f"import sys; sys.path.insert(0, {str(BACKEND)!r}); import diskwright_build as backend, os\n"
    # Without a terminal, so that nothing is written to it.
    return subprocess.run(
        [sys.executable, "-c", start + program],
        capture_output=True,
        text=True,
        start_new_session=True,
        env=os.environ | changed,
    )


def test_a_missing_cargo_is_named(tmp_path: Path) -> None:
    program = "backend.get_requires_for_build_wheel()"
    done = run(program, PATH=str(tmp_path), CARGO_HOME=str(tmp_path))
    assert done.returncode == 1 and "cargo is not on PATH" in done.stderr and "Traceback" not in done.stderr
    old = tmp_path / "cargo"
    old.write_text("#!/bin/sh\necho cargo 1.60.0\n")
    old.chmod(0o755)
    done = run(program, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1 and "cargo is 1.60" in done.stderr and "rustup update" in done.stderr


def test_progress_is_reported() -> None:
    done = run(
        r"""
with backend._Progress():
    os.write(2, b"   Compiling one v1\n   Building [=>   ] 30/100: one\r   Building [==> ] 31")
    os.write(2, b"/100: two\r   Building [====] 100/100\r\x1b[1mwarning\x1b[0m: kept\n")
os.write(2, b"after\n")
"""
    )
    output = done.stderr
    assert done.returncode == 0, output
    assert "30 of 100 crates compiled" in output and "31 of" not in output and "100 of 100" in output
    assert "Compiling one v1\n" in output and "warning: kept\n" in output and output.endswith("after\n")


def test_releases_alone_are_optimised_across_crates() -> None:
    workspace = BACKEND.parents[1]
    profiles = tomllib.loads((workspace / "Cargo.toml").read_text())["profile"]
    settings = tomllib.loads((workspace / "python/pyproject.toml").read_text())
    by_default = settings["tool"]["maturin"]["profile"]
    assert profiles[by_default]["lto"] == "thin"
    assert "--profile dist" in (workspace / "scripts/build-wheels").read_text()
    assert profiles["dist"]["lto"] == "fat"
