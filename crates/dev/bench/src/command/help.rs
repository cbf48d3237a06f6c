//! Help text in addition to the options.

/// Text at the end of each help page.
macro_rules! notes {
    ($text:literal) => {
        concat!(
            $text,
            "\n
Targets:
  memory:ext4, memory:xfs   a Diskwright file system in memory, with its journal or log
  kernel:ext4, kernel:xfs   the same image, mounted by the kernel for the run; without root, it is
                            skipped with a message
  IMAGE                     an image file; the workload runs in a directory, which is then removed
  DIRECTORY                 a directory of any mounted file system, used like IMAGE

After memory:FORMAT or kernel:FORMAT, options can follow, separated by commas: features as for build (+name or \
^name), size=SIZE, defer-creates=on (memory:), free-index=NAME (memory:xfs) and orphans=when-needed|always|list|off (memory:ext4)."
        )
    };
}

pub(crate) const ALL: &str = "\
Examples:
  diskwright-bench create
  diskwright-bench fs-mark --target memory:xfs --target kernel:xfs
  diskwright-bench compare --set quick

Exit status:
  0    success; a message names each skipped target
  1    a run failed, a file system was inconsistent afterwards, or no target could run
  2    invalid arguments, or a target is neither an image nor a directory
  3    an image is damaged
  4    a report could not be written
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP); the results so far are reported and marked as
       partial; a second Ctrl-C ends the program at once

Results of different target types are not directly comparable: memory: has no system calls, page cache or device. Each \
report lists the differences.";

pub(super) const CREATE: &str = notes!(
    "\
Source: \"xfs: speed up directory bestfree block scanning\" (2018). Creates empty files with 40-byte names in one directory. \
Timed: the creation (mknod), without the generation of names; nothing is synced. Directories with fewer than 100,000 files \
are filled several times. Default target: memory:xfs. The 10 million files of the original need about 12 GB of memory and \
run only on request: --files 10M.

With --free-index, every memory:xfs target without its own free-index runs once for each selected search. The time of \
the scans grows with the square of the number of files.

Examples:
  diskwright-bench create --free-index all --files 10k,100k
  diskwright-bench create --target memory:ext4 --target kernel:ext4 --rounds 3"
);

pub(super) const REMOVE: &str = notes!(
    "\
Source: the file counts of \"xfs: speed up directory bestfree block scanning\" (2018), and the cold cache requested in the \
review of \"xfs: speed up parent pointer operations\" (2025). Timed: the removal of full directories, as rm -rf does it, \
including the reads; not the preparation. Default target: memory:xfs. The 10 million files of the original need about 12 GB \
of memory and run only on request: --files 10M.

Caches are emptied by closing and reopening the file system; for kernel: targets, by remounting it. The device of memory: \
targets stays in memory, so cold caches cost parsing and checksums there, but no seeks.

Examples:
  diskwright-bench remove --cold
  diskwright-bench remove --files 1M --target memory:xfs,^parent --target memory:xfs,+parent"
);

pub(super) const CHANGE: &str = notes!(
    "\
Covers operations that create and remove do not. Each thread fills a directory as create does. Then each file gets new \
permissions (chmod), a second name (link), and a new first name (rename), which then moves to another directory (move). \
Timed: each of the four operations, in the order of creation; nothing is synced meanwhile. Default target: memory:xfs.

Examples:
  diskwright-bench change --target memory:ext4 --target kernel:ext4 --rounds 3
  diskwright-bench change --files 100k --threads 2"
);

pub(super) const FS_MARK: &str = notes!(
    "\
Source: \"xfs: speed up parent pointer operations\" (2025), which ran

  fs_mark -D 10000 -S 0 -n 100000 -s 0 -L 8 -d DIRECTORY… (one for each of 40 threads)

and removed everything. Operations and names are those of fs_mark 3.3, without its own overhead. Timed: the creation, and \
the removal of files and directories, in wall-clock and processor time. Default target: memory:xfs. An XFS target without a \
parent option runs twice, without (^parent) and with (+parent) parent pointers, and the overhead is reported.

The original created 32 million files on 40 processors. This workload creates 800,000 files for each thread, with about \
1 KB of memory for each file.

Examples:
  diskwright-bench fs-mark -n 10k -L 2
  diskwright-bench fs-mark -t 4 --cold --target memory:xfs --target kernel:xfs --rounds 3"
);

pub(super) const FIND: &str = notes!(
    "\
Source: \"ext4: use kmem_cache for short fname allocation in readdir\" (2025), which ran the following command 100 times:

  find ./linux -name notfoundatall

Walks a tree, entry by entry, in search of a name that does not exist. Timed: the first walk, with cold caches, and all \
other walks. For memory: targets, the report also shows where the time is spent and, in builds with --features allocations, \
how much memory is allocated. Default target: memory:ext4, with a generated tree like that of Linux (87,000 files). Images \
and directories are walked as they are.

Examples:
  diskwright-bench find --tree /usr/src/linux --target memory:ext4 --target kernel:ext4
  diskwright-bench find --target /usr --walks 10
  diskwright-bench find --target root.img"
);

pub(super) const STRESS_ORPHAN: &str = notes!(
    "\
Source: \"ext4: Speedup ext4 orphan inode handling\" (2015). Its program was not published, only its description: truncate \
files byte by byte from N processes. This workload uses threads, with 16 files of 4 KiB each by default. Timed: the \
truncations. Default target: memory:ext4.

A memory:ext4 target without an orphans option runs four times. off records no orphans, which is unsafe and gives the upper \
limit of speed. list uses the linked list and always the orphan file, as kernels do. when-needed is the default of \
Diskwright. A kernel:ext4 target runs without and with orphan_file.

Examples:
  diskwright-bench stress-orphan --threads 1,16
  diskwright-bench stress-orphan --target memory:ext4 --target kernel:ext4 --rounds 5"
);

pub(super) const STRESS_UNLINK: &str = notes!(
    "\
Source: the same discussion as stress-orphan. Each thread creates a file, writes 16 KiB, syncs, closes and unlinks it, 100 \
times by default. Timed: all of these operations; the syncs write to a device in memory. Default target: memory:ext4, four \
times as in stress-orphan.

Examples:
  diskwright-bench stress-unlink --threads 1,16 --target memory:ext4 --target kernel:ext4"
);

pub(super) const FSERVER: &str = notes!(
    "\
Source: \"ext4: Speedup ext4 orphan inode handling\" (2015), which ran new_fserver of reaim without its sync calls. This \
workload includes the jobs on files (240 of 580 hits) with their weights, but not those for processor, memory and network. \
Only the shape of the results is therefore comparable with reaim. Timed: all jobs of all tasks. Default target: \
memory:ext4, four times as in stress-orphan.

Examples:
  diskwright-bench fserver --tasks 1,25
  diskwright-bench fserver --target memory:ext4,orphans=list --target kernel:ext4"
);

pub(super) const COMPARE: &str = notes!(
    "\
Runs the workloads of a set on all targets, interleaved. Writes report.html (with plots, without scripts) and report.json \
to the directory of --report, and tables to standard output. Default targets: memory:ext4, memory:xfs, kernel:ext4, \
kernel:xfs.

Sets:
  quick   less than a minute, 1 round: a functional test
  seeds   about 15 minutes to an hour, 3 to 12 rounds: up to a million files
  full    hours, 5 to 20 rounds: up to 10 million files, and long runs; needs 24 GB of memory

Examples:
  diskwright-bench compare --set quick
  sudo diskwright-bench compare --only create,fs-mark --report /tmp/report
  diskwright-bench compare --target memory:xfs --target /mnt/scratch"
);
