//! The workloads that create and remove names: their results, on all kinds of file systems and on faulty ones.

use crate::common;

use std::collections::BTreeMap;

use bench::contestant::Session;
use bench::jobs::{Change, Create, FILES_PER_STEP, FsMark, Job, Remove};
use bench::{Error, with_target};
use testkit::fs_tree::{FsTree, Rules};
use testkit::model::Model;
use vfs::FileType;

use common::tampered::{Tampered, Wrong};
use common::{InMemory, OnHost, Reopened, ext4, only_case, run, run_and_stop, xfs};

const RULES: Rules = Rules { times: false, holes: false, contents: true };

/// A number with one directory for each thread.
const FILES: u64 = FILES_PER_STEP / 5 * 2;

fn create() -> Create {
    Create { files: vec![FILES], threads: 2, fsync: false }
}

fn remove(cold: bool) -> Remove {
    Remove { files: vec![FILES], threads: 2, cold }
}

/// A loop takes slightly more than a second, so that it ends with another subdirectory than it began with.
fn fs_mark(cold: bool) -> FsMark {
    FsMark { threads: 2, files: 14_000, loops: 2, subdirectories: 7, cold, rename: false }
}

/// Returns the paths in the form of [`OnHost::paths`].
fn paths(tree: &FsTree) -> Vec<String> {
    let paths = tree.paths.iter().filter(|(path, _)| !path.is_empty());
    let show = |(path, &place): (&Vec<u8>, &usize)| {
        let is_directory = tree.inodes[place].attributes.file_type == FileType::Directory;
        let slash = if is_directory { "/" } else { "" };
        format!("{}{slash}", std::str::from_utf8(path).unwrap())
    };
    let mut paths: Vec<_> = paths.map(show).collect();
    paths.sort();
    paths
}

/// Returns the number of files of each directory.
fn counts(tree: &FsTree) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for path in paths(tree) {
        if let Some((dir, "")) = path.rsplit_once('/') {
            counts.entry(dir.to_owned()).or_default();
        } else if let Some((dir, name)) = path.rsplit_once('/') {
            assert_eq!(name.len(), 40, "{name}");
            *counts.entry(dir.to_owned()).or_default() += 1;
        }
    }
    counts
}

fn expected<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.into_iter().map(|(dir, count)| (dir.to_owned(), count)).collect()
}

#[track_caller]
fn assert_same(expected: &FsTree, found: &FsTree) {
    let differences = expected.differences(found, RULES);
    assert!(differences.is_empty(), "{} differences: {}", differences.len(), differences[0]);
}

#[test]
fn create_makes_the_same_files_everywhere() {
    let mut model = InMemory::new(Model::new());
    let steps = run(&create(), &mut model, 1).unwrap();
    let tree = model.tree();
    assert_eq!(counts(&tree), expected(["0000", "0001"].map(|name| (name, FILES as usize))));
    assert_eq!((steps.len(), steps[0].name, steps[0].operations), (1, "create", 2 * FILES));
    for mut session in [InMemory::new(ext4()), InMemory::new(xfs())] {
        run(&create(), &mut session, 1).unwrap();
        assert_same(&tree, &session.tree());
    }
    let mut host = OnHost::new();
    run(&create(), &mut host, 1).unwrap();
    assert!(paths(&tree) == host.paths(), "the host has other paths");
}

#[test]
fn another_seed_gives_other_names_and_small_directories_are_repeated() {
    let files = FILES_PER_STEP / 5;
    let job = Create { files: vec![files], threads: 1, fsync: false };
    let trees = [1, 1, 2].map(|seed| {
        let mut session = InMemory::new(Model::new());
        let steps = run(&job, &mut session, seed).unwrap();
        assert_eq!(steps[0].operations, FILES_PER_STEP);
        let (one, all) = (&steps[0].extras[0], steps[0].cost.wall.as_secs_f64());
        assert_eq!((one.name, one.unit), ("one directory", "s"));
        assert!((one.value * 5.0 - all).abs() < 1e-6, "{one:?} of {all}");
        session.tree()
    });
    let names = ["0000", "0001", "0002", "0003", "0004"];
    assert_eq!(counts(&trees[0]), expected(names.map(|name| (name, files as usize))));
    assert_same(&trees[0], &trees[1]);
    assert_ne!(paths(&trees[0]), paths(&trees[2]));
}

