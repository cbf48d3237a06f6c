"""A tour of the package: builds, reads, changes, checks, compares and converts an image.

    python tour.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import diskwright


def tour(where: Path) -> None:
    source = where / "rootfs"
    (source / "etc").mkdir(parents=True)
    (source / "etc" / "hostname").write_text("box\n")
    (source / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")

    # Build an image from a directory.
    path = where / "root.img"
    report = diskwright.build(source, path, label="root", owner=(0, 0), free=16 << 20)
    print(f"{report.entries} files, an image of {report.image_bytes >> 20} MiB")

    # Read and change files like those of the host.
    with diskwright.open(path, writable=True) as image:
        name = (image / "etc" / "hostname").read_text().strip()
        (image / "etc" / "motd").write_text(f"welcome to {name}\n")
        with image.open("/var.log", "a") as log:
            log.write("one more line\n")
        for file in image.glob("etc/*"):
            found = file.stat()
            print(f"{found.st_mode:o} {found.st_size:6} {file}")

    # Compare the image with the directory, and check it.
    for change in diskwright.diff(source, path, ignore=["times", "owner"]):
        print(change.change, change.path)
    checked = diskwright.check(path)
    print(checked.verdict, len(checked.findings))

    # Convert it to the other format.
    diskwright.convert(path, where / "root.xfs", fs="xfs", size="min", small=True)
    with diskwright.open(where / "root.xfs") as image:
        print(image.read_text("/etc/motd"), end="")


if __name__ == "__main__":
    tour(Path(sys.argv[1]))
