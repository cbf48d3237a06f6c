"""The short tables of docs/performance.md. The tables of docs/performance-details.md have the same figures with all columns."""
import statistics

from . import show
from .names import rates_of, row_of

FORMATS = {"ext4": "ext4", "xfs": "XFS"}
BUILDERS = ["mke2fs -d", "mkfs.xfs -p", "tar -c to cat"]
# The commands of the short table of memory, by their first words.
COMMANDS = ["build", "ls -l -R", "find", "extract", "check IMAGE", "chmod -R", "repair --yes"]


def images(raw):
    """Returns a row for each source and format with the times of all programs."""
    lines = []
    for fs, name in FORMATS.items():
        for case in [case for part in raw[fs] for case in part]:
            took = {row["program"]: show.three(row["times"]["median_s"]) for row in case["rows"]}
            ours = case["rows"][0]
            peak = ours["peak_memory_bytes"]
            lines.append([case["name"], name, took[ours["program"]], *(took.get(program, "–") for program in BUILDERS),
                          show.mebibytes(peak) if peak else "–"])
    columns = ["source", "image", "Diskwright, s", "`mke2fs -d`, s", "`mkfs.xfs -p`, s", "`tar -c \\| cat`, s", "Diskwright, peak MiB"]
    return list(show.table(columns, lines, left=2))


def one_directory(found):
    """Returns the rates of each step in the largest directory that was measured with the kernel."""
    for step in dict.fromkeys(row["step"] for row in found["rows"]):
        for fs, name in FORMATS.items():
            rows = [row for row in found["rows"] if (row["step"], row["contestant"]) == (step, f"memory:{fs}") and row["kernel"]]
            if rows:
                row = max(rows, key=lambda row: row["x"])
                kernel = row_of(found, step, row["x"], row["kernel"]["contestant"])
                yield [step, name, show.rate(row["rate"]), show.rate(kernel["rate"]), show.sure(row["kernel"]["rate"])]


def changes(raw):
    """Returns the rates of the steps of `diskwright-bench change`."""
    rates = rates_of(raw["change 1"])
    for (step, who), ours in rates.items():
        side, _, fs = who.partition(":")
        kernel = rates.get((step, f"kernel:{fs}"))
        if side == "memory" and kernel:
            yield [step, FORMATS[fs], show.rate(statistics.median(ours)), show.rate(statistics.median(kernel)), show.times(ours, kernel)]


def operations(create, remove, threads):
    """Rates of operations on names, with the kernel's."""
    lines = [*one_directory(create["rates"]), *one_directory(remove["rates"]), *changes(threads)]
    columns = ["operation", "format", "Diskwright, files/s", "kernel, files/s", "times the kernel's rate"]
    return list(show.table(columns, lines, left=2))


def memory(raw):
    """Peak memory of a few commands, and of a mount."""
    peak_of = lambda one: "≤ " * one["is_bound"] + show.mebibytes(one["peak"])
    lines = []
    for first in COMMANDS:
        found = {one["fs"]: one for one in raw["commands"] if one["command"].startswith(first)}
        if found:
            command = next(iter(found.values()))["command"].replace("--fs ext4 ", "").replace("--fs xfs ", "")
            lines.append([f"`{command}`", *(peak_of(found[fs]) if fs in found else "–" for fs in FORMATS)])
    peaks = [raw["mount"].get(fs) for fs in FORMATS]
    lines.append(["`mount IMAGE MOUNTPOINT`, a walk over all inodes", *(show.mebibytes(one["peak"]) if one else "–" for one in peaks)])
    return list(show.table(["command", "ext4, peak MiB", "XFS, peak MiB"], lines))


TABLES = {"images": (images, ["build"]), "operations": (operations, ["create", "remove", "threads"]), "memory-short": (memory, ["memory"])}


def tables(results):
    """Returns the tables whose sections were all measured."""
    found = {}
    for name, (make, sections) in TABLES.items():
        if all(section in results for section in sections):
            lines = make(*(results[section]["raw"] for section in sections))
            few = "; **few rounds of small cases: these figures mean little**" * any(results[section]["quick"] for section in sections)
            found[name] = [*lines, "", f"`scripts/bench-all --only {','.join(sections)}`{few}"]
    return found
