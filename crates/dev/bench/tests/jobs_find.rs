//! The workload `find`: the same tree on every target, complete walks, and detection of faults.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bench::Error;
use bench::contestant::Session;
use bench::jobs::{Context, Find, FindTree, Job, TimedStep};
use tempfile::TempDir;
use testkit::fs_tree::{FsTree, Rules};
use testkit::model::Model;
use vfs::{FileSystem, FileType, NewInode};

use crate::common::{AtPath, InMemory, ext4, ext4_with, run, xfs};

const FILES: u64 = 3_000;
const DIRECTORIES: u64 = FILES / 15;
const GENERATED: FindTree = FindTree::Generated { files: FILES };
const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 0, gid: 0, time: bench::target::TIME, parent_time: None };

fn extra(step: &TimedStep, name: &str) -> f64 {
    let found = step.extras.iter().find(|extra| extra.name == name);
    found.unwrap_or_else(|| panic!("{} has no {name}", step.name)).value
}

fn names(steps: &[TimedStep]) -> Vec<&str> {
    steps.iter().map(|step| step.name).collect()
}

/// The model, ext4 and XFS.
fn all_in_memory() -> [Arc<dyn FileSystem>; 3] {
    [Arc::new(Model::new()), Arc::new(ext4()), Arc::new(xfs())]
}

#[test]
fn all_targets_count_the_same() {
    let find = Find { tree: GENERATED, walks: 4 };
    let home = TempDir::new().unwrap();
    let mut sessions: Vec<Box<dyn Session>> = vec![Box::new(AtPath::new(home.path()))];
    for memory in all_in_memory() {
        sessions.push(Box::new(InMemory::sharing(&memory)));
    }
    for session in &mut sessions {
        let steps = run(&find, &mut **session, 1).unwrap();
        assert_eq!(names(&steps)[..2], ["walk, first", "walk, cached"]);
        let entries = FILES + DIRECTORIES;
        assert_eq!([steps[0].operations, steps[1].operations], [entries, 3 * entries]);
        for step in &steps[..2] {
            assert_eq!(extra(step, "entries"), entries as f64);
            assert_eq!(extra(step, "directories"), DIRECTORIES as f64);
            let nanos = step.cost.wall.as_nanos() as f64 / step.operations as f64;
            assert_eq!(extra(step, "time"), nanos);
        }
    }
}

#[test]
fn our_formats_say_where_the_time_goes_and_allocate_nothing() {
    let find = Find { tree: GENERATED, walks: 4 };
    let all =
        [InMemory::watching(Model::new()), InMemory::measured(ext4()), InMemory::measured(xfs())];
    for (mut memory, name) in all.into_iter().zip(["model", "ext4", "xfs"]) {
        let (is_model, is_ext4) = (name == "model", name == "ext4");
        let steps = run(&find, &mut memory, 1).unwrap();
        if is_model {
            assert_eq!(names(&steps), ["walk, first", "walk, cached"]);
            assert!(extra(&steps[1], "allocations") > 0.1, "the model allocates, and it is seen");
            continue;
        }
        assert_eq!(names(&steps), ["walk, first", "walk, cached", "walk, profiled"]);
        assert_eq!(extra(&steps[1], "allocations"), 0.0);
        let profiled = &steps[2];
        assert_eq!(profiled.operations, 3 * (FILES + DIRECTORIES));
        assert!(extra(profiled, "reading") > 0.0 && extra(profiled, "delivering") > 0.0);
        for name in ["hashing", "sorting"] {
            assert_eq!(extra(profiled, name) > 0.0, is_ext4, "{name}");
        }
        let parts = ["reading", "hashing", "sorting", "delivering", "elsewhere"];
        let sum: f64 = parts.map(|name| extra(profiled, name)).iter().sum();
        assert!((sum / extra(profiled, "time") - 1.0).abs() < 0.01, "{sum}");
        let blocks = extra(profiled, "blocks");
        assert!(blocks > 0.005 && blocks < 0.2, "{blocks}");
    }
}