#[test]
fn files_that_are_made_durable_one_by_one_are_the_same_files() {
    let (mut plain, mut synced) = (InMemory::new(Model::new()), InMemory::new(Model::new()));
    run(&create(), &mut plain, 1).unwrap();
    let steps = run(&Create { fsync: true, ..create() }, &mut synced, 1).unwrap();
    assert_eq!(steps[0].name, "create, fsync");
    assert_same(&plain.tree(), &synced.tree());
}

#[test]
fn every_file_is_renamed_where_it_is_and_into_one_directory() {
    for subdirectories in [0, 7] {
        let job = FsMark { rename: true, subdirectories, files: 2000, ..fs_mark(false) };
        for mut session in [InMemory::watching(Model::new()), InMemory::watching(xfs())] {
            let steps = run(&job, &mut session, 1).unwrap();
            let names: Vec<_> = steps.iter().map(|step| (step.name, step.operations)).collect();
            assert_eq!(names, ["create", "rename", "move", "remove"].map(|name| (name, 8000)));
            assert_eq!(paths(&session.tree()), [""; 0]);
        }
    }
}

#[test]
fn fs_mark_makes_the_same_files_everywhere_and_removes_them() {
    let mut trees = Vec::new();
    for mut session in
        [InMemory::watching(Model::new()), InMemory::watching(ext4()), InMemory::watching(xfs())]
    {
        let steps = run(&fs_mark(true), &mut session, 1).unwrap();
        let names: Vec<_> = steps.iter().map(|step| (step.name, step.operations)).collect();
        let expected = ["create", "remove", "remove, cold cache"].map(|name| (name, 56_000));
        assert_eq!(names, expected);
        assert_eq!(paths(&session.tree()), [""; 0]);
        trees.extend(session.seen);
    }
    assert!(trees.iter().all(|trees| trees.len() == 2 && trees[0].paths.len() == 1));
    // The first loop starts at second 1,700,000,000, with remainder 6, the second one a second later.
    let one = expected([
        ("0000", 0),
        ("0000/00", 14_000),
        ("0000/06", 14_000),
        ("0001", 0),
        ("0001/00", 14_000),
        ("0001/06", 14_000),
    ]);
    assert_eq!(counts(&trees[0][1]), one);
    assert_same(&trees[0][1], &trees[1][1]);
    assert_same(&trees[0][1], &trees[2][1]);
}

#[test]
fn fs_mark_says_how_fast_its_loops_were() {
    let steps = run(&fs_mark(false), &mut InMemory::new(Model::new()), 1).unwrap();
    assert_eq!(steps.len(), 2);
    let names: Vec<_> = steps[0].extras.iter().map(|extra| (extra.name, extra.unit)).collect();
    assert_eq!(names, [("slowest loop", "files/s"), ("median loop", "files/s")]);
    let whole = 56_000.0 / steps[0].cost.wall.as_secs_f64();
    let (slowest, fastest) = (steps[0].extras[0].value, steps[0].extras[1].value);
    assert!(slowest <= whole * 1.001 && whole <= fastest * 1.001, "{slowest} {whole} {fastest}");
}

#[test]
fn fs_mark_without_subdirectories_puts_files_into_the_directories() {
    let job = FsMark { subdirectories: 0, files: 5, ..fs_mark(true) };
    let mut session = InMemory::watching(Model::new());
    run(&job, &mut session, 1).unwrap();
    let seen = session.seen.unwrap();
    assert_eq!(counts(&seen[1]), expected([("0000", 10), ("0001", 10)]));
}

#[test]
fn fs_mark_runs_on_the_host() {
    let mut host = OnHost::new();
    let steps = run(&fs_mark(false), &mut host, 1).unwrap();
    assert_eq!(steps.iter().map(|step| step.name).collect::<Vec<_>>(), ["create", "remove"]);
    assert_eq!(host.paths(), [""; 0]);
}

