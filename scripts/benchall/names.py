"""Workloads in directories: create, remove, change, two threads, parent pointers, bytes of the log."""
import statistics

from . import show

TARGETS = ["memory:ext4", "memory:xfs", "kernel:ext4", "kernel:xfs"]


def targets(names=None):
    return [word for name in names or TARGETS for word in ("--target", name)]


def rounds(bench, most=2):
    """Returns the options for the number of rounds, which grows while a difference is not significant."""
    more = [] if bench.quick else ["--rounds-most", most * bench.rounds]
    return ["--rounds", bench.rounds, *more]


def extra(row, name):
    return next((one["median"] for one in row["extras"] if one["name"] == name), None)


def processor_us(row):
    return (row["user"]["median_s"] + row["system"]["median_s"]) / row["operations"] * 1e6


def rate_table(found, log=False):
    """Returns a row for each step, size and format, with our rate and the kernel's."""
    columns = ["step", found["axis"], "format", "runs", "Diskwright, files/s", "spread", "processor µs per file",
               "kernel, processor µs per file", "kernel, files/s", "times the kernel's rate"]
    columns += ["log bytes per file", "kernel, log bytes per file"] * log
    lines = []
    for row in found["rows"]:
        side, _, settings = row["contestant"].partition(":")
        if side != "memory":
            continue
        against = row["kernel"]
        kernel = row_of(found, row["step"], row["x"], against["contestant"]) if against else None
        lines.append([row["step"], show.count(row["x"]), settings, row["runs"], show.rate(row["rate"]),
                      show.percent(row["wall"]["spread"]), show.three(processor_us(row)),
                      show.three(kernel and processor_us(kernel)), show.rate(kernel and kernel["rate"]), show.sure(against and against["rate"])])
        if log:
            ours = extra(row, "log")
            theirs = kernel and extra(kernel, "log")
            lines[-1] += [show.three(ours), show.three(theirs)]
    return list(show.table(columns, lines, left=1))


def row_of(found, step, x, contestant):
    """Returns the row of a step, size and contestant, or nothing if it is missing."""
    for row in found["rows"]:
        if (row["step"], row["x"], row["contestant"]) == (step, x, contestant):
            return row
    return None


def flat_table(found):
    """Returns the rates in the largest directory relative to the smallest."""
    columns = ["step", "file system", "files", "share of the rate in the smaller directory"]
    lines = [[one["step"], one["contestant"], f"{show.count(one['to'])} by {show.count(one['from'])}",
              show.sure(one["sure"])] for one in found["flatness"]]
    return list(show.table(columns, lines, left=2))


def create(bench):
    """Creation of files in one directory."""
    sizes = "100k" if bench.quick else "10k,100k,200k"
    large = "10k,20k" if bench.quick else "10k,1M,10M" if bench.long else "10k,1M"
    raw = {"rates": bench.workload("create", "--files", sizes, *rounds(bench), *targets())}
    raw["flat"] = bench.workload("create", "--files", large, "--rounds", bench.rounds, *targets(TARGETS[:2]))
    # The kernel needs a minute for a million files, so it has one round.
    kernel = "100k" if bench.quick else "10k,1M"
    raw["flat kernel"] = bench.workload("create", "--files", kernel, *targets(TARGETS[2:]))
    return raw


def create_tables(raw):
    flat, kernel = raw["flat"], raw["flat kernel"]
    both = flat | {"flatness": flat["flatness"] + kernel["flatness"]}
    ours = flat | {"rows": [row for row in flat["rows"] if row["x"] > 100_000] or flat["rows"][-2:]}
    return {"create": rate_table(raw["rates"], log=True), "create-large": rate_table(ours, log=True),
            "create-flat": flat_table(both)}


def free_index(bench):
    """All search strategies for free space in a directory of XFS."""
    sizes = "20k" if bench.quick else "10k,100k,200k"
    return {"found": bench.workload("create", "--free-index", "all", "--files", sizes, "--rounds", bench.rounds,
                                    *targets(["memory:xfs"]))}


def free_index_tables(raw):
    found = raw["found"]
    ways = list(dict.fromkeys(row["contestant"] for row in found["rows"]))
    lines = []
    for x in sorted({row["x"] for row in found["rows"]}):
        rows = [row_of(found, "create", x, way) for way in ways]
        lines.append([show.count(x), rows[0]["runs"], *(show.rate(row["rate"]) for row in rows)])
    columns = ["files", "runs", *(way.partition("free-index=")[2] for way in ways)]
    return {"free-index": list(show.table(columns, lines, left=0))}


def remove(bench):
    """Removal of files from one directory."""
    sizes = "100k" if bench.quick else "200k"
    large = "10k,20k" if bench.quick else "10k,1M,10M" if bench.long else "10k,1M"
    return {"rates": bench.workload("remove", "--files", sizes, "--cold", "--rounds", bench.rounds, *targets()),
            "flat": bench.workload("remove", "--files", large, "--rounds", bench.rounds, *targets(TARGETS[:2]))}