#[test]
fn caches_that_stay_are_not_called_cold() {
    let find = Find { tree: GENERATED, walks: 0 };
    let mut session = InMemory::measured(xfs()).uncached();
    let steps = run(&find, &mut session, 1).unwrap();
    assert_eq!(names(&steps), ["walk, first, not cold", "walk, profiled"]);
    assert_eq!(steps[0].operations, FILES + DIRECTORIES);
}

/// Returns the paths below a host directory, and whether they are directories.
fn host_paths(top: &Path) -> BTreeMap<Vec<u8>, bool> {
    fn visit(dir: &Path, path: &[u8], paths: &mut BTreeMap<Vec<u8>, bool>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [path, slash, entry.file_name().as_bytes()].concat();
            let is_directory = entry.file_type().unwrap().is_dir();
            if is_directory {
                visit(&entry.path(), &path, paths);
            }
            paths.insert(path, is_directory);
        }
    }
    let mut paths = BTreeMap::new();
    visit(top, b"", &mut paths);
    paths
}

fn paths_of(tree: &FsTree) -> BTreeMap<Vec<u8>, bool> {
    let is_directory = |path| tree.get(path).unwrap().attributes.file_type == FileType::Directory;
    let below = tree.paths.keys().filter(|path| !path.is_empty());
    below.map(|path| (path.clone(), is_directory(path))).collect()
}

#[test]
fn all_targets_get_the_same_tree() {
    let find = Find { tree: GENERATED, walks: 1 };
    let trees = all_in_memory().map(|memory| {
        run(&find, &mut InMemory::sharing(&memory), 1).unwrap();
        FsTree::of(&*memory).unwrap()
    });
    let rules = Rules { times: false, ..Rules::default() };
    for tree in &trees[1..] {
        assert_eq!(trees[0].differences(tree, rules), Vec::<String>::new());
    }
    // Plus the directory of the tree.
    assert_eq!(trees[0].paths.len() as u64, 1 + 1 + FILES + DIRECTORIES);
    assert!(trees[0].inodes.iter().all(
        |inode| inode.attributes.size == 0 || inode.attributes.file_type == FileType::Directory
    ));

    let home = TempDir::new().unwrap();
    run(&find, &mut AtPath::new(home.path()), 1).unwrap();
    assert!(host_paths(home.path()) == paths_of(&trees[0]));

    let other: Arc<dyn FileSystem> = Arc::new(Model::new());
    run(&find, &mut InMemory::sharing(&other), 2).unwrap();
    assert!(paths_of(&FsTree::of(&*other).unwrap()) != paths_of(&trees[0]));
}

#[test]
fn a_tree_like_another_has_its_names() {
    let like = TempDir::new().unwrap();
    let top = like.path();
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(top.join("a/b/file"), "contents").unwrap();
    fs::write(top.join("n".repeat(255)), "").unwrap();
    fs::write(top.join(OsStr::from_bytes(b"not \xff text")), "").unwrap();
    std::os::unix::fs::symlink("a", top.join("link")).unwrap();
    let expected: BTreeMap<Vec<u8>, bool> = [(b"linux".to_vec(), true)]
        .into_iter()
        .chain(host_paths(top).into_iter().map(|(path, is)| ([b"linux/", &path[..]].concat(), is)))
        .collect();
    let find = Find { tree: FindTree::Like(top.into()), walks: 2 };
    for memory in all_in_memory() {
        let steps = run(&find, &mut InMemory::sharing(&memory), 1).unwrap();
        assert_eq!([extra(&steps[0], "entries"), extra(&steps[0], "directories")], [8.0, 4.0]);
        assert_eq!(paths_of(&FsTree::of(&*memory).unwrap()), expected);
    }
    let home = TempDir::new().unwrap();
    run(&find, &mut AtPath::new(home.path()), 1).unwrap();
    assert_eq!(host_paths(home.path()), expected);

    // Created inside itself, it would never end.
    let inside = top.join("empty");
    let outcome = run(&find, &mut AtPath::new(&inside), 1);
    assert!(matches!(outcome, Err(Error::Unsupported(_))), "{outcome:?}");
    assert_eq!(fs::read_dir(inside).unwrap().count(), 0);

    let missing = Find { tree: FindTree::Like(top.join("missing")), walks: 1 };
    let outcome = run(&missing, &mut InMemory::new(Model::new()), 1);
    assert!(matches!(outcome, Err(Error::Host { .. })), "{outcome:?}");
}

