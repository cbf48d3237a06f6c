"""The figures of README.md, which are a selection of those in docs/performance.md."""
import statistics

from . import show
from .names import row_of

FORMATS = ["ext4", "xfs"]
NAMES = {"ext4": "ext4", "xfs": "XFS"}


def builds(raw):
    """Yields times of building images of empty files, compared with mke2fs and mkfs.xfs."""
    beside = [("ext4", "20000 ", "mke2fs -d"), ("ext4", "100000 ", "mkfs.xfs -p"), ("xfs", "100000 ", "mkfs.xfs -p")]
    for fs, source, peer in beside:
        for case in [case for part in raw[fs] for case in part]:
            row = next((row for row in case["rows"] if row["program"] == peer), None)
            if case["name"].startswith(source) and row:
                ours = case["rows"][0]["times"]["median_s"]
                files = show.count(case["entries"])
                theirs = f"{show.three(row['times']['median_s'])} ({peer})"
                yield [f"Build an {NAMES[fs]} image of {files} empty files, s", show.three(ours), theirs]


def rates(found, step, words):
    """Yields our rates and those of the kernel in the largest directory measured for both."""
    for fs in FORMATS:
        rows = [row for row in found["rows"] if (row["step"], row["contestant"]) == (step, f"memory:{fs}") and row["kernel"]]
        if rows:
            row = max(rows, key=lambda row: row["x"])
            kernel = row_of(found, step, row["x"], row["kernel"]["contestant"])
            yield [f"{words.format(show.count(row['x']), NAMES[fs])}, files/s", show.rate(row["rate"]),
                   f"{show.rate(kernel['rate'])} (kernel)"]


def listings(raw):
    largest = max(int(row["entries"]) for row in raw["rows"])
    found = {row["way"]: row["ns/entry"] for row in raw["rows"] if int(row["entries"]) == largest}
    yield [f"List an ext4 directory of {show.count(largest)} entries, ns per entry", found["diskwright, hash order"],
           f"{found['kernel ext4']} (kernel)"]


def checks(raw):
    for fs, peer in [("ext4", "e2fsck"), ("xfs", "xfs_repair")]:
        runs = {one["program"]: statistics.median(run["s"] for run in one["runs"]) for one in raw["check"] if one["fs"] == fs}
        if peer in runs:
            yield [f"Check an {NAMES[fs]} image of {show.count(raw['files'])} files, s", show.three(runs["check, two threads"]),
                   f"{show.three(runs[peer])} ({peer})"]


PARTS = [("build", builds), ("create", lambda raw: rates(raw["rates"], "create", "Create {} files in one {} directory")),
         ("remove", lambda raw: rates(raw["rates"], "remove", "Remove {} files from one {} directory")), ("list", listings),
         ("check", checks)]


def tables(results):
    """Returns the table of README.md, or nothing if a part was not measured."""
    if any(section not in results for section, _ in PARTS):
        return {}
    lines = [line for section, part in PARTS for line in part(results[section]["raw"])]
    quick = any(results[section]["quick"] for section, _ in PARTS)
    last = ["", "Few rounds of small cases: the figures are not meaningful."] if quick else []
    return {"readme": [*show.table(["", "Diskwright", "peer"], lines), *last]}
