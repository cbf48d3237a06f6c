"""Mounts: rates compared with fuse2fs and a bare file system, random requests, PostgreSQL."""
import os
import re
import statistics
import subprocess
import time

from . import show
from .machine import ROOT, Failed, Missing, high_water, peer

COMPARE = os.path.join(ROOT, "benches/fuse-libraries")
# Time limit for the start and the end of a server, in seconds.
PATIENCE_S = 30


def can_mount():
    return os.path.exists("/dev/fuse") and os.geteuid() == 0


class Mount:
    """A mount on a separate directory."""

    def __init__(self, bench, name):
        self.bench, self.name = bench, name
        self.path = bench.path(f"mount-{name}")
        self.server = None

    def __enter__(self):
        os.makedirs(self.path, exist_ok=True)
        before = os.stat(self.path).st_dev
        try:
            self.start()
            end = time.monotonic() + PATIENCE_S
            while os.stat(self.path).st_dev == before:
                if time.monotonic() > end or (self.server and self.server.poll() is not None):
                    raise Failed(f"{self.name}: not mounted")
                time.sleep(0.01)
        except BaseException:
            self.__exit__()
            raise
        os.chmod(self.path, 0o755)
        return self

    def start(self):
        raise NotImplementedError

    def serve(self, *command):
        self.server = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def peak(self):
        return high_water(self.server.pid)

    def __exit__(self, *_):
        for _ in range(5):
            done = subprocess.run(["umount", self.path], capture_output=True, check=False)
            if done.returncode == 0 or not os.path.ismount(self.path):
                break
            time.sleep(0.5)
        else:
            subprocess.run(["umount", "-l", self.path], capture_output=True, check=False)
        if self.server:
            try:
                self.server.wait(PATIENCE_S * 4)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()


class Ours(Mount):
    def __init__(self, bench, image, name="ours"):
        super().__init__(bench, name)
        self.image = image

    def start(self):
        self.serve(self.bench.program, "mount", "--foreground", self.image, self.path, "-o", "allow_other")


class Fuse2fs(Mount):
    def __init__(self, bench, image):
        super().__init__(bench, "fuse2fs")
        self.image = image

    def start(self):
        self.serve(self.bench.need("fuse2fs"), "-f", self.image, self.path, "-o", "rw,default_permissions,allow_other")


class Bare(Mount):
    """A file system of hash maps on the same FUSE code."""

    def __init__(self, bench):
        super().__init__(bench, "bare")

    def start(self):
        self.serve(os.path.join(compared(self.bench), "bare"), "ours-2", self.path)


class Kernel(Mount):
    def __init__(self, bench, image, fs):
        super().__init__(bench, f"kernel-{fs}")
        self.image = image

    def start(self):
        self.bench.run("mount", "-o", "loop", self.image, self.path)


def compared(bench):
    """Returns the directory of the programs of benches/fuse-libraries, which are built if they are missing."""
    there = os.environ.get("DISKWRIGHT_FUSE_LIBRARIES") or os.path.join(COMPARE, "target/release")
    if not os.path.exists(os.path.join(there, "compare")):
        bench.run("cargo", "build", "--release", "--locked", cwd=COMPARE)
    return there


def image(bench, fs, name, size="4G"):
    """An empty image with room for many files."""
    empty, path = bench.path("empty"), bench.path(f"{name}.img")
    os.makedirs(empty, exist_ok=True)
    words = ["--inodes", 100_000] if fs == "ext4" else []
    # Another section may have used this name.
    bench.run(bench.program, "build", empty, path, "--force", "--fs", fs, "--size", size, *words)
    return path


def contestants(bench, with_kernel=False, with_bare=True):
    """Mounts all available contestants one after another, each on a separate image."""
    if not can_mount():
        raise Missing("/dev/fuse and root, for mounts")
    yield "ours, ext4", lambda: Ours(bench, image(bench, "ext4", "ours-ext4"), "ours-ext4")
    yield "ours, XFS", lambda: Ours(bench, image(bench, "xfs", "ours-xfs"), "ours-xfs")
    if bench.need("fuse2fs"):
        yield "fuse2fs", lambda: Fuse2fs(bench, image(bench, "ext4", "fuse2fs"))
    if with_kernel:
        for fs, words in [("ext4", "kernel, ext4"), ("xfs", "kernel, XFS")]:
            yield words, lambda fs=fs: Kernel(bench, image(bench, fs, f"kernel-{fs}"), fs)
    if with_bare:
        try:
            compared(bench)
        except Failed as error:
            bench.lacks(f"bare (benches/fuse-libraries): {error}")
        else:
            yield "bare", lambda: Bare(bench)


def mount(bench):
    """Rates of one client: files, and sequential contents."""
    if not can_mount():
        raise Missing("/dev/fuse and root, for mounts")
    folder = bench.path("mount")
    os.makedirs(folder, exist_ok=True)
    ours, xfs = image(bench, "ext4", "rates-ext4"), image(bench, "xfs", "rates-xfs")
    words = [f"ext4={bench.program} mount --foreground {ours} {{}}", f"xfs={bench.program} mount --foreground {xfs} {{}}"]
    fuse2fs = bench.need("fuse2fs")
    if fuse2fs:
        words.append(f"fuse2fs={fuse2fs} -f {image(bench, 'ext4', 'rates-fuse2fs')} {{}} -o rw,default_permissions")
    files = "1,1000" if bench.quick else "1"
    compare = os.path.join(compared(bench), "compare")
    return {"runs": bench.rounds, "table": bench.run(compare, folder, files, bench.rounds, *words, "ours-2")}


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def mount_rates(raw):
    """Returns the rates by measure and contestant."""
    # fuse2fs prints other messages there.
    head, _, *lines = [line for line in raw["table"].splitlines() if line.startswith("|")]
    names = cells(head)[1:]
    return names, {cells(line)[0]: dict(zip(names, cells(line)[1:])) for line in lines}


