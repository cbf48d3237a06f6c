"""The measured programs, their locations, and their execution."""
import glob
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
TOOLS = os.environ.get("DISKWRIGHT_TOOLS") or os.path.join(ROOT, "target/tools")
# A command that takes longer is considered to hang.
LONGEST_S = 900
# For a process that runs this long, sampling is exact enough for its peak memory.
SEEN_S = 0.1
PEERS = {
    "mke2fs": "scripts/install-tools",
    "e2fsck": "scripts/install-tools",
    "fuse2fs": "scripts/install-tools",
    "tar": "apt install tar",
    "mkfs.xfs": "scripts/install-xfsprogs",
    "xfs_repair": "scripts/install-xfsprogs",
    "rust-fs-ext4": "cargo install --features cli rust-fs-ext4",
    "rust-fs-xfs": "cargo install --features cli rust-fs-xfs",
    "pgbench": "apt install postgresql",
}


class Failed(Exception):
    """A command failed."""


class Missing(Exception):
    """A requirement of a section is missing."""


def peer(name):
    """Returns the path of a peer's program, or nothing if it is missing."""
    places = [os.path.join(TOOLS, "xfsprogs", folder) for folder in ["bin", "sbin"]]
    places += os.environ.get("DISKWRIGHT_PEERS", "").split(":") + os.environ["PATH"].split(":")
    places += ["/usr/sbin", "/sbin", os.path.expanduser("~/.cargo/bin")]
    places += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    if name in ("mkfs.xfs", "xfs_repair"):
        # Debian's releases are too old for current features.
        places = places[:2]
    return shutil.which(name, path=":".join(place for place in places if place))


class Bench:
    """A run of bench-all: program, directories and number of rounds."""

    def __init__(self, program, quick=False, long=False, scratch="/dev/shm"):
        self.program = program
        self.bench_program = os.path.join(os.path.dirname(program), "diskwright-bench")
        self.quick, self.long = quick, long
        self.rounds = 1 if quick else 3
        self.scratch = os.path.join(scratch, f"diskwright-bench-all-{os.getpid()}")
        # Parts that could not be measured, with reasons.
        self.missing = []

    def __enter__(self):
        os.mkdir(self.scratch)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.scratch, name)

    def need(self, name):
        """Returns the program of a peer. If it is missing, the section continues, and the page names it."""
        found = peer(name)
        if not found:
            self.lacks(f"{name} ({PEERS.get(name, 'see CONTRIBUTING.md')})")
        return found

    def lacks(self, what):
        if what not in self.missing:
            self.missing.append(what)
            print(f"bench-all: missing: {what}", file=sys.stderr, flush=True)

    def run(self, *command, ok=(0,), timeout=LONGEST_S, **options):
        """Runs a command to its end, and returns its output."""
        command = list(map(str, command))
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
        try:
            done = subprocess.run(command, timeout=timeout, **options)
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(command)}: not done after {timeout} s") from None
        if done.returncode not in ok:
            said = (done.stderr or b"").decode(errors="replace").strip()[-2000:]
            raise Failed(f"{' '.join(command)}: status {done.returncode}: {said}")
        return (done.stdout or b"").decode(errors="replace")

    def workload(self, *words, processors=None):
        """The only workload of a report of `diskwright-bench`; what did not take part is named. With `processors` it has the
        first so many alone."""
        bound = ["taskset", "--cpu-list", f"0-{processors - 1}"] if processors else []
        printed = self.run(*bound, self.bench_program, *words, "--json", "--scratch", self.scratch, ok=(0, 1))
        try:
            (found,) = json.loads(printed)["workloads"]
        except ValueError as error:
            raise Failed(f"diskwright-bench {' '.join(map(str, words))}: {error}") from error
        for one in found["skipped"]:
            self.lacks(f"{one['contestant']} in {found['name']}: {one['why']}")
        for one in found["failed"]:
            raise Failed(f"{found['name']}, {one['contestant']}, {one['x']}: {one['why']}")
        # Texts that are the same in each report.
        for name in ["what", "published", "headlines"]:
            found.pop(name)
        return found | {"command": "diskwright-bench " + " ".join(map(str, words))}

    def table(self, *words):
        """Returns a table of `diskwright-bench` as a list of dictionaries."""
        command = [self.bench_program, *words, "--json"]
        found = json.loads(self.run(*command))
        return [dict(zip(found["columns"], row)) for row in found["rows"]]

    def timed(self, *command, ok=(0,), stdin=None, cwd=None):
        """Runs a command, and returns its wall time and processor time in seconds and its peak memory in bytes."""
        return timed(list(map(str, command)), ok, stdin, cwd)


def timed(command, ok=(0,), stdin=None, cwd=None):
    """Like Bench.timed, discarding the output."""
    start = time.monotonic()
    with subprocess.Popen(command, stdin=stdin or subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, cwd=cwd) as child:
        said, peak = [], [0]
        reader = threading.Thread(target=lambda: said.append(child.stderr.read()))
        watcher = threading.Thread(target=watch, args=(child.pid, peak))
        reader.start()
        watcher.start()
        if stdin:
            # Only the child may have that end of the pipe.
            stdin.close()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        watcher.join()
        reader.join()
    if child.returncode not in ok:
        text = said[0].decode(errors="replace").strip()[-2000:]
        raise Failed(f"{' '.join(command)}: status {child.returncode}: {text}")
    most = usage.ru_maxrss * 1024
    # What the kernel says at the end has the memory of this process in it, from before the child became another program: it is
    # exact where it is more, and else no less than the truth, of which the watcher sees little in a short time.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    is_bound = most <= own and (seconds < SEEN_S or not peak[0])
    exact = most if most > own else peak[0]
    return {"s": seconds, "processor_s": usage.ru_utime + usage.ru_stime, "peak": most if is_bound else exact, "is_bound": is_bound}


def watch(pid, peak):
    """Records the peak memory of a process while it runs."""
    while True:
        found = high_water(pid)
        if found is None:
            return
        peak[0] = max(peak[0], found)
        time.sleep(0.001)


def high_water(pid):
    """Returns the peak resident memory of a process in bytes, or nothing after its end."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ProcessLookupError):
        pass
    return None


def commit():
    """Returns the current commit, with a + if files were changed."""
    def git(*words):
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "crates", "Cargo.lock")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def describe():
    """Returns a description of the machine."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    with open("/proc/meminfo", encoding="utf-8") as info:
        kib = int(info.readline().split()[1])
    return {
        "processors": os.cpu_count(),
        "model": models[0] if models else "unknown",
        "memory_gib": round(kib / (1 << 20)),
        "kernel": os.uname().release,
        "load": os.getloadavg()[0],
        "peers": {name: version(name) for name in PEERS},
    }


def version(name):
    """Returns the version that a peer reports, or nothing if it is missing."""
    program = peer(name)
    if not program:
        return None
    for flag in ["-V", "--version"]:
        try:
            done = subprocess.run([program, flag], capture_output=True, text=True, timeout=20, check=False,
                                  stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return "there"
        words = (done.stdout + "\n" + done.stderr).replace("(", " ").replace(")", " ").split()
        numbers = [word for word in words if word[0].isdigit() and "." in word]
        if numbers:
            return numbers[0].rstrip(",")
    return "there"
