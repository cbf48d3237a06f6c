"""Builds the package with maturin. Reports a missing or old cargo by name, and the progress of the build.

pip shows the output of a build only with ``-v``, or after a failure. So progress goes to the terminal, where there is one.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

import maturin

#: Shares of the build after which progress is reported, in percent.
STEP_PERCENT = 10

build_sdist = maturin.build_sdist
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def _wanted() -> tuple[int, ...]:
    """The oldest version of Rust that can build the package."""
    for place in ("../Cargo.toml", "Cargo.toml"):
        manifest = pathlib.Path(__file__).parents[1] / place
        if manifest.exists():
            found = re.search(r'^rust-version = "([\d.]+)"', manifest.read_text(), re.MULTILINE)
            if found:
                return tuple(map(int, found[1].split(".")))
    return ()


def _check_cargo() -> None:
    if not shutil.which("cargo"):
        # The place that rustup uses, also before a new login.
        home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
        os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", ""), os.path.join(home, "bin")))
    wanted = _wanted()
    version = ".".join(map(str, wanted))
    needs = f"diskwright: this builds the package from source, which needs Rust {version} or later"
    if not shutil.which("cargo"):
        sys.exit(f"{needs}, and cargo is not on PATH. Install it from https://rustup.rs, or install a wheel (*.whl).")
    answer = subprocess.run(["cargo", "--version"], capture_output=True, text=True)
    found = re.search(r"(\d+)\.(\d+)", answer.stdout)
    if answer.returncode != 0 or not found:
        sys.exit(f"{needs}, and `cargo --version` fails: {answer.stderr.strip()}")
    if tuple(map(int, found.groups())) < wanted[:2]:
        sys.exit(f"{needs}, and cargo is {found[0]}. Update it: rustup update stable.")


class _Progress:
    """Reads the standard error of a build, passes it on, and reports the progress bar of cargo in it."""

    def __enter__(self) -> None:
        os.environ.setdefault("CARGO_TERM_PROGRESS_WHEN", "always")
        os.environ.setdefault("CARGO_TERM_PROGRESS_WIDTH", "100")
        sys.stderr.flush()
        self.began = time.monotonic()
        self.errors = os.dup(2)
        try:
            self.terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
        except OSError:
            self.terminal = os.dup(2)
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self.thread = threading.Thread(target=self._pass_on, args=(read,))
        self.thread.start()
        self._say("the build takes some minutes")

    def __exit__(self, *details: object) -> None:
        sys.stderr.flush()
        # This was the last copy of the pipe.
        os.dup2(self.errors, 2)
        self.thread.join()
        os.close(self.errors)
        os.close(self.terminal)

    def _say(self, text: str) -> None:
        try:
            # The first newline ends the line that pip shows.
            os.write(self.terminal, f"\n  diskwright: {text}\n".encode())
        except OSError:
            pass

    def _pass_on(self, pipe: int) -> None:
        rest, reported = b"", 0
        while piece := os.read(pipe, 1 << 16):
            *lines, rest = re.split(rb"[\r\n]", rest + piece)
            for line in lines:
                bar = re.search(rb"\] (\d+)/(\d+)", line)
                if bar is None:
                    text = re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", line)
                    if text.strip():
                        os.write(self.errors, text + b"\n")
                    continue
                done, total = map(int, bar.groups())
                percent = 100 * done // max(total, 1) // STEP_PERCENT * STEP_PERCENT
                if percent > reported:
                    reported = percent
                    minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
                    self._say(f"{done} of {total} crates compiled after {minutes}:{seconds:02} minutes")
        os.close(pipe)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a build needs besides maturin."""
    _check_cargo()
    needed: list[str] = maturin.get_requires_for_build_wheel(config_settings)
    return needed


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """What an editable build needs besides maturin."""
    _check_cargo()
    needed: list[str] = maturin.get_requires_for_build_editable(config_settings)
    return needed


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """Writes the metadata of the wheel."""
    _check_cargo()
    made: str = maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    return made


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Builds a wheel."""
    _check_cargo()
    with _Progress():
        made: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return made


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Builds an editable wheel."""
    _check_cargo()
    with _Progress():
        made: str = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    return made
