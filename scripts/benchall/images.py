"""Whole images: building, checking, repairing, and the memory of commands."""
import json
import os
import statistics
import threading

from . import show
from .machine import Failed

# Terminator of numbers in a tar header.
USTAR = b"ustar\x0000"


def header(name, directory):
    """Returns a tar header of an empty file or a directory."""
    block = bytearray(512)
    block[0:len(name)] = name
    block[100:108] = b"0000755\0" if directory else b"0000644\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"00000000000\0"
    block[136:148] = b"14524770200\0"
    block[148:156] = b" " * 8
    block[156] = ord("5" if directory else "0")
    block[257:265] = USTAR
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def write_tar(out, directories, files):
    """Generates a tar archive of directories with empty files."""
    file = bytearray(header(b"d00000/f00000", False))
    unsummed = sum(file) - sum(file[148:156]) - sum(file[0:13]) + 8 * ord(" ")
    with out:
        for one in range(directories):
            out.write(header(b"d%05d/" % one, True))
            for other in range(files):
                name = b"d%05d/f%05d" % (one, other)
                file[0:13] = name
                file[148:156] = b"%06o\0 " % (unsummed + sum(name))
                out.write(file)
        out.write(bytes(1024))


def feed(directories, files):
    """Returns the reading end of a pipe that delivers such an archive."""
    reads, writes = os.pipe()

    def write():
        try:
            write_tar(os.fdopen(writes, "wb", 1 << 20), directories, files)
        except BrokenPipeError:
            # The reader has ended and reports the reason.
            pass
    threading.Thread(target=write, daemon=True).start()
    return os.fdopen(reads, "rb")


def build_tree(bench, image, fs, directories, files):
    """Builds an image with this number of directories and files."""
    return bench.timed(bench.program, "build", "--fs", fs, "--free", "64M", "-", image, stdin=feed(directories, files))


def build(bench):
    """Images from directories, compared with mke2fs, mkfs.xfs and tar."""
    mkfs = bench.need("mkfs.xfs")
    for name in ["mke2fs", "tar"]:
        bench.need(name)
    raw = {}
    for fs in ["ext4", "xfs"]:
        words = ["build", "--fs", fs, "--scratch", bench.scratch, "--program", bench.program]
        words += ["--mkfs-xfs", mkfs] if mkfs else []
        empty = [] if bench.long else ["--quick"]
        tree = ["--tree", "/usr/share/doc" if bench.quick else "/usr" if bench.long else "/usr/share"]
        raw[fs] = [cases(bench, *words, "--only", "10000 empty" if bench.quick else "empty", "--rounds", bench.rounds, *empty),
                   cases(bench, *words, "--only", "tree", "--rounds", 1 if bench.quick else 2, *tree)]
    return raw


def cases(bench, *words):
    """The cases of `bench build`."""
    return json.loads(bench.run(bench.bench_program, *words, "--json"))["cases"]


def build_tables(raw):
    tables = {}
    for fs, parts in raw.items():
        lines = []
        for case in [case for part in parts for case in part]:
            ours = case["rows"][0]["times"]["median_s"]
            for row in case["rows"]:
                took = row["times"]
                peak = row["peak_memory_bytes"]
                lines.append([case["name"], row["program"], took["runs"], show.three(took["median_s"]),
                              show.percent(took["spread"]), show.rate(case["entries"] / took["median_s"]),
                              show.mebibytes(peak) if peak else "", show.three(took["median_s"] / ours)])
        columns = ["source", "program", "runs", "median s", "spread", "entries/s", "peak MiB", "times Diskwright's time"]
        tables[f"build-{fs}"] = list(show.table(columns, lines, left=2))
    return tables


