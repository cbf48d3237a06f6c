//! Help text in addition to the options.

/// Text at the end of each help page.
macro_rules! notes {
    ($text:literal) => {
        concat!(
            $text,
            "\n
Targets:
  memory:ext4, memory:xfs   a file system of this program's, in memory, with its journal or log
  kernel:ext4, kernel:xfs   the same image, mounted by the kernel for the run; needs root, and is
                            skipped with a message without it
  IMAGE                     an image file, changed only by a directory that is removed in the end
  DIRECTORY                 any mounted file system, likewise
  After memory:FORMAT or kernel:FORMAT, items may follow after commas: features as for build (+name
  or ^name), size=SIZE, and free-index=NAME (memory:xfs) or orphans=when-needed|always|list|off
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
  1    a run failed, or a file system was not as it should be after it; or nothing could run at all
  2    the arguments make no sense, or a target is no image and no directory
  3    an image is damaged
  4    a report could not be written
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP): what was measured until then is reported, and that it is a
       part; a second Ctrl-C ends it at once

Figures of different targets are not the same thing: memory: has no system calls, page cache or
device. Each report says what is not comparable.";

pub(super) const CREATE: &str = notes!(
    "\
From: \"xfs: speed up directory bestfree block scanning\" (2018). Empty files with names of 40
bytes are made in a directory that grows. Timed: the making (mknod), without that of the names;
nothing is synced. Directories of fewer than 100,000 files are filled several times. Default target: memory:xfs. The thread's 10 million files need some 12 GB of memory and are run only if
asked for: --files 10M.

With --free-index, each of the chosen ways of finding room takes part, for every memory:xfs that
does not choose one itself. What the scans take grows with the square of the files.

Examples:
  diskwright workload create --free-index all --files 10k,100k
  diskwright workload create --target memory:ext4 --target kernel:ext4 --rounds 3"
);

pub(super) const REMOVE: &str = notes!(
    "\
With the counts of \"xfs: speed up directory bestfree block scanning\" (2018), and the cold cache
that was asked for in the review of \"xfs: speed up parent pointer operations\" (2025). Timed:
removing directories full of files as rm -rf does, reading them included; not that they were
filled, nor that caches were emptied. Default target: memory:xfs. The thread's 10 million files
need some 12 GB of memory and are run only if asked for: --files 10M.

Caches are emptied by closing and opening a file system, with kernel: by mounting it again. memory:
then still has its device in memory: what is cold costs parsing and checksums, not seeks.

Examples:
  diskwright workload remove --cold
  diskwright workload remove --files 1M --target memory:xfs,^parent --target memory:xfs,+parent"
);

pub(super) const CHANGE: &str = notes!(
    "\
What create and remove leave out. Each thread fills a directory as create does; then each file gets
other permissions (chmod), a second name there (link), another first name there (rename), and
that one in another directory (move). Timed: each of the four, in the order in which the files were
made; nothing is synced while the clock runs. Default target: memory:xfs.

Examples:
  diskwright workload change --target memory:ext4 --target kernel:ext4 --rounds 3
  diskwright workload change --files 100k --threads 2"
);

pub(super) const FS_MARK: &str = notes!(
    "\
From: \"xfs: speed up parent pointer operations\" (2025), which ran
  fs_mark -D 10000 -S 0 -n 100000 -s 0 -L 8 -d DIRECTORY… (one for each of 40 threads)
and removed everything. Operations and names are those of fs_mark 3.3; the time that it takes
itself is left out. Timed: the creation, and the removal of files and directories, on the wall
and of the processor. Default target: memory:xfs. An XFS of which nothing is said about parent
pointers takes part twice, without (^parent) and with (+parent), and the overhead is reported.

The thread made 32 million files on 40 processors; here it is 800,000 for each thread, with
about 1 KB of memory for each file.

Examples:
  diskwright workload fs-mark -n 10k -L 2
  diskwright workload fs-mark -t 4 --cold --target memory:xfs --target kernel:xfs --rounds 3"
);

pub(super) const FIND: &str = notes!(
    "\
From: \"ext4: use kmem_cache for short fname allocation in readdir\" (2025), which ran
  find ./linux -name notfoundatall
100 times. A tree is listed, entry by entry, for a name that is not there. Timed: the first
walk, which finds cold caches, and all others; of this program's file systems it is also told
where the time goes and, if it was built with --features allocations, how much they allocate.
Default target: memory:ext4, with a tree like that of Linux, of 87,000 files that is made up;
images and directories are walked as they are.

Examples:
  diskwright workload find --tree /usr/src/linux --target memory:ext4 --target kernel:ext4
  diskwright workload find --target /usr --walks 10
  diskwright workload find --target root.img"
);

pub(super) const STRESS_ORPHAN: &str = notes!(
    "\
From: \"ext4: Speedup ext4 orphan inode handling\" (2015). Its program was never published, only
what it does: truncate files byte by byte from N processes. Here they are threads; 16 files of 4
KiB for each are this program's choice. Timed: the truncations. Default target: memory:ext4.

A memory:ext4 of which nothing is said about orphans takes part four times: orphans=off records
none, which no safe file system can do and is the limit that others are measured against; list,
on the linked list, and always, in the orphan file, do as kernels do; when-needed is what this
program does by itself. A kernel:ext4 takes part without and with orphan_file.

Examples:
  diskwright workload stress-orphan --threads 1,16
  diskwright workload stress-orphan --target memory:ext4 --target kernel:ext4 --rounds 5"
);

pub(super) const STRESS_UNLINK: &str = notes!(
    "\
The sibling of stress-orphan: each thread makes a file, writes 16 KiB, syncs, closes and unlinks
it, 100 times. Timed: all of that; the syncs write to a device in memory. Default target: memory:ext4, four times as in stress-orphan.

Examples:
  diskwright workload stress-unlink --threads 1,16 --target memory:ext4 --target kernel:ext4"
);

pub(super) const FSERVER: &str = notes!(
    "\
From: \"ext4: Speedup ext4 orphan inode handling\" (2015), which ran reaim's new_fserver without
its calls of sync. Kept are the jobs that work on files, 240 of 580 hits, with their weights;
those of processor, memory and network are left out, so that only the shape of the figures can
be compared with reaim's. Timed: all jobs of all tasks. Default target: memory:ext4, four times
as in stress-orphan.

Examples:
  diskwright workload fserver --tasks 1,25
  diskwright workload fserver --target memory:ext4,orphans=list --target kernel:ext4"
);

pub(super) const COMPARE: &str = notes!(
    "\
Runs the workloads of a set on every target in turn, interleaved, and writes report.html (with
plots, without scripts) and report.json into the directory of --report, and tables to standard
output.
Default targets: memory:ext4, memory:xfs, kernel:ext4, kernel:xfs.

Sets:
  quick   less than a minute, 1 round: to see that everything works
  seeds   about 15 minutes to an hour, 3 to 12 rounds: the threads' tables to a million files
  full    hours, 5 to 20 rounds: to 10 million files, and long runs; needs 24 GB of memory

Examples:
  diskwright workload compare --set quick
  sudo diskwright workload compare --only create,fs-mark --report /tmp/report
  diskwright workload compare --target memory:xfs --target /mnt/scratch"
);
