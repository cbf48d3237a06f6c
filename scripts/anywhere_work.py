"""Measures synced work on a mount of a volume, for scripts/bench-anywhere, and prints the results as JSON.

    anywhere_work.py MOUNT PROXY [NAME=PID…]      PROXY as http://HOST:PORT, which counts requests (delay_proxy.py)

Of processes that are named, it says what they took of the processor meanwhile, too.
"""

import json
import os
import sys
import threading
import time
import urllib.request

top, proxy = sys.argv[1], sys.argv[2]
processes = dict(argument.split("=") for argument in sys.argv[3:]) | {"this program": "self"}
THREADS, SECONDS, FSYNCS, SEQUENTIAL = 16, 10, 100, 512 << 20


def counts():
    with urllib.request.urlopen(f"{proxy}/__counts") as answer:
        return json.load(answer)


def processor_seconds():
    """Returns the resources used by each process so far, by name."""
    taken = {}
    for name, pid in processes.items():
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        taken[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return taken


def create(name):
    file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(file, b"x" * 1024)
    os.fsync(file)
    os.close(file)


def puts_per_fsync():
    os.mkdir(f"{top}/alone")
    create(f"{top}/alone/first")
    counts()
    begun = time.time()
    for number in range(FSYNCS):
        create(f"{top}/alone/{number}")
    taken = time.time() - begun
    return counts().get("PUT", 0) / FSYNCS, taken / FSYNCS


def creates_per_second():
    made = [0] * THREADS
    for thread in range(THREADS):
        os.mkdir(f"{top}/{thread}")
    end = time.time() + SECONDS

    def work(thread):
        while time.time() < end:
            create(f"{top}/{thread}/{made[thread]}")
            made[thread] += 1

    counts()
    begun = time.time()
    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(made)
    return total / (time.time() - begun), counts().get("PUT", 0) / total


def sequential():
    part = os.urandom(1 << 20)
    counts()
    before, begun = processor_seconds(), time.time()
    file = os.open(f"{top}/large", os.O_CREAT | os.O_WRONLY, 0o644)
    for _ in range(SEQUENTIAL // len(part)):
        os.write(file, part)
    os.fsync(file)
    os.close(file)
    rate = SEQUENTIAL / (time.time() - begun) / 1e6
    taken = {name: round(seconds - before[name], 2) for name, seconds in processor_seconds().items()}
    return rate, counts().get("bytes_sent", 0) / SEQUENTIAL, taken


puts, seconds = puts_per_fsync()
creates, puts_of_each = creates_per_second()
rate, sent, taken = sequential()
print(
    json.dumps(
        {
            "puts for each fsync of one thread": round(puts, 2),
            "ms for each": round(seconds * 1000, 1),
            f"synced creates a second, {THREADS} threads": round(creates),
            "puts for each of these": round(puts_of_each, 3),
            "sequential write, MB/s": round(rate),
            "bytes sent for each written": round(sent, 2),
            "processor seconds meanwhile": taken,
        }
    )
)