def checkers(bench, image, fs):
    """Returns the checkers of this format: name and command."""
    yield "check, two threads", [bench.program, "check", "--threads", "2", image]
    yield "check, one thread", [bench.program, "check", "--threads", "1", image]
    theirs = {"ext4": [("e2fsck", ["-fn"]), ("rust-fs-ext4", ["fsck", "-f", "-n"])],
              "xfs": [("xfs_repair", ["-n", "-f"]), ("rust-fs-xfs", ["fsck", "-n"])]}
    for name, words in theirs[fs]:
        program = bench.need(name)
        if program:
            yield name, [program, *words, image]


def check(bench):
    """Checks of valid images, and repairs of damaged ones."""
    directories, files = (40, 250) if bench.quick else (2000, 250)
    raw = {"directories": directories, "files": directories * files, "check": [], "repair": []}
    for fs in ["ext4", "xfs"]:
        image = bench.path(f"check-{fs}.img")
        build_tree(bench, image, fs, directories, files)
        runs = {}
        for number in range(bench.rounds):
            contestants = list(checkers(bench, image, fs))
            for place in range(len(contestants)):
                name, command = contestants[(place + number) % len(contestants)]
                runs.setdefault(name, []).append(bench.timed(*command))
        raw["check"] += [{"fs": fs, "program": name, "runs": runs[name]} for name, _ in contestants]
        raw["repair"] += repair(bench, image, fs)
        os.remove(image)
    return raw


def damage(image, fs):
    """Zeroes the header of XFS's free space in the first group, or ext4's first bitmap of blocks."""
    if fs == "xfs":
        place, size = 512, 512
    else:
        with open(image, "rb") as file:
            file.seek(4096)
            place = int.from_bytes(file.read(4), "little") * 4096
        size = 4096
    with open(image, "r+b") as file:
        file.seek(place)
        file.write(bytes(size))


def repair(bench, image, fs):
    damage(image, fs)
    name, words = {"ext4": ("e2fsck", ["-fy"]), "xfs": ("xfs_repair", ["-f"])}[fs]
    commands = [("repair", [bench.program, "repair", "--yes"], (0, 1))]
    theirs = bench.need(name)
    if theirs:
        commands.append((name, [theirs, *words], (0, 1)))
    runs = {}
    copy = bench.path("copy.img")
    for _ in range(bench.rounds):
        for who, command, ok in commands:
            bench.run("cp", "--sparse=always", image, copy)
            runs.setdefault(who, []).append(bench.timed(*command, copy, ok=ok))
            os.remove(copy)
    return [{"fs": fs, "program": who, "runs": found} for who, found in runs.items()]


def check_tables(raw):
    def lines(part):
        for one in part:
            ours = next(other for other in part if other["fs"] == one["fs"])
            took = [run["s"] for run in one["runs"]]
            times = "" if one is ours else show.times(took, [run["s"] for run in ours["runs"]])
            yield [one["fs"], one["program"], len(took), show.three(statistics.median(took)),
                   f"{show.three(min(took))} to {show.three(max(took))}",
                   show.three(statistics.median(run["processor_s"] for run in one["runs"])),
                   show.mebibytes(max(run["peak"] for run in one["runs"])), times]
    columns = ["image", "program", "runs", "median s", "min to max", "processor s", "peak MiB", "times the first row's time"]
    return {"check": list(show.table(columns, lines(raw["check"]), left=2)),
            "check-repair": list(show.table(columns, lines(raw["repair"]), left=2))}


def reading(image):
    """Returns the commands that read an image, as arguments of the program, and their other permitted statuses."""
    file = "/d00001/f00007"
    return [
        (["info", image], (0,)), (["ls", image, "/d00001"], (0,)), (["ls", "-l", "-R", image], (0,)),
        (["find", image, "--name", "nothing"], (0, 1)), (["cat", image, file], (0,)),
        (["paths", image, "5000"], (0, 1)), (["lsattr", "-R", image], (0,)), (["dump", image, "superblock"], (0,)),
        (["extract", image, "-"], (0,)), (["check", image], (0,)), (["check", "--threads", "1", image], (0,)),
        (["check", "--json", image], (0,)), (["repair", "--plan", image], (0,)),
        (["workload", "find", "--target", image, "--walks", "2"], (0,)),
    ]


