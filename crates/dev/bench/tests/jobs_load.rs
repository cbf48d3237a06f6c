//! The workloads of the thread about orphans: the same effect on every target, exactly the counted operations, and no
//! unexpected leftovers.

use crate::load;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bench::Error;
use bench::jobs::{Context, Fserver, Job, StressOrphan, StressUnlink};
use ext4::OrphanPolicy;
use load::{Calls, Counting, FilesByName, InMemory, files_of, on_ext4, on_host, on_xfs, run};
use testkit::fs_tree::{FsTree, Rules};
use testkit::model::Model;
use testkit::require;
use vfs::FileSystem;

const SEED: u64 = 42;

const POLICIES: [OrphanPolicy; 4] =
    [OrphanPolicy::WhenNeeded, OrphanPolicy::Always, OrphanPolicy::ListOnly, OrphanPolicy::Off];

fn orphan() -> StressOrphan {
    // Neither a whole number of blocks nor of batches.
    StressOrphan { threads: vec![1, 3], file_bytes: 5003, rounds: 2 }
}

fn unlink() -> StressUnlink {
    StressUnlink { threads: vec![1, 3], files: 9 }
}

/// Files of 6 or 12 blocks.
fn fserver(jobs_per_task: u32) -> Fserver {
    Fserver { tasks: vec![1, 3], jobs_per_task, file_bytes: 3 << 10, pool_bytes: 9 << 10 }
}

fn all() -> Vec<Box<dyn Job>> {
    vec![Box::new(orphan()), Box::new(unlink()), Box::new(fserver(24))]
}

fn on_model(job: &dyn Job, case: usize, seed: u64) -> FsTree {
    let model = Model::new();
    run(job, &job.cases()[case], &mut InMemory(&model), seed);
    let tree = FsTree::of(&model).unwrap();
    // Unreachable files would still exist.
    assert_eq!(model.inode_count(), tree.inodes.len(), "{}", job.name());
    tree
}

#[test]
fn every_target_shows_the_same_afterwards() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for job in all() {
        for (number, case) in job.cases().iter().enumerate() {
            let expected = on_model(&*job, number, SEED);
            // Times of writes are not set by the caller, and holes are not compared.
            let rules = Rules { times: false, holes: false, contents: true };
            let same = |tree: &FsTree, who: &str| {
                let found = expected.differences(tree, rules);
                assert!(found.is_empty(), "{} on {who}:\n{}", job.name(), found.join("\n"));
            };
            for policy in POLICIES {
                same(&on_ext4(&*job, case, SEED, policy).0, &format!("ext4, {policy:?}"));
            }
            same(&on_xfs(&*job, case, SEED).0, "XFS");
            assert_eq!(on_host(&*job, case, SEED), files_of(&expected), "{}", job.name());
        }
    }
}

fn sizes(files: &FilesByName) -> Vec<(&str, usize)> {
    files.iter().filter_map(|(path, bytes)| Some((&path[..], bytes.as_ref()?.len()))).collect()
}

#[test]
fn what_is_left_is_what_was_there_to_work_on() {
    let files = files_of(&on_model(&orphan(), 1, SEED));
    let expected: Vec<_> = (0..3)
        .flat_map(|thread| (0..2).map(move |n| format!("thread-{thread:03}/file-{n:04}")))
        .collect();
    assert_eq!(sizes(&files), expected.iter().map(|path| (&path[..], 0)).collect::<Vec<_>>());

    let files = files_of(&on_model(&unlink(), 1, SEED));
    assert_eq!(files.into_values().collect::<Vec<_>>(), [None, None, None]);

    let files = files_of(&on_model(&fserver(24), 1, SEED));
    // The directory that is read, 3 tasks with a directory of 345 files.
    assert_eq!(files.len(), 1 + 1 + 256 + 3 * (1 + 1 + 345));
    let large: Vec<_> = sizes(&files).into_iter().filter(|&(_, size)| size > 0).collect();
    assert_eq!(large, [("pool", 6 << 10)]);
    assert_eq!(files, files_of(&on_model(&fserver(24), 1, SEED)));
    assert_ne!(files, files_of(&on_model(&fserver(24), 1, SEED + 1)));
}

/// Runs the case with three threads.
fn count(job: &dyn Job) -> Calls {
    let counting = Counting::default();
    run(job, &job.cases()[1], &mut InMemory(&counting), SEED);
    counting.calls
}

macro_rules! assert_calls {
    ($calls:expr, $($name:ident: $count:expr),* $(,)?) => {
        $(assert_eq!(Calls::of(&$calls.$name), $count, stringify!($name));)*
    };
}

#[test]
fn stress_orphan_truncates_to_every_size_once() {
    let job = orphan();
    let files = 3 * 2;
    assert_eq!(job.cases()[1].operations, files * 5003);
    assert_calls!(count(&job),
        truncates: files * 5003,
        truncated_to: files * (5003 * 5002 / 2),
        creates: files, writes: files, opens: 2 * files, closes: 2 * files,
        reads: 0, unlinks: 0, links: 0, file_syncs: 0, syncs: 1);
}

#[test]
fn stress_unlink_syncs_and_removes_every_file() {
    let files = 3 * 9;
    assert_eq!(unlink().cases()[1].operations, files);
    assert_calls!(count(&unlink()),
        creates: files, writes: files, opens: files, closes: files, file_syncs: files,
        unlinks: files, truncates: 0, reads: 0, links: 0);
}

