"""Walks, orphans, file servers, listings, and directories with random changes."""
from . import show
from .names import TARGETS, extra, processor_us, row_of, rounds, targets


def find(bench):
    """Walks over a tree in search of a missing name."""
    tree, walks = ("generated:2k", 5) if bench.quick else ("generated", 20)
    return {"find": bench.workload("find", "--tree", tree, "--walks", walks, *rounds(bench), *targets())}


def find_tables(raw):
    found = raw["find"]
    lines = [[row["step"], row["contestant"], row["runs"], show.percent(row["wall"]["spread"]),
              show.three(extra(row, "time")), show.three(processor_us(row) * 1000),
              show.sure(row["kernel"] and row["kernel"]["rate"])] for row in found["rows"] if "profiled" not in row["step"]]
    parts = ["reading", "hashing", "sorting", "delivering", "elsewhere"]
    where = [[row["contestant"], *(show.three(extra(row, part)) for part in parts)]
             for row in found["rows"] if extra(row, "reading") is not None]
    columns = ["walk", "file system", "runs", "spread", "ns per entry", "processor ns per entry", "times the kernel's rate"]
    return {"find": list(show.table(columns, lines, left=2)),
            "find-where": list(show.table(["ns per entry", *parts], where))}


def orphans(bench):
    """Truncations byte by byte."""
    size = ["--threads", "1,4", "--file-size", 256] if bench.quick else ["--threads", "1,2,8,32,128"]
    everybody = [*TARGETS, "memory:ext4,^orphan_file,orphans=when-needed"]
    return {"found": bench.workload("stress-orphan", "--files", 1, *size, "--rounds", bench.rounds, *targets(everybody))}


def unlink(bench):
    """Files written, synced and removed."""
    size = ["--threads", "1,4", "--files", 10] if bench.quick else ["--threads", "1,16,128"]
    return {"found": bench.workload("stress-unlink", *size, "--rounds", bench.rounds, *targets())}


def fserver(bench):
    """The jobs of a file server."""
    size = ["--tasks", "1,9", "--file-size", "64K", "--pool-size", "1M"] if bench.quick else [
        "--tasks", "1,193", "--file-size", "256K", "--pool-size", "8M"]
    return {"found": bench.workload("fserver", "--jobs", 24, *size, "--rounds", bench.rounds, *targets())}


def against_table(found):
    """Returns a table with a column for each number of threads, and ratios for the maximum number."""
    (step,) = {row["step"] for row in found["rows"]}
    sizes = sorted({row["x"] for row in found["rows"]})
    who = list(dict.fromkeys(row["contestant"] for row in found["rows"]))
    lines = []
    for name in who:
        rows = [row_of(found, step, x, name) for x in sizes]
        last, flat = rows[-1], None
        for one in found["flatness"]:
            if one["contestant"] == name:
                flat = one["sure"]
        lines.append([name, last["runs"] if last else "–", *(show.rate(row and row["rate"]) for row in rows),
                      show.sure(flat), show.sure(last and last["kernel"] and last["kernel"]["rate"])])
    axis = found["axis"]
    columns = ["file system", "runs", *(f"{show.count(x)} {axis if x > 1 else axis[:-1]}" for x in sizes),
               f"rate at {show.count(sizes[-1])} / at {show.count(sizes[0])}", f"times the kernel's rate at {show.count(sizes[-1])}"]
    return list(show.table(columns, lines))


def listing(bench):
    """Listings of large directories."""
    sizes = "10000,20000" if bench.quick else "10000,100000,1000000" + ",10000000" * bench.long
    return {"rows": bench.table("list", "--entries", sizes, "--rounds", bench.rounds, "--scratch", bench.scratch)}


def listing_tables(raw):
    lines = [[show.count(row["entries"]), row["way"], row["runs"], row["ns/entry"], row["spread"]] for row in raw["rows"]]
    return {"list": list(show.table(["entries", "way", "runs", "ns an entry", "spread"], lines))}


def churn(bench):
    """Random creation and removal of names in a half-empty directory, and at the end of a full one."""
    size = ["--entries", 20_000, "--pairs", 5000] if bench.quick else ["--entries", 2_000_000, "--pairs", 200_000]
    every = ["--scratch", bench.scratch, *size]
    raw = {"random": bench.table("churn", "--only", "tree,reverse", *every),
           "none": bench.table("churn", "--removed", "none", "--only", "tree", *every)}
    if bench.long:
        raw["oldest"] = bench.table("churn", "--removed", "oldest", *every)
    return raw


def churn_tables(raw):
    kinds = {"random": "half of all names, at random", "oldest": "the oldest half", "none": "none: a new name goes to the end"}
    end = float(raw["none"][0]["insert and remove, us"])
    lines = []
    for kind, words in kinds.items():
        for row in raw.get(kind, []):
            micros = float(row["insert and remove, us"])
            lines.append([words, row["way"], row["runs"], show.three(micros), show.three(micros / end), row["blocks"], row["after"]])
    columns = ["removed before", "search", "runs", "insert and remove, µs", "times an insert at the end", "blocks before", "blocks after"]
    return {"churn": list(show.table(columns, lines, left=2))}
