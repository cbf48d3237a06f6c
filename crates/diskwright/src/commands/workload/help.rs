//! What `--help` says beside the options.

/// What all of them end with.
macro_rules! notes {
    ($text:literal) => {
        concat!(
            $text,
            "\n
Targets:
  memory:ext4, memory:xfs   a file system of this program's, in memory, with journal or log
  kernel:ext4, kernel:xfs   the same image, mounted by the kernel for the run; needs root, and is
                            skipped with a message without it
  IMAGE                     an image file, worked on in memory; the file is not changed
  DIRECTORY                 any mounted file system, through system calls; what is made is removed
  After memory: or kernel:FORMAT, items may follow after commas: features as for build (+name or
  ^name), size=SIZE, and free-index=NAME (memory:xfs) or orphans=when-needed|always|list|off
  (memory:ext4)."
        )
    };
}

pub(super) const ALL: &str = "\
Examples:
  diskwright workload create
  diskwright workload fs-mark --target memory:xfs --target kernel:xfs
  diskwright workload compare --set quick

Exit status:
  0    everything ran, but for targets that were skipped, each with a message
  1    a run failed, or a file system was not as it should be after one; or nothing could run at all
  2    the arguments make no sense
  4    a report could not be written
  130  interrupted with Ctrl-C: what was measured until then is reported, and said to be a part

Figures of different targets are not the same thing: memory: has no system calls, page cache or
device; each report says what is not comparable.";

pub(super) const CREATE: &str = notes!(
    "\
From: \"xfs: speed up directory bestfree block scanning\" (2018). Files are made with mknod in one
directory, in an order that follows from the seed. Timed: making all of them; nothing is synced.
Default target: memory:xfs. The thread's 10M files need about 16 GB of memory and minutes, and are
only run when asked for: --files 10M.

With --free-index, each of the chosen ways of finding room takes part, for every memory:xfs that does
not choose one itself; the scans take time that grows with the square of the files.

Examples:
  diskwright workload create --free-index all --files 10k,100k
  diskwright workload create --target memory:ext4 --target kernel:ext4 --rounds 3"
);

pub(super) const REMOVE: &str = notes!(
    "\
The counts of \"xfs: speed up directory bestfree block scanning\" (2018), with the cold cache that was
asked for in the review of \"xfs: speed up parent pointer operations\" (2025). Timed: unlinking all
files of a directory; making them is not, nor is emptying the caches. Default target: memory:xfs. The
thread's 10M files need about 16 GB of memory and are only run when asked for: --files 10M.

Caches are emptied by closing and opening an image, for kernel: targets by mounting it again. A cold
cache of memory: still has its device in memory: it costs parsing and checksums, not seeking.

Examples:
  diskwright workload remove --cold
  diskwright workload remove --files 1M --target memory:xfs,^parent --target memory:xfs,+parent"
);

pub(super) const FS_MARK: &str = notes!(
    "\
From: \"xfs: speed up parent pointer operations\" (2025), which ran
  fs_mark -D 10000 -S 0 -n 100000 -s 0 -L 8 -d DIRECTORY… (one for each of 40 threads)
and then removed everything. The operations and names are those of fs_mark 3.3; its own time (names,
statistics) is left out. Timed: the creation, then the removal of files and directories, with wall,
user and system time. Default target: memory:xfs. An XFS for which nothing is said of parent pointers
takes part twice, without (^parent) and with (+parent), and the overhead is reported.

The thread made 32 million files on 40 processors; here it is 800,000 for each thread, and about 1 KB
of memory for each file.

Examples:
  diskwright workload fs-mark -n 10000 -L 2
  diskwright workload fs-mark -t 4 --cold --target memory:xfs --target kernel:xfs --rounds 3"
);

pub(super) const FIND: &str = notes!(
    "\
From: \"ext4: use kmem_cache for short fname allocation in readdir\" (2025), which ran
  find ./linux -name notfoundatall
100 times. The whole tree is listed, entry by entry, looking for a name that is not there. Timed: all
walks, after one that fills the caches; reported per entry, for memory: and images with the counts of
allocations and of where the time goes. Default target: memory:ext4, with a made-up tree of 90,000
files; an image or a directory is walked as it is.

Examples:
  diskwright workload find --tree /usr/src/linux --target memory:ext4 --target kernel:ext4
  diskwright workload find --target /usr --walks 10
  diskwright workload find --target root.img"
);

pub(super) const STRESS_ORPHAN: &str = notes!(
    "\
From: \"ext4: Speedup ext4 orphan inode handling\" (2015). Its program was never published, only what
it does: files are truncated byte by byte from N threads. Files of 4 KiB and 16 of them for each
thread are this program's choice. Timed: the truncations. Default target: memory:ext4.

A memory:ext4 for which nothing is said of orphans takes part four times: orphans=off records none,
which no file system can do and is the limit that the others are measured against; always, in the
orphan file, and list, on the linked list, do as kernels do; when-needed is what this program does by
itself. A kernel:ext4 takes part with and without orphan_file.

Examples:
  diskwright workload stress-orphan --threads 1,16
  diskwright workload stress-orphan --target memory:ext4 --target kernel:ext4 --rounds 5"
);

pub(super) const FSERVER: &str = notes!(
    "\
From: \"ext4: Speedup ext4 orphan inode handling\" (2015), which ran reaim's new_fserver without calls
of sync. Kept are the jobs that touch files, with their weights; those of processor, memory and network
are left out, so figures are higher than reaim's. Timed: all jobs of all tasks. Default target:
memory:ext4, four times as in stress-orphan.

Examples:
  diskwright workload fserver --tasks 1,25
  diskwright workload fserver --target memory:ext4,orphans=list --target kernel:ext4"
);

pub(super) const COMPARE: &str = notes!(
    "\
Runs the workloads of a set on every target in turn, interleaved, and writes report.html (plots
included, no scripts) and report.json to --report, and the tables to standard output. Default targets:
memory:ext4, memory:xfs, kernel:ext4, kernel:xfs.

Sets:
  quick   seconds: small numbers, to see that everything works
  seeds   about 15 minutes: the threads' tables
  full    hours: all of them to 10 million files and long runs; needs 24 GB of memory

Examples:
  diskwright workload compare --set quick
  sudo diskwright workload compare --only create,fs-mark --report /tmp/report
  diskwright workload compare --target memory:xfs --target /mnt/scratch"
);