fn inodes_used(session: &InMemory) -> u64 {
    let totals = session.fs.statfs().unwrap();
    totals.inodes - totals.inodes_free
}

#[test]
fn change_gives_files_other_names_and_permissions_everywhere() {
    let job = Change { files: vec![5000], threads: 2 };
    let mut model = InMemory::new(Model::new());
    let steps = run(&job, &mut model, 1).unwrap();
    let names: Vec<_> = steps.iter().map(|step| (step.name, step.operations)).collect();
    assert_eq!(names, ["chmod", "link", "rename", "move"].map(|name| (name, 10_000)));
    let tree = model.tree();
    let directories = ["0000", "0000-moved", "0001", "0001-moved"];
    assert_eq!(counts(&tree), expected(directories.map(|name| (name, 5000))));
    // Each file exists once, with both of its names.
    let files = tree.inodes.iter().map(|inode| &inode.attributes);
    let files: Vec<_> = files.filter(|it| it.file_type == FileType::Regular).collect();
    assert_eq!(files.len(), 10_000);
    assert!(files.iter().all(|it| (it.links, it.permissions) == (2, 0o640)));
    for mut session in [InMemory::new(ext4()), InMemory::new(xfs())] {
        run(&job, &mut session, 1).unwrap();
        assert_same(&tree, &session.tree());
    }
    let mut host = OnHost::new();
    run(&job, &mut host, 1).unwrap();
    assert!(paths(&tree) == host.paths(), "the host has other paths");
}

#[test]
fn removal_leaves_nothing() {
    let model = Model::new();
    let empty = FsTree::of(&model).unwrap();
    for mut session in [InMemory::new(model), InMemory::new(ext4()), InMemory::new(xfs())] {
        let used = inodes_used(&session);
        let steps = run(&remove(false), &mut session, 1).unwrap();
        assert_eq!((steps.len(), steps[0].name, steps[0].operations), (1, "remove", 2 * FILES));
        assert_same(&empty, &session.tree());
        assert_eq!(inodes_used(&session), used);
    }
    let mut host = OnHost::new();
    run(&remove(false), &mut host, 1).unwrap();
    assert_eq!(host.paths(), [""; 0]);
}

#[test]
fn more_than_is_read_at_once_is_removed() {
    let job = Remove { files: vec![210_000], threads: 1, cold: false };
    let mut session = InMemory::new(xfs());
    assert_eq!(run(&job, &mut session, 1).unwrap()[0].operations, 210_000);
    assert_eq!(paths(&session.tree()), [""; 0]);
}

#[test]
fn a_cold_cache_is_a_step_of_its_own() {
    let mut watching = InMemory::watching(Model::new());
    let mut reopened = Reopened::new();
    for session in [&mut watching as &mut dyn Session, &mut reopened] {
        let steps = run(&remove(true), session, 1).unwrap();
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        assert_eq!(names, ["remove", "remove, cold cache"]);
        assert!(steps.iter().all(|step| step.extras.iter().all(|e| e.name != "cold runs")));
    }
    // Everything existed when caches were dropped, the same as in a run without removal.
    let mut filled = InMemory::new(Model::new());
    run(&create(), &mut filled, 1).unwrap();
    assert_same(&filled.tree(), &watching.seen.unwrap()[1]);
    let fs = reopened.fs.unwrap();
    assert_eq!(paths(&FsTree::of(&fs).unwrap()), [""; 0]);
    fs.close().unwrap();
}

#[test]
fn no_cold_cache_is_told() {
    for job in [&remove(true) as &dyn Job, &fs_mark(true)] {
        let steps = run(job, &mut InMemory::new(Model::new()), 1).unwrap();
        let last = steps.last().unwrap();
        assert_eq!(last.name, "remove");
        assert!(last.extras.iter().any(|e| e.name == "cold runs" && e.value == 0.0), "{last:?}");
    }
}

