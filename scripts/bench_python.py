"""The measurements of scripts/bench-python, which runs this file with the package and its peers installed.

Each measurement is the median of some rounds; peers are asked once, as they take minutes.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diskwright

ROUNDS = 5


def timed(work: Callable[[], Any], rounds: int = 1) -> float:
    """Returns the median time of the rounds in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def make_source(top: Path, files: int) -> None:
    for number in range(files):
        if number % 100 == 0:
            directory = top / f"{number // 100:04}"
            directory.mkdir(parents=True)
        (directory / f"file-{number}").write_bytes(b"%d\n" % number * (number % 100 + 10))


def ours_read(path: Path) -> int:
    with diskwright.open(path) as image:
        read = image.read_bytes
        return sum(len(read(name)) for name, own in image.tree("/") if stat.S_ISREG(own.st_mode))


def ours_list(path: Path) -> int:
    with diskwright.open(path) as image:
        return sum(len(dirs) + len(files) for _, dirs, files in image.walk("/"))


def ext4_walk(path: Path, reads: bool) -> int:
    import ext4

    with open(path, "rb") as file:
        volume = ext4.Volume(file)
        total, pending = 0, [volume.root]
        while pending:
            for entry, _ in pending.pop().opendir():
                if entry.name_bytes in (b".", b".."):
                    continue
                node = volume.inodes[entry.inode]
                if isinstance(node, ext4.Directory):
                    pending.append(node)
                if not reads:
                    total += 1
                elif isinstance(node, ext4.File):
                    total += len(node.open().read())
    return total


def dissect_walk(path: Path, reads: bool) -> int:
    with open(path, "rb") as file:
        if diskwright.info(path)["format"] == "xfs":
            from dissect.xfs import XFS as Parser
        else:
            from dissect.extfs import ExtFS as Parser
        total, pending = 0, [Parser(file).root]
        while pending:
            for name, node in pending.pop().listdir().items():
                if name in (".", ".."):
                    continue
                if node.filetype == stat.S_IFDIR:
                    pending.append(node)
                if not reads:
                    total += 1
                elif node.filetype == stat.S_IFREG:
                    total += len(node.open().read())
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--place", help="a directory for what is made")
    files = parser.parse_args().files
    with tempfile.TemporaryDirectory(dir=parser.parse_args().place) as place:
        measure(Path(place), files)


def measure(place: Path, files: int) -> None:
    source = place / "source"
    make_source(source, files)
    load = os.getloadavg()[0]
    print(f"{files} files, Python {platform.python_version()}, load {load:.1f}")
    print("| what | diskwright | peer | times |\n|---|---|---|---|")
    for fs in ("ext4", "xfs"):
        image = place / f"{fs}.img"
        build(source, image, fs)
        peers = {"dissect": dissect_walk} | ({"ext4": ext4_walk} if fs == "ext4" else {})
        for what, reads, work in (("read", True, ours_read), ("list", False, ours_list)):
            result = work(image)
            ours = timed(lambda: work(image), ROUNDS)
            for name, walk in peers.items():
                found: list[int] = []
                theirs = timed(lambda: found.append(walk(image, reads)))
                assert found == [result], (name, found, result)
                print(f"| {fs}: {what}, beside {name} | {ours:.2f} s | {theirs:.1f} s | {theirs / ours:.0f} |", flush=True)
    calls(place / "ext4.img")


def build(source: Path, image: Path, fs: str) -> None:
    """Alternates, so that both run under the same conditions."""
    from_python, by_command = [], []
    for _ in range(ROUNDS):
        from_python.append(timed(lambda: diskwright.build(source, image, fs=fs, force=True)))
        command = [os.environ["DISKWRIGHT"], "build", "--fs", fs, "--force", str(source), str(image)]
        by_command.append(timed(lambda: subprocess.run(command, check=True, stderr=subprocess.DEVNULL)))
    ours, theirs = statistics.median(from_python), statistics.median(by_command)
    print(f"| {fs}: build, beside the command | {ours:.2f} s | {theirs:.2f} s | {theirs / ours:.2f} |", flush=True)


def calls(path: Path) -> None:
    with diskwright.open(path) as image:
        name, file = "/0000/file-7", image / "0000" / "file-7"
        for what, call in (
            ("`image.stat(text)`", lambda: image.stat(name)),
            ("`path.stat()`", file.stat),
            ("`path.read_bytes()`", file.read_bytes),
            ("`open`, `read`, `close`", lambda: image.open(name, "rb").close()),
        ):
            def loop(call: Callable[[], Any] = call) -> None:
                for _ in range(20_000):
                    call()

            print(f"| one {what} | {timed(loop, ROUNDS) / 20_000 * 1e6:.2f} µs | | |", flush=True)


if __name__ == "__main__":
    main()
