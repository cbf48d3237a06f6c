"""Goals, with the measured values."""
from . import show
from .mounts import mount_rates
from .names import extra, rates_of, row_of

FORMATS = ["ext4", "xfs"]


def rate_at(found, step, x, who):
    row = row_of(found, step, x, who)
    return row and row["rate"]


def both(write):
    """Joins the results of `write` for each format that has one."""
    said = [(fs, write(fs)) for fs in FORMATS]
    return ", ".join(f"{fs} {text}" for fs, text in said if text)


def sizes(found, step):
    return sorted({row["x"] for row in found["rows"] if row["step"] == step})


def most(found, step, small=False):
    """Returns the rates in directories of up to 200,000 files."""
    def of(fs):
        rates = [row["rate"] for row in found["rows"] if (row["step"], row["contestant"]) == (step, f"memory:{fs}") and row["rate"]]
        return f"{show.rate(min(rates))} to {show.rate(max(rates))}" if rates else ""
    return both(of)


def beside(found, step):
    """Returns the ratio to the kernel's rate in the largest directory."""
    def of(fs):
        rows = [row for row in found["rows"] if (row["step"], row["contestant"]) == (step, f"memory:{fs}") and row["kernel"]]
        return show.sure(max(rows, key=lambda row: row["x"])["kernel"]["rate"]) if rows else ""
    return both(of)


def flat(found, step, to=None):
    """Returns the rate in the largest directory relative to the smallest."""
    def of(fs):
        for one in found["flatness"]:
            if (one["contestant"], one["step"]) == (f"memory:{fs}", step) and (to is None or one["to"] == to):
                return show.sure(one["sure"])
        return ""
    return both(of)


def two_threads(raw, name, step):
    one, two, alone = (rates_of(raw[f"{name} {which}"]) for which in ["1", "2", "alone"])

    def of(fs):
        key = (step, f"memory:{fs}")
        return f"{show.times(two.get(key), one.get(key))}, of one on one processor {show.times(two.get(key), alone.get(key))}"
    return both(of)


def changes(raw, step):
    rates = rates_of(raw["change 1"])
    return both(lambda fs: show.times(rates.get((step, f"memory:{fs}")), rates.get((step, f"kernel:{fs}"))))


def log_bytes(raw):
    """Returns the log bytes of a create without syncs for each number of files, relative to the kernel's."""
    said = {}
    for found in raw["cases"]:
        rows = {row["contestant"]: row for row in found["rows"]}
        ours = rows.get("memory:xfs")
        if not ours or ours["step"] != "create" or "kernel:xfs" not in rows or "--fsync" in found["command"]:
            continue
        own, kernel = extra(ours, "log"), extra(rows["kernel:xfs"], "log")
        if own and kernel:
            said[ours["x"]] = f"{show.three(own / kernel)} ({show.three(own)} bytes, {show.count(ours['x'])} files)"
    return ", ".join(said.values())


def times_of(raw, fs, source, program):
    """Returns the time of a program relative to ours."""
    for case in [case for part in raw[fs] for case in part]:
        if case["name"].startswith(source):
            for row in case["rows"]:
                if row["program"] == program:
                    return show.three(row["times"]["median_s"] / case["rows"][0]["times"]["median_s"])
    return ""


def ours_by_tar(raw, fs):
    text = times_of(raw, fs, "tree", "tar -c to cat")
    return show.three(1 / float(text)) if text and float(text) else ""


def hash_order(raw):
    rows = [row for row in raw["rows"] if "hash order" in row["way"]]
    return ", ".join(f"{row['ns/entry']} ns ({show.count(row['entries'])})" for row in rows)


def last(raw, who):
    """Returns rates with the maximum number of threads, relative to the minimum number and to the kernel."""
    found = raw["found"]
    rows = [row for row in found["rows"] if row["contestant"] == who]
    row = max(rows, key=lambda one: one["x"], default=None)
    return row and row["kernel"] and show.sure(row["kernel"]["rate"])


def orphan_default(fs):
    return "memory:ext4,orphans=when-needed" if fs == "ext4" else "memory:xfs"


def by_fewest(raw):
    def of(fs):
        for one in raw["found"]["flatness"]:
            if one["contestant"] == orphan_default(fs):
                return show.sure(one["sure"])
        return ""
    return both(of)


def database(raw):
    found = raw["found"]
    words = {"ext4": "ext4", "xfs": "XFS"}
    return both(lambda fs: show.times(found.get(f"ours, {words[fs]}"), found.get(f"kernel, {words[fs]}")))


def by_bare(raw, measure):
    _, rates = mount_rates(raw)
    found = next((rates[name] for name in rates if name.startswith(measure)), None)
    number = lambda cell: float(cell.split()[0])
    return both(lambda fs: show.three(number(found[fs]) / number(found["ours-2"]))) if found and "ours-2" in found else ""


def requests_by_bare(raw, what, under_way):
    def rates(name):
        runs = raw["found"].get(name, [])
        return [float(row["requests/s"]) for rows in runs for row in rows if (row["what"], row["in flight"]) == (what, under_way)]
    words = {"ext4": "ours, ext4", "xfs": "ours, XFS"}
    return both(lambda fs: show.times(rates(words[fs]), rates("bare")))


def checked(raw):
    """Returns the time of the format's own checker, relative to ours."""
    runs = {(one["fs"], one["program"]): [run["s"] for run in one["runs"]] for one in raw["check"]}
    theirs = {"ext4": "e2fsck", "xfs": "xfs_repair"}
    return both(lambda fs: show.times(runs.get((fs, theirs[fs])), runs.get((fs, "check, two threads"))))