#[test]
fn workloads_stop_soon_when_asked_to() {
    let remove = Remove { threads: 1, files: vec![60_000], ..remove(false) };
    let fs_mark = fs_mark(false);
    let change = Change { files: vec![60_000], threads: 1 };
    let half = |job: &dyn Job| only_case(job).operations / 2;
    // While files are created and while they are removed.
    for (job, after) in [
        (&create() as &dyn Job, 10_000),
        (&remove, 10_000),
        (&remove, half(&remove) + 10_000),
        (&fs_mark, 10_000),
        (&fs_mark, half(&fs_mark) + 10_000),
        (&change, 10_000),
        (&change, half(&change) + 10_000),
    ] {
        let (result, done) = run_and_stop(job, &mut InMemory::new(Model::new()), after);
        assert!(matches!(result, Err(Error::Interrupted)), "{}: {result:?}", job.name());
        assert!(done >= after && done < after + 5_000, "{}: {done} of {after}", job.name());
    }
}

#[test]
fn a_change_that_is_wrong_is_found_out() {
    let job = Change { files: vec![5000], threads: 2 };
    let result = run(&job, &mut InMemory::new(Tampered::new(Wrong::Unlisted)), 1);
    assert!(matches!(result, Err(Error::Wrong(_))), "{result:?}");
    // The file does not exist under its expected name.
    let result = run(&job, &mut InMemory::new(Tampered::new(Wrong::Renamed)), 1);
    assert!(matches!(result, Err(Error::FileSystem { .. })), "{result:?}");
}

#[test]
fn wrong_file_systems_are_found_out() {
    let jobs: [&dyn Job; 3] = [&create(), &remove(false), &fs_mark(false)];
    for wrong in [Wrong::Unlisted, Wrong::Renamed, Wrong::Kept, Wrong::DirectoryKept] {
        for job in jobs {
            if job.name() == "create" && matches!(wrong, Wrong::Kept | Wrong::DirectoryKept) {
                continue;
            }
            let result = run(job, &mut InMemory::new(Tampered::new(wrong)), 1);
            assert!(
                matches!(result, Err(Error::Wrong(_))),
                "{wrong:?}, {}: {result:?}",
                job.name()
            );
        }
    }
}

/// Checks the removal of a directory in parts, each read and then removed.
fn take_apart<T: bench::target::Target>(target: &T) -> Vec<(Vec<u8>, u64)> {
    let top = target.top().unwrap();
    target.make_dir(&top, b"d").unwrap();
    let dir = target.open_dir(&top, b"d").unwrap();
    for number in 0..5_000 {
        target.make_file(&dir, format!("file {number:05}").as_bytes()).unwrap();
    }
    let mut listing = target.start_listing(&dir).unwrap();
    let (mut all, mut goes_on) = (Vec::new(), true);
    while goes_on {
        let start = all.len();
        goes_on = target
            .list_part(&mut listing, 100, &mut |listed| {
                assert!(listed.file_type.is_none_or(|found| found == FileType::Regular));
                all.push((listed.name.to_vec(), listed.ino));
                Ok(())
            })
            .unwrap();
        assert!(!goes_on || (100..2_000).contains(&(all.len() - start)), "{start}: {}", all.len());
        all[start..].iter().for_each(|(name, _)| target.unlink(&dir, name).unwrap());
    }
    target.list(&dir, &mut |name, _| panic!("{} is left", name.escape_ascii())).unwrap();
    all
}

#[test]
fn a_directory_is_listed_in_parts_while_entries_go() {
    let mut sessions: Vec<Box<dyn Session>> = vec![Box::new(OnHost::new())];
    sessions.push(Box::new(InMemory::new(Model::new())));
    sessions.push(Box::new(InMemory::new(ext4())));
    sessions.push(Box::new(InMemory::new(xfs())));
    for session in sessions {
        let mut all = with_target!(session.target(), target => take_apart(target));
        all.sort();
        let names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
        let expected: Vec<_> = (0..5_000).map(|n| format!("file {n:05}").into_bytes()).collect();
        assert!(names == expected, "not each entry once");
        let inodes: std::collections::BTreeSet<_> = all.iter().map(|(_, ino)| ino).collect();
        assert_eq!(inodes.len(), 5_000);
    }
}
