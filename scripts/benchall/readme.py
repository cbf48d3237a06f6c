"""The few figures of README.md: each is one of a table of docs/performance.md."""
import statistics

from . import show
from .names import row_of

FORMATS = ["ext4", "xfs"]
NAMES = {"ext4": "ext4", "xfs": "XFS"}


def builds(raw):
    """Images of empty files, beside both programs that make them from directories."""
    beside = [("ext4", "20000 ", "mke2fs -d"), ("ext4", "100000 ", "mkfs.xfs -p"), ("xfs", "100000 ", "mkfs.xfs -p")]
    for fs, source, peer in beside:
        for case in [case for part in raw[fs] for case in part]:
            row = next((row for row in case["rows"] if row["program"] == peer), None)
            if case["name"].startswith(source) and row:
                ours = case["rows"][0]["times"]["median_s"]
                files = show.count(case["entries"])
                theirs = f"{show.three(row['times']['median_s'])} ({peer})"
                yield [f"{files} empty files into an {NAMES[fs]} image, in s", show.three(ours), theirs]


def rates(found, step, words):
    """Ours and the kernel's, in the largest directory that both were through."""
    for fs in FORMATS:
        rows = [row for row in found["rows"] if (row["step"], row["contestant"]) == (step, f"memory:{fs}") and row["kernel"]]
        if rows:
            row = max(rows, key=lambda row: row["x"])
            kernel = row_of(found, step, row["x"], row["kernel"]["contestant"])
            yield [f"{words} of {NAMES[fs]}, {show.count(row['x'])} files of one directory, per second", show.rate(row["rate"]),
                   f"{show.rate(kernel['rate'])} (kernel)"]


def listings(raw):
    largest = max(int(row["entries"]) for row in raw["rows"])
    found = {row["way"]: row["ns/entry"] for row in raw["rows"] if int(row["entries"]) == largest}
    yield [f"an entry of an ext4 directory of {show.count(largest)}, in ns", found["diskwright, hash order"],
           f"{found['kernel ext4']} (kernel)"]


def parents(raw):
    found = raw["fs-mark"]
    for step in ["create", "remove"]:
        ours = row_of(found, step, found["rows"][0]["x"], "memory:xfs,+parent")
        kernel = row_of(found, step, found["rows"][0]["x"], "kernel:xfs,+parent")
        if ours and kernel:
            yield [f"what parent pointers cost, {step}, processor time", show.more(ours["overhead"]["processor"]),
                   f"{show.more(kernel['overhead']['processor'])} (kernel)"]


def checks(raw):
    for fs, peer in [("ext4", "e2fsck"), ("xfs", "xfs_repair")]:
        runs = {one["program"]: statistics.median(run["s"] for run in one["runs"]) for one in raw["check"] if one["fs"] == fs}
        if peer in runs:
            yield [f"check of {NAMES[fs]}, {show.count(raw['files'])} files, in s", show.three(runs["check, two threads"]),
                   f"{show.three(runs[peer])} ({peer})"]


PARTS = [("build", builds), ("create", lambda raw: rates(raw["rates"], "create", "creates")),
         ("remove", lambda raw: rates(raw["rates"], "remove", "removals")), ("parents", parents), ("list", listings), ("check", checks)]


def tables(results):
    """The table of README.md; nothing if not all of it was measured."""
    if any(section not in results for section, _ in PARTS):
        return {}
    lines = [line for section, part in PARTS for line in part(results[section]["raw"])]
    quick = any(results[section]["quick"] for section, _ in PARTS)
    last = ["", "Few rounds of small cases: these figures mean little."] if quick else []
    return {"readme": [*show.table(["", "Diskwright", "peer"], lines), *last]}