def remove_tables(raw):
    flat = raw["flat"]
    ours = flat | {"rows": [row for row in flat["rows"] if row["x"] > 100_000] or flat["rows"][-2:]}
    return {"remove": rate_table(raw["rates"], log=True), "remove-large": rate_table(ours, log=True),
            "remove-flat": flat_table(flat)}


THREADED = ["create", "remove", "change"]


def threads(bench):
    """The same with one thread and with two, in separate directories. Runs alternate, each in a separate process.

    One thread of ours has a second processor write its checkpoints, so that two threads on two processors are also set beside one
    that has a single processor."""
    files = "50k" if bench.quick else "100k"
    raw = {}
    for number in range(bench.rounds):
        for name in THREADED:
            for count in [1, 2] if number % 2 == 0 else [2, 1]:
                # Removals by the kernel take longest, and `remove` measures them.
                who = TARGETS[:2] if name == "remove" else TARGETS
                found = bench.workload(name, "--files", files, "--threads", count, "--rounds", 1, *targets(who))
                raw.setdefault(f"{name} {count}", []).append(found)
            alone = bench.workload(name, "--files", files, "--threads", 1, "--rounds", 1, *targets(TARGETS[:2]), processors=1)
            raw.setdefault(f"{name} alone", []).append(alone)
    return raw


def rates_of(reports):
    """Returns the rates of each step of each contestant, one for each round."""
    rates = {}
    for found in reports:
        for row in found["rows"]:
            rates.setdefault((row["step"], row["contestant"]), []).append(row["rate"])
    return rates


def threads_tables(raw):
    one, two, alone = {}, {}, {}
    for name in THREADED:
        one |= rates_of(raw[f"{name} 1"])
        two |= rates_of(raw[f"{name} 2"])
        alone |= rates_of(raw[f"{name} alone"])
    lines = [[step, who, len(rates), show.rate(statistics.median(rates)), show.rate(statistics.median(two[step, who])),
              show.times(two[step, who], rates), show.times(two[step, who], alone.get((step, who)))]
             for (step, who), rates in one.items()]
    columns = ["step", "file system", "runs", "one thread, files/s", "two threads, files/s", "times one thread",
               "times one thread on one processor"]
    changes = rates_of(raw["change 1"])
    beside = [[step, who.partition(":")[2], len(rates), show.rate(statistics.median(rates)), show.spread(rates),
               show.rate(statistics.median(changes[step, who.replace("memory", "kernel")])),
               show.times(rates, changes[step, who.replace("memory", "kernel")])]
              for (step, who), rates in changes.items()
              if who.startswith("memory") and (step, who.replace("memory", "kernel")) in changes]
    return {"threads": list(show.table(columns, lines, left=2)),
            "change": list(show.table(["step", "format", "runs", "Diskwright, files/s", "spread", "kernel, files/s",
                                       "times the kernel's rate"], beside, left=2))}


def parents(bench):
    """Cost of parent pointers: the files of fs_mark are created, renamed, moved and removed."""
    size = ["-n", "1k", "-L", "2"] if bench.quick else ["-n", "3k"]
    found = bench.workload("fs-mark", "-t", 2, *size, "--cold", "--rename", *rounds(bench),
                           *targets(["memory:xfs", "kernel:xfs", "memory:ext4", "kernel:ext4"]))
    return {"fs-mark": found}


def parents_tables(raw):
    found = raw["fs-mark"]
    lines = []
    for row in found["rows"]:
        over = row["overhead"]
        lines.append([row["step"], row["contestant"], row["runs"], show.rate(row["rate"]),
                      show.percent(row["wall"]["spread"]), show.three(processor_us(row)),
                      show.more(over["wall"]) if over else "", show.more(over["processor"]) if over else ""])
    columns = ["step", "file system", "runs", "files/s", "spread", "processor µs per file", "time added by parent pointers",
               "processor time added"]
    return {"parents": list(show.table(columns, lines, left=2))}


def log(bench):
    """Bytes written to the log of XFS per file."""
    cases = [("create", "10k", []), ("remove", "10k", []), ("create", "1k", ["--fsync"]),
             ("create", "2k" if bench.quick else "10k", ["--fsync", "--threads", 4])]
    if bench.quick:
        cases = cases[2:]
    else:
        cases += [("create", "200k", []), ("remove", "200k", [])]
    both = targets(["memory:xfs", "kernel:xfs"])
    return {"cases": [bench.workload(name, "--files", files, *more, *both) for name, files, more in cases]}


def log_tables(raw):
    lines = []
    for found in raw["cases"]:
        rows = {row["contestant"]: row for row in found["rows"]}
        if "memory:xfs" not in rows:
            continue
        row = rows["memory:xfs"]
        ours = extra(row, "log")
        kernel = rows.get("kernel:xfs") and extra(rows["kernel:xfs"], "log")
        words = found["command"].split()
        count = words[words.index("--threads") + 1] if "--threads" in words else "1"
        lines.append([row["step"], show.count(row["x"]), count, show.three(ours), show.three(kernel),
                      show.three(ours / kernel) if ours and kernel else "–"])
    columns = ["step", "files per directory", "threads", "Diskwright, log bytes per file", "kernel, log bytes per file", "times the kernel's"]
    return {"xfs-log": list(show.table(columns, lines))}