def mount_tables(raw):
    names, rates = mount_rates(raw)
    number = lambda cell: float(cell.split()[0])
    titles = {"ext4": "Diskwright, ext4", "xfs": "Diskwright, XFS", "ours-2": "bare"}
    lines = []
    for measure, found in rates.items():
        by = lambda one, other: show.three(number(found[one]) / number(found[other])) if other in found else "–"
        lines.append([measure.replace("what is not there", "a missing name"), *(found[name] for name in names), by("ext4", "ours-2"), by("xfs", "ours-2"), by("ext4", "fuse2fs")])
    columns = [f"rate ({raw['runs']} runs)", *(titles.get(name, name) for name in names), "ext4 / bare", "XFS / bare",
               "ext4 / fuse2fs"]
    return {"mount": list(show.table(columns, lines))}


def requests(bench):
    """Random requests of 4 KiB, and the time of fsync."""
    seconds, size = (0.1, 16) if bench.quick else (0.5, 256)
    raw = {}
    everybody = list(contestants(bench, with_kernel=True))
    for number in range(bench.rounds):
        for place in range(len(everybody)):
            name, start = everybody[(place + number) % len(everybody)]
            with start() as mounted:
                rows = bench.table("requests", mounted.path, "--mebibytes", size, "--seconds", seconds)
            raw.setdefault(name, []).append(rows)
    return {"found": {name: raw[name] for name, _ in everybody}}


def requests_tables(raw):
    rates = {}
    for name, runs in raw["found"].items():
        for rows in runs:
            for row in rows:
                rates.setdefault((row["what"], row["in flight"]), {}).setdefault(name, []).append(
                    (float(row["requests/s"]), float(row["median us"]), float(row["99 % us"])))
    lines = []
    for (what, under_way), found in rates.items():
        for name, runs in found.items():
            bare = [run[0] for run in found.get("bare", [])]
            of = lambda place: statistics.median(run[place] for run in runs)
            own = [run[0] for run in runs]
            lines.append([what, under_way, name.replace("ours", "Diskwright"), len(runs), show.rate(of(0)), show.spread(own), show.three(of(1)), show.three(of(2)),
                          "" if name == "bare" else show.times(own, bare)])
    columns = ["4 KiB, O_DIRECT unless synced", "in flight", "mount", "runs", "requests/s", "spread", "median µs", "99 % µs",
               "rate / bare"]
    return {"requests": list(show.table(columns, lines, left=1))}


def pgbench(bench):
    """PostgreSQL's pgbench: the built-in script with four clients."""
    program = bench.need("pgbench")
    if not program or os.geteuid() != 0:
        raise Missing("PostgreSQL with pgbench, and root")
    import pwd
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        raise Missing("a user called postgres") from None
    scale, seconds = (1, 2) if bench.quick else (10, 8)
    raw = {}
    everybody = list(contestants(bench, with_kernel=True, with_bare=False))
    for number in range(1 if not bench.long else bench.rounds):
        for place in range(len(everybody)):
            name, start = everybody[(place + number) % len(everybody)]
            with start() as mounted:
                raw.setdefault(name, []).append(transactions(bench, mounted.path, user, scale, seconds))
    return {"found": {name: raw[name] for name, _ in everybody}, "scale": scale, "seconds": seconds}


def transactions(bench, folder, user, scale, seconds):
    """Returns the transactions per second of a new cluster in this directory."""
    data = os.path.join(folder, "pg")
    os.mkdir(data, 0o700)
    os.chown(data, user.pw_uid, user.pw_gid)
    socket = bench.path("socket")
    os.makedirs(socket, exist_ok=True)
    os.chown(socket, user.pw_uid, user.pw_gid)
    os.chmod(bench.scratch, 0o755)
    programs = os.path.dirname(os.path.realpath(peer("pgbench")))
    server = next((found for found in [programs, *(os.path.dirname(peer(name) or "") for name in ["initdb"])]
                   if os.path.exists(os.path.join(found, "initdb"))), None) or os.path.dirname(peer("initdb") or "")

    def as_user(name, *words, **options):
        found = os.path.join(server, name) if os.path.exists(os.path.join(server, name)) else peer(name)
        return bench.run("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", found, *words,
                         cwd="/", **options)
    as_user("initdb", "-D", data, "-A", "trust", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={socket} -c logging_collector=off"
    # The output goes to a file, because reading a pipe would wait for the server that inherits it.
    as_user("pg_ctl", "-D", data, "-w", "-o", options, "-l", os.path.join(socket, "log"), "start", stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
    try:
        every = ["-h", socket, "-U", "postgres"]
        as_user("pgbench", *every, "-i", "-q", "-s", scale, "postgres")
        printed = as_user("pgbench", *every, "-c", 4, "-j", 2, "-T", seconds, "postgres")
    finally:
        as_user("pg_ctl", "-D", data, "-m", "fast", "-w", "stop")
    found = re.search(r"tps = ([0-9.]+)", printed)
    if not found:
        raise Failed(f"pgbench: {printed}")
    return float(found[1])


def pgbench_tables(raw):
    found = raw["found"]
    lines = []
    for name, runs in found.items():
        same = found.get(name.replace("ours", "kernel")) if name.startswith("ours") else None
        lines.append([name.replace("ours", "Diskwright"), len(runs), show.count(statistics.median(runs)), show.times(runs, same) if same else ""])
    columns = [f"scale {raw['scale']}, {raw['seconds']} s, 4 clients", "runs", "transactions/s", "times the kernel's rate"]
    return {"pgbench": list(show.table(columns, lines))}