#[test]
fn fserver_does_what_its_mix_says() {
    let (tasks, blocks) = (3, 6);
    // 24 jobs, a tenth of the weights: 3 of each of six kinds, 2 of each of three.
    let (three, two) = (3 * tasks, 2 * tasks);
    assert_eq!(fserver(24).cases()[1].operations, 6 * three + 3 * two);
    let disk_files = 5 * three;
    assert_calls!(count(&fserver(24)),
        writes: 1 + three * blocks * (1 + 1 + 1 + 2 + 1),
        reads: three * blocks * 3,
        creates: 1 + 256 + 345 * tasks + disk_files + three * 43 + two * (1000 + 1),
        truncates: two * 999,
        links: two * (7 + 9 * 7),
        unlinks: disk_files + three * 43 + two * (1 + 9 * 7 + 8),
        // Two files for a copy; three kinds of jobs reopen the file they wrote.
        opens: 1 + disk_files + 4 * three + three * 43 + two * (1000 + 1),
        closes: 1 + disk_files + 4 * three + three * 43 + two * (1000 + 1),
        // The final check lists two directories of each task.
        listings: two * 2 + 2 * tasks,
        attributes: three * 57 + 1,
        syncs: 1, file_syncs: 0);
}

#[test]
fn files_that_were_removed_while_open_give_back_their_space() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let (idle, busy) = (fserver(0), fserver(24));
    assert_eq!(idle.cases()[1].operations, 0);
    for policy in POLICIES {
        let (_, blocks, inodes) = on_ext4(&busy, &busy.cases()[1], SEED, policy);
        let expected = on_ext4(&idle, &idle.cases()[1], SEED, policy);
        assert_eq!((blocks, inodes), (expected.1, expected.2), "ext4, {policy:?}");
    }
    let (_, blocks, inodes) = on_xfs(&busy, &busy.cases()[1], SEED);
    let expected = on_xfs(&idle, &idle.cases()[1], SEED);
    assert_eq!((blocks, inodes), (expected.1, expected.2), "XFS");
}

#[test]
fn what_they_need_is_what_they_use() {
    for job in all() {
        for (number, case) in job.cases().iter().enumerate() {
            let tree = on_model(&*job, number, SEED);
            let bytes: usize = sizes(&files_of(&tree)).iter().map(|&(_, size)| size).sum();
            let (inodes, need) = (tree.inodes.len() as u64 - 1, case.need);
            assert!(need.inodes >= inodes && need.inodes <= 2 * inodes + 8, "{need:?}: {inodes}");
            assert!(need.bytes >= bytes as u64, "{}: {need:?}: {bytes}", job.name());
            assert_eq!((need.threads, need.existing), (case.x as u32, false));
        }
    }
    // At full size: 33 MiB twice, and with 193 tasks 1 MiB and a share of 169 KiB for each and the pool.
    let cases = Fserver::default().cases();
    assert_eq!(
        cases.iter().map(|case| case.x).collect::<Vec<_>>(),
        [1, 25, 49, 73, 97, 121, 145, 169, 193]
    );
    assert_eq!(cases[0].need.bytes, 2 * (33 << 20));
    assert_eq!(cases[8].need.bytes, 194 * ((1024 + 169) << 10));
    assert_eq!(StressOrphan::default().cases()[7].need.bytes, 128 * 16 * 4096);
}

#[test]
fn they_end_soon_after_they_are_told() {
    for job in all() {
        let case = &job.cases()[1];
        let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        let progress = |count| {
            if count > 0 {
                calls.fetch_add(1, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            }
        };
        let model = Model::new();
        let context = Context::new(SEED, &stop, &progress);
        let outcome = job.run(case, &mut InMemory(&model), &context);
        assert!(matches!(outcome, Err(Error::Interrupted)), "{}", job.name());
        // Each thread notices at its own next progress report.
        assert!(calls.load(Ordering::Relaxed) <= 3, "{}", job.name());
        assert!(matches!(
            job.run(case, &mut InMemory(&Model::new()), &context),
            Err(Error::Interrupted)
        ));
    }
}

#[test]
fn a_long_job_ends_before_it_is_done() {
    let job = Fserver { tasks: vec![2], file_bytes: 16 << 20, pool_bytes: 0, jobs_per_task: 24 };
    let counting = Counting { stop_at_write: 3_000, ..Counting::default() };
    let context = Context::new(SEED, &counting.stop, &|_| ());
    let outcome = job.run(&job.cases()[0], &mut InMemory(&counting), &context);
    assert!(matches!(outcome, Err(Error::Interrupted)));
    assert!(Calls::of(&counting.calls.writes) < 3_000 + 2 * 4096);
}

#[test]
fn figures_of_the_thread_are_complete_and_in_order() {
    for job in all() {
        for table in job.published() {
            assert!(!table.rows.is_empty() && table.columns.len() > 1);
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", table.source);
                assert!(row.iter().all(|figure| figure.is_finite() && *figure > 0.0));
            }
            assert!(table.rows.is_sorted_by(|a, b| a[0] < b[0]), "{}", table.source);
        }
    }
    let first = &StressOrphan::default().published()[0];
    let threads: Vec<f64> = first.rows.iter().map(|row| row[0]).collect();
    let ours: Vec<f64> = StressOrphan::default().threads.iter().map(|&n| f64::from(n)).collect();
    assert_eq!(threads, ours);
    let last = &first.rows[7];
    assert!((last[1] / last[2] - 1.555).abs() < 0.001, "the thread's gain at 128 threads");
}

#[test]
fn nothing_to_do_is_done() {
    let none = StressOrphan { threads: vec![2], file_bytes: 0, rounds: 1 };
    let model = Model::new();
    let stop = AtomicBool::new(false);
    let context = Context::new(SEED, &stop, &|_| ());
    let steps = none.run(&none.cases()[0], &mut InMemory(&model), &context).unwrap();
    assert_eq!(steps[0].operations, 0);
    assert_eq!(model.attributes(model.root()).unwrap().links, 4);
}