#[test]
fn what_is_there_is_walked_from_the_top() {
    let find = Find { tree: FindTree::Existing, walks: 3 };
    for memory in all_in_memory() {
        let fs = &memory;
        let lost_and_found = fs.lookup(fs.root(), b"lost+found").is_ok();
        let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
        fs.mkdir(dir, b"dir", &NEW).unwrap();
        fs.create(dir, b"file", &NEW).unwrap();
        let mut session = InMemory::sharing(&memory);
        let steps = run(&find, &mut session, 1).unwrap();
        let entries = 3 + u64::from(lost_and_found);
        assert_eq!([steps[0].operations, steps[1].operations], [entries, 2 * entries]);

        fs.create(dir, b"notfoundatall", &NEW).unwrap();
        let outcome = run(&find, &mut session, 1);
        assert!(matches!(&outcome, Err(Error::Wrong(what)) if what.contains("notfoundatall")));
    }
}

#[test]
fn entries_without_types_are_looked_at() {
    let home = TempDir::new().unwrap();
    let find = Find { tree: GENERATED, walks: 2 };
    let mut plain = InMemory::new(ext4_with("-filetype"));
    let expected = run(&find, &mut AtPath::new(home.path()), 1).unwrap();
    let found = run(&find, &mut plain, 1).unwrap();
    for name in ["entries", "directories"] {
        assert_eq!(extra(&found[1], name), extra(&expected[1], name));
    }
    let fs = &plain.fs;
    let mut types = 0;
    fs.readdir(fs.root(), vfs::Cookie(0), &mut |entry| {
        types += usize::from(entry.file_type.is_some());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(types, 0, "there are types, and nothing was tested");
}

#[test]
fn an_entry_that_is_lost_between_walks_is_missed() {
    for memory in all_in_memory() {
        let find = Find { tree: GENERATED, walks: 3 };
        let (stop, walks) = (AtomicBool::new(false), AtomicU64::new(0));
        let progress = |entries: u64| {
            // Each walk reports its few entries in one call; the second call ends the second walk.
            if entries > 0 && walks.fetch_add(1, Relaxed) == 1 {
                let fs = &memory;
                let dir = fs.lookup(fs.root(), b"linux").unwrap();
                let mut file = None;
                fs.readdir(dir, vfs::Cookie(0), &mut |entry| {
                    if entry.file_type == Some(FileType::Regular) {
                        file = Some(entry.name.to_vec());
                    }
                    std::ops::ControlFlow::Continue(())
                })
                .unwrap();
                fs.unlink(dir, &file.unwrap(), None).unwrap();
            }
        };
        let context = Context::new(6, &stop, &progress);
        let outcome = find.run(&find.cases()[0], &mut InMemory::sharing(&memory), &context);
        assert!(matches!(&outcome, Err(Error::Wrong(_))), "{outcome:?}");
        assert_eq!(walks.into_inner(), 3);
    }
}

#[test]
fn a_run_can_be_interrupted() {
    let find = Find { tree: GENERATED, walks: 1_000_000 };
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |_| stop.store(calls.fetch_add(1, Relaxed) == 10, Relaxed);
    let mut session = InMemory::new(Model::new());
    let outcome = find.run(&find.cases()[0], &mut session, &Context::new(1, &stop, &progress));
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    assert_eq!(calls.into_inner(), 11);
}

#[test]
fn published_rows_have_all_columns() {
    let find = Find { tree: GENERATED, walks: 1 };
    for published in find.published() {
        assert!(published.rows.iter().all(|row| row.len() == published.columns.len()));
    }
}