def empty_file(raw, fs):
    """Returns the time of a build per empty file, for the largest directory."""
    found = [case for part in raw[fs] for case in part if "empty" in case["name"]]
    case = max(found, key=lambda one: one["entries"], default=None)
    return case and f"{show.three(case['rows'][0]['times']['median_s'] / case['entries'] * 1e6)} µs"


def mounted(raw, measure):
    """Returns the rate on the mount."""
    _, rates = mount_rates(raw)
    found = next((rates[name] for name in rates if name.startswith(measure)), None)
    return both(lambda fs: show.rate(float(found[fs].split()[0]))) if found else ""


def random_places(raw):
    end = float(raw["none"][0]["insert and remove, us"])
    best = min(float(row["insert and remove, us"]) for row in raw["random"])
    return show.three(best / end)


def largest_reader(raw):
    readers = [one for one in raw["commands"] if one["kind"] == "reads"]
    one = max(readers, key=lambda one: one["peak"])
    return f"{show.mebibytes(one['peak'])} MiB (`{one['command']}`, {one['fs']})"


# Section, work, goal, and a function that returns the measured value from the section's results.
GOALS = [
    ("create", "create, one thread, up to 200,000 files", "ext4 1 M/s, XFS 800 k/s", lambda raw: most(raw["rates"], "create")),
    ("create", "the same, times the kernel's rate", "15", lambda raw: beside(raw["rates"], "create")),
    ("create", "create in the largest directory: rate relative to 10,000 files", "0.9", lambda raw: flat(raw["flat"], "create")),
    ("log", "log bytes per create, XFS: times the kernel's", "1", log_bytes),
    ("remove", "remove, one thread, up to 200,000 files", "700 k/s", lambda raw: most(raw["rates"], "remove")),
    ("remove", "the same, times the kernel's rate", "ext4 10, XFS 15", lambda raw: beside(raw["rates"], "remove")),
    ("remove", "remove in the largest directory: rate relative to 10,000 files", "0.9", lambda raw: flat(raw["flat"], "remove")),
    ("threads", "create, two threads: times one thread's rate", "1.9", lambda raw: two_threads(raw, "create", "create")),
    ("threads", "remove, two threads", "1.9", lambda raw: two_threads(raw, "remove", "remove")),
    ("threads", "rename, two threads", "1.9", lambda raw: two_threads(raw, "change", "rename")),
    ("threads", "rename within a directory: times the kernel's rate", "8", lambda raw: changes(raw, "rename")),
    ("threads", "rename into another directory", "8", lambda raw: changes(raw, "move")),
    ("threads", "link", "8", lambda raw: changes(raw, "link")),
    ("threads", "chmod", "8", lambda raw: changes(raw, "chmod")),
    ("churn", "random insert and remove in a half-full directory: times the cost of an insert at the end", "1.3", random_places),
    ("list", "readdir of ext4 in hash order, per entry", "40 ns", hash_order),
    ("orphans", "truncates, maximum number of threads, ext4 without an orphan file: times the kernel's rate", "1",
     lambda raw: last(raw, "memory:ext4,^orphan_file,orphans=when-needed")),
    ("unlink", "stress-unlink, maximum number of threads: rate relative to one thread", "rises like the kernel's", by_fewest),
    ("fserver", "fserver, maximum number of tasks: times the kernel's rate", "2.5",
     lambda raw: both(lambda fs: last(raw, orphan_default(fs)))),
    ("check", "check of 500,000 files: times faster than e2fsck, xfs_repair", "8, 30", checked),
    ("build", "build of empty files: time per file", "2 µs", lambda raw: both(lambda fs: empty_file(raw, fs))),
    ("build", "build of 20,000 empty files: times faster than `mke2fs -d`", "500",
     lambda raw: times_of(raw, "ext4", "20000 ", "mke2fs -d")),
    ("build", "build of 100,000 empty files: times faster than `mkfs.xfs -p`", "8",
     lambda raw: both(lambda fs: times_of(raw, fs, "100000 ", "mkfs.xfs -p"))),
    ("build", "build of a real tree: time relative to `tar -c \\| cat`", "0.7", lambda raw: both(lambda fs: ours_by_tar(raw, fs))),
    ("pgbench", "pgbench on the mount: times the kernel's rate", "1", database),
    ("mount", "mount, creates by one client", "20 k/s", lambda raw: mounted(raw, "create")),
    ("mount", "mount, sequential write: rate relative to *bare*", "0.95", lambda raw: by_bare(raw, "write and fsync")),
    ("mount", "mount, sequential read", "0.95", lambda raw: by_bare(raw, "read, MiB")),
    ("mount", "mount, read with O_DIRECT", "0.95", lambda raw: by_bare(raw, "read, O_DIRECT")),
    ("requests", "mount, random 4 KiB read, 1 in flight: rate relative to *bare*", "0.9", lambda raw: requests_by_bare(raw, "read", "1")),
    ("requests", "read, 16 in flight", "0.9", lambda raw: requests_by_bare(raw, "read", "16")),
    ("requests", "write, 1 in flight", "0.9", lambda raw: requests_by_bare(raw, "write", "1")),
    ("requests", "write, 16 in flight", "0.9", lambda raw: requests_by_bare(raw, "write", "16")),
    ("memory", "maximum memory of a reading command, 2 million files", "256 MiB", largest_reader),
]


def tables(results):
    """Returns the table of goals from the results of the sections."""
    lines = []
    for section, what, asked, measured in GOALS:
        said = measured(results[section]["raw"]) if section in results else "not measured"
        lines.append([what, asked, said or "–"])
    return {"goals": list(show.table(["work", "goal", "measured"], lines))}