def writing(image, source):
    """Returns the commands that change an image, in an order in which all succeed."""
    file = "/d00001/f00007"
    return [
        (["mkdir", image, "/new"], (0,)), (["cp", source, f"{image}:/new/file"], (0,)),
        (["mv", image, "/new/file", "/new/other"], (0,)), (["ln", image, file, "/new/link"], (0,)),
        (["truncate", image, "/new/other", "--size", "5M"], (0,)), (["setfattr", image, file, "-n", "user.a", "-v", "b"], (0,)),
        (["chmod", "-R", image, "go-w", "/"], (0,)), (["chown", "-R", image, "7:7", "/"], (0,)),
        (["rm", "-r", image, "/d00001"], (0,)), (["trim", image], (0,)), (["recover", image], (0,)),
        (["repair", "--yes", image], (0,)),
    ]


def memory(bench):
    """Peak memory of every command on an image with many files, and memory of each cached inode and entry."""
    directories, files = (20, 1000) if bench.quick else (2000, 1000)
    raw = {"files": directories * files, "commands": [], "cached": {}, "mount": {}}
    source = bench.path("source")
    with open(source, "wb") as file:
        file.write(os.urandom(3 << 20))
    for fs in ["ext4", "xfs"]:
        image = bench.path("memory.img")
        build_run = build_tree(bench, image, fs, directories, files)
        add = lambda kind, words, run: raw["commands"].append(
            {"fs": fs, "kind": kind, "command": " ".join(words).replace(image, "IMAGE").replace(source, "FILE")} | run)
        add("makes", ["build", "--fs", fs, "-", "IMAGE"], build_run)
        raw["cached"][fs] = bench.table("memory", image)
        for kind, commands in [("reads", reading(image)), ("changes", writing(image, source))]:
            for words, ok in commands:
                try:
                    add(kind, words, bench.timed(bench.program, *words, ok=ok))
                except Failed as error:
                    bench.lacks(f"memory of a command: {error}")
            if kind == "reads":
                raw["mount"][fs] = mounted(bench, image)
        os.remove(image)
    return raw


def mounted(bench, image):
    """Peak memory of a mount's server after a walk over all inodes."""
    from . import mounts
    if not mounts.can_mount():
        bench.lacks("memory of a mount: /dev/fuse and root")
        return None
    with mounts.Ours(bench, image) as mount:
        bench.run("find", mount.path, "-size", "+1G")
        return {"peak": mount.peak()}


def memory_tables(raw):
    both = {}
    for one in raw["commands"]:
        both.setdefault((one["kind"], one["command"].replace("--fs ext4 ", "").replace("--fs xfs ", "")), {})[one["fs"]] = one
    peak_of = lambda one: "≤ " * one["is_bound"] + show.mebibytes(one["peak"])
    lines = [[kind, f"`{command}`", *(peak_of(found[fs]) if fs in found else "–" for fs in ["ext4", "xfs"]),
              *(show.three(found[fs]["s"]) if fs in found else "–" for fs in ["ext4", "xfs"])]
             for (kind, command), found in both.items()]
    peaks = [raw["mount"][fs] for fs in ["ext4", "xfs"]]
    lines.append(["serves", "`mount IMAGE MOUNTPOINT`, a walk over all inodes",
                  *(show.mebibytes(one["peak"]) if one else "–" for one in peaks), "", ""])
    each = [[fs, *(show.count(row["bytes each"]) for row in rows)] for fs, rows in raw["cached"].items()]
    return {"memory": list(show.table(["", "command", "ext4, MiB", "XFS, MiB", "ext4, s", "XFS, s"], lines, left=2)),
            "memory-cached": list(show.table(["format", "bytes per directory entry", "bytes per inode"], each))}
