//! Failed operations leave no trace: tests every operation with each of its reads failing in turn, and with every
//! number of free blocks from none to sufficient.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use disk::{Access, Fault, FaultyDevice, MemoryDevice};
use vfs::{AllocateMode, Error, FileSystem, NewInode, RenameMode, Result, SpecialFile, StatFs};

use super::{Trial, Watchdog};
use crate::fs_tree::FsTree;
use crate::operation::{FileTarget, NumberedOperation, Operation, Path, Session};

/// Time limit of a trial.
pub(super) const LIMIT: Duration = Duration::from_secs(1800);
/// An upper bound of the reads or blocks of any operation here.
pub(super) const ATTEMPTS_MAX: u64 = 200;
/// Number of one-block files that are removed one by one to free space.
const FILLERS: u64 = 60;
/// Each number of free blocks up to this is tried.
const EACH_UP_TO: u64 = 12;
/// Requests of at least this many bytes may be partially completed without space, if small logs split them into several
/// operations.
const LONG_REQUEST: u64 = 50_000;
/// Number of entries of the directory with an index.
const ENTRIES: u64 = 150;

/// An operation with its preparation.
pub(super) struct Scenario {
    setup: Vec<Operation>,
    pub(super) operation: Operation,
}

fn path(text: &str) -> Path {
    Path(text.as_bytes().to_vec())
}

/// Returns a name of maximum length, so that a few fill a block.
fn long(number: u64) -> Path {
    path(&format!("large/{number:0240}"))
}

fn at(text: &str) -> FileTarget {
    FileTarget::Path(path(text))
}

fn only(operation: Operation) -> Scenario {
    Scenario { setup: Vec::new(), operation }
}

/// Creates the files for the operations.
fn furnish(fs: &dyn FileSystem) {
    let mut operations = Vec::new();
    for name in ["dir", "dir/sub", "large", "empty", "other"] {
        operations.push(Operation::Mkdir { path: path(name) });
    }
    for name in ["small", "holes", "parts", "attributes", "linked", "dir/file", "victim"] {
        operations.push(Operation::Create { path: path(name) });
    }
    for number in 0..ENTRIES {
        operations.push(Operation::Create { path: long(number) });
    }
    operations.push(Operation::Link { target: at("linked"), path: path("other/linked") });
    operations.push(Operation::Symlink { path: path("link"), target_len: 600 });
    let write = |name: &str, offset, len| Operation::Write { target: at(name), offset, len };
    operations.push(write("small", 0, 3_000));
    operations.push(write("victim", 0, 30_000));
    // Every second block, so that the map is a tree.
    operations.extend((0..40).map(|number| write("parts", number * 8_192, 4_096)));
    operations.push(write("holes", 100_000, 5_000));
    let unwritten = AllocateMode::Unwritten;
    let target = at("holes");
    operations.push(Operation::Allocate { target, offset: 200_000, len: 50_000, mode: unwritten });
    for (name, len) in [(0, 30), (1, 300), (2, 400), (3, 60)] {
        operations.push(Operation::SetXattr { target: at("attributes"), name, len });
    }
    operations.push(Operation::SetXattr { target: at("victim"), name: 0, len: 400 });
    let mut session = Session::new();
    for (number, operation) in (1..).zip(operations) {
        let step = NumberedOperation { number, operation };
        session.apply(fs, &step).unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }
}

fn names() -> Vec<Scenario> {
    let rename =
        |from: &str, to: Path, mode| only(Operation::Rename { from: path(from), to, mode });
    let whiteout = |from: &str, to: Path| {
        let mode = RenameMode::Replace;
        only(Operation::RenameWithWhiteout { from: path(from), to, mode })
    };
    let new = || long(ENTRIES);
    let file = SpecialFile::Fifo;
    vec![
        only(Operation::Create { path: path("dir/new") }),
        only(Operation::Create { path: new() }),
        only(Operation::Mkdir { path: path("dir/new") }),
        only(Operation::Mkdir { path: new() }),
        only(Operation::Mknod { path: new(), file }),
        only(Operation::Symlink { path: new(), target_len: 20 }),
        only(Operation::Symlink { path: new(), target_len: 700 }),
        only(Operation::Link { target: at("small"), path: new() }),
        only(Operation::LinkOver { target: at("small"), path: path("victim") }),
        only(Operation::LinkOver { target: at("small"), path: long(7) }),
        only(Operation::Unlink { path: path("linked") }),
        only(Operation::Unlink { path: path("victim") }),
        only(Operation::Unlink { path: path("parts") }),
        only(Operation::Unlink { path: path("link") }),
        only(Operation::Unlink { path: long(7) }),
        only(Operation::Rmdir { path: path("empty") }),
        only(Operation::Rmdir { path: path("dir/sub") }),
        rename("small", new(), RenameMode::Replace),
        rename("small", path("victim"), RenameMode::Replace),
        rename("small", path("attributes"), RenameMode::Exchange),
        rename("small", path("dir/file"), RenameMode::Exchange),
        rename("dir/sub", path("empty"), RenameMode::Replace),
        rename("dir/sub", new(), RenameMode::NoReplace),
        rename("dir", path("other/dir"), RenameMode::NoReplace),
        rename("dir/sub", path("small"), RenameMode::Exchange),
        whiteout("small", new()),
        whiteout("small", path("victim")),
        whiteout("dir/sub", path("empty")),
        whiteout("dir/sub", new()),
    ]
}

fn contents() -> Vec<Scenario> {
    let write = |name: &str, offset, len| only(Operation::Write { target: at(name), offset, len });
    let truncate = |name: &str, size| only(Operation::Truncate { target: at(name), size });
    let allocate = |name: &str, offset, len, mode| {
        only(Operation::Allocate { target: at(name), offset, len, mode })
    };
    vec![
        write("dir/file", 0, 100),
        write("dir/file", 10_000, 20_000),
        write("small", 3_000, 9_000),
        write("parts", 4_096, 4_096),
        write("parts", 700_000, 10_000),
        write("holes", 210_000, 5_000),
        write("holes", 50_000, 160_000),
        truncate("victim", 0),
        truncate("victim", 10_001),
        truncate("parts", 100_000),
        truncate("small", 50_000),
        allocate("small", 0, 60_000, AllocateMode::Unwritten),
        allocate("parts", 0, 300_000, AllocateMode::Unwritten),
        allocate("small", 5_000, 60_000, AllocateMode::UnwrittenKeepSize),
        allocate("victim", 5_000, 10_000, AllocateMode::PunchHole),
        allocate("parts", 100, 100_000, AllocateMode::PunchHole),
        allocate("victim", 5_000, 50_000, AllocateMode::Zero),
        allocate("victim", 5_000, 50_000, AllocateMode::ZeroKeepSize),
    ]
}

fn attributes() -> Vec<Scenario> {
    let set =
        |name: &str, xattr, len| only(Operation::SetXattr { target: at(name), name: xattr, len });
    vec![
        set("small", 0, 20),
        set("small", 0, 700),
        set("attributes", 4, 100),
        set("attributes", 0, 60),
        set("victim", 0, 10),
        only(Operation::RemoveXattr { target: at("attributes"), name: 1 }),
        only(Operation::RemoveXattr { target: at("victim"), name: 0 }),
        only(Operation::SetAttributes { target: at("small"), owner: true, times: true }),
    ]
}

fn open_files() -> Vec<Scenario> {
    let (slot, unlinked) = (0, Operation::CreateUnlinked { dir: path("dir"), slot: 0 });
    let opened = |name: &str| {
        vec![Operation::Open { path: path(name), slot }, Operation::Unlink { path: path(name) }]
    };
    let write = Operation::Write { target: FileTarget::Slot(0), offset: 0, len: 20_000 };
    let link = || Operation::Link { target: FileTarget::Slot(0), path: long(ENTRIES) };
    let mut scenarios = vec![
        only(unlinked.clone()),
        Scenario { setup: vec![unlinked.clone()], operation: write.clone() },
        Scenario { setup: vec![unlinked.clone(), write], operation: Operation::Close { slot } },
        Scenario { setup: vec![unlinked], operation: link() },
    ];
    for name in ["victim", "parts", "attributes"] {
        scenarios.push(Scenario { setup: opened(name), operation: Operation::Close { slot } });
    }
    let open_first = vec![Operation::Open { path: path("victim"), slot }];
    let operation = Operation::Unlink { path: path("victim") };
    scenarios.push(Scenario { setup: open_first, operation });
    scenarios
}

/// Returns scenarios of files that share blocks, if they can.
fn sharing(fs: &dyn FileSystem) -> Vec<Scenario> {
    if !fs.can_clone() {
        return Vec::new();
    }
    let clone = |from: &str, from_offset, to: &str, to_offset, len| {
        let (from, to) = (at(from), at(to));
        Operation::Clone { from, from_offset, to, to_offset, len }
    };
    const UNIT: u64 = 64 << 10;
    let shared = || vec![clone("victim", 0, "dir/file", 0, 0)];
    let after_sharing = |operation| Scenario { setup: shared(), operation };
    let write = Operation::Write { target: at("victim"), offset: 5_000, len: 9_000 };
    let punch = Operation::Allocate {
        target: at("dir/file"),
        offset: 4_096,
        len: 8_192,
        mode: AllocateMode::PunchHole,
    };
    vec![
        only(clone("victim", 0, "small", UNIT, 0)),
        only(clone("victim", 0, "parts", 8 * UNIT, 0)),
        only(clone("small", 0, "dir/file", 0, 0)),
        after_sharing(clone("small", 0, "dir/file", UNIT, 0)),
        after_sharing(clone("dir/file", 0, "attributes", 0, 0)),
        after_sharing(write),
        after_sharing(punch),
        after_sharing(Operation::Unlink { path: path("victim") }),
        after_sharing(Operation::Truncate { target: at("dir/file"), size: 10_000 }),
    ]
}

pub(super) fn all(trial: &Trial<'_>) -> Vec<Scenario> {
    let mounted = trial.open(trial.make());
    let sharing = sharing(mounted.file_system());
    [names(), contents(), attributes(), open_files(), sharing].into_iter().flatten().collect()
}

/// State that a failed operation must not change.
#[derive(PartialEq)]
struct VisibleState {
    tree: FsTree,
    totals: StatFs,
}

impl VisibleState {
    fn of(fs: &dyn FileSystem) -> Self {
        let mut tree = FsTree::of(fs).unwrap();
        for inode in &mut tree.inodes {
            // Random.
            inode.attributes.generation = 0;
        }
        Self { tree, totals: fs.statfs().unwrap() }
    }

    #[track_caller]
    fn assert_same(&self, found: &Self, what: &str) {
        let list = self.tree.differences(&found.tree, crate::fs_tree::Rules::default());
        assert!(list.is_empty(), "{what}:\n{}", list.join("\n"));
        assert_eq!(self.totals, found.totals, "{what}");
        assert!(self == found, "{what}: space, inode numbers or directory sizes changed");
    }
}

impl Scenario {
    pub(super) fn prepare(&self, fs: &dyn FileSystem) -> Session {
        let mut session = Session::new();
        for (number, operation) in (10_000..).zip(&self.setup) {
            let step = NumberedOperation { number, operation: operation.clone() };
            session.apply(fs, &step).unwrap_or_else(|error| panic!("{step:?}: {error}"));
        }
        session
    }

    /// Returns the file of a long request.
    pub(super) fn long_request(&self) -> Option<&[u8]> {
        match &self.operation {
            Operation::Allocate { target: FileTarget::Path(path), len: LONG_REQUEST.., .. } => {
                Some(&path.0)
            }
            Operation::Write { target: FileTarget::Path(path), len, .. } => {
                (*len as u64 >= LONG_REQUEST).then_some(&path.0)
            }
            _ => None,
        }
    }

    pub(super) fn act(&self, fs: &dyn FileSystem, session: &mut Session) -> Result<()> {
        session.apply(fs, &NumberedOperation { number: 20_000, operation: self.operation.clone() })
    }

    /// Returns the state after the preparation, through a separate instance that does not warm the cache of the test.
    fn before(&self, trial: &Trial<'_>, image: &MemoryDevice) -> VisibleState {
        let fs = trial.open(Arc::new(image.fork()));
        self.prepare(fs.file_system());
        VisibleState::of(fs.file_system())
    }

    /// Returns the state after the preparation and reopening.
    fn reopened(&self, trial: &Trial<'_>, image: &MemoryDevice) -> VisibleState {
        let device = Arc::new(image.fork());
        let fs = trial.open(device.clone());
        self.prepare(fs.file_system());
        fs.close().unwrap();
        VisibleState::of(trial.open(device).file_system())
    }
}

pub(super) fn furnished(trial: &Trial<'_>) -> MemoryDevice {
    let device = trial.make();
    let fs = trial.open(device.clone());
    furnish(fs.file_system());
    fs.close().unwrap();
    (trial.check)(&device);
    device.fork()
}

/// Fails each read of each operation in turn.
///
/// # Panics
/// If a failure leaves a trace.
pub fn fail_reads(trial: &Trial<'_>) {
    let _watchdog = Watchdog::new(LIMIT, format!("failing reads of {}", trial.name));
    let image = furnished(trial);
    let mut failed = 0;
    for scenario in all(trial) {
        let (before, reopened) = (scenario.before(trial, &image), scenario.reopened(trial, &image));
        for number in 1..=ATTEMPTS_MAX {
            let what = format!("{:?} of {}, read {number}", scenario.operation, trial.name);
            assert!(number < ATTEMPTS_MAX, "{what}: it never succeeds");
            let memory = Arc::new(image.fork());
            let device = Arc::new(FaultyDevice::new(memory.clone()));
            let fs = trial.open(device.clone());
            let mut session = scenario.prepare(fs.file_system());
            device.set(Access::Read, Fault::Nth(number));
            let outcome = scenario.act(fs.file_system(), &mut session);
            let hit = device.failures(Access::Read) > 0;
            device.set(Access::Read, Fault::Never);
            match outcome {
                Ok(()) if !hit => break,
                Ok(()) => continue,
                Err(Error::Device(_)) => failed += 1,
                Err(error) => panic!("{what}: {error}"),
            }
            before.assert_same(&VisibleState::of(fs.file_system()), &what);
            fs.close().unwrap_or_else(|error| panic!("{what}: close: {error}"));
            let again = trial.open(memory.clone());
            reopened.assert_same(
                &VisibleState::of(again.file_system()),
                &format!("{what}, opened again"),
            );
            again.close().unwrap();
            trial.check_alike(&memory);
        }
    }
    assert!(failed > 100, "only {failed} reads failed");
}

/// Fills the file system, partly with one-block files that are not adjacent.
fn fill(trial: &Trial<'_>, image: &MemoryDevice) -> MemoryDevice {
    let block_size = trial.block_bytes;
    let device = Arc::new(image.fork());
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let dir = fs.mkdir(fs.root(), b"fill", &NewInode::default()).unwrap();
    for number in 0..2 * FILLERS {
        let name = format!("{}{}", if number % 2 == 0 { 'f' } else { 'k' }, number / 2);
        let ino = fs.create(dir, name.as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, 0, &vec![1; block_size as usize], None).unwrap();
    }
    let rest = fs.create(dir, b"rest", &NewInode::default()).unwrap();
    let (mut len, mut at) = (1 << 20, 0);
    while len >= block_size {
        match fs.allocate(rest, at, len, AllocateMode::Unwritten) {
            Ok(()) => at += len,
            Err(Error::NoSpace) => {
                // A long request may have been partially completed.
                at = fs.attributes(rest).unwrap().size.next_multiple_of(block_size);
                len /= 2;
            }
            Err(error) => panic!("{error}"),
        }
    }
    mounted.close().unwrap();
    device.fork()
}

/// Runs each operation with no free block, one block, two, …, until it succeeds.
///
/// # Panics
/// If a failure leaves a trace.
pub fn fail_allocations(trial: &Trial<'_>) {
    let _watchdog = Watchdog::new(LIMIT, format!("failing allocations of {}", trial.name));
    let mut image = fill(trial, &furnished(trial));
    let mut pending: Vec<Scenario> = all(trial);
    let mut failed = 0;
    let mut blocks = 0;
    while blocks < FILLERS {
        pending.retain(|scenario| {
            let did_fail = fails_without_trace(trial, scenario, &image, blocks);
            failed += u64::from(did_fail);
            did_fail
        });
        // The behaviour of large operations changes slowly with the number of blocks.
        let more = if blocks < EACH_UP_TO { 1 } else { 8 };
        image = with_more_room(trial, &image, blocks..FILLERS.min(blocks + more));
        blocks += more;
    }
    let left: Vec<_> = pending.iter().map(|scenario| &scenario.operation).collect();
    // The largest ones need more space than that.
    assert!(left.len() <= 4, "these never succeed: {left:?}");
    assert!(failed > 60, "only {failed} operations failed");
}

fn with_more_room(trial: &Trial<'_>, image: &MemoryDevice, fillers: Range<u64>) -> MemoryDevice {
    let device = Arc::new(image.fork());
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let dir = fs.lookup(fs.root(), b"fill").unwrap();
    for number in fillers {
        fs.unlink(dir, format!("f{number}").as_bytes(), None).unwrap();
    }
    mounted.close().unwrap();
    device.fork()
}

/// Returns whether an operation, or its preparation, fails due to lack of space. Asserts that it leaves no trace then.
fn fails_without_trace(
    trial: &Trial<'_>,
    scenario: &Scenario,
    image: &MemoryDevice,
    room: u64,
) -> bool {
    let what = format!("{:?} of {}, {room} blocks free", scenario.operation, trial.name);
    let device = Arc::new(image.fork());
    let fs = trial.open(device.clone());
    let mut session = Session::new();
    for (number, operation) in (10_000..).zip(&scenario.setup) {
        match session
            .apply(fs.file_system(), &NumberedOperation { number, operation: operation.clone() })
        {
            Ok(()) => {}
            Err(Error::NoSpace | Error::NoInodes) => return true,
            Err(error) => panic!("{what}: {operation:?}: {error}"),
        }
    }
    let before = VisibleState::of(fs.file_system());
    let failed = match scenario.act(fs.file_system(), &mut session) {
        Ok(()) => false,
        Err(Error::NoSpace | Error::NoInodes) => true,
        Err(error) => panic!("{what}: {error}"),
    };
    if failed {
        let found = VisibleState::of(fs.file_system());
        match scenario.long_request() {
            Some(file) if trial.parts_long_requests => {
                let others = |state: &VisibleState| state.tree.filter(|path| path != file);
                let list = others(&before).differences(&others(&found), Default::default());
                assert!(list.is_empty(), "{what}:\n{}", list.join("\n"));
            }
            _ => before.assert_same(&found, &what),
        }
    }
    let shown = VisibleState::of(fs.file_system());
    fs.close().unwrap();
    let again = trial.open(device.clone());
    let list =
        shown.tree.differences(&FsTree::of(again.file_system()).unwrap(), Default::default());
    assert!(list.is_empty(), "{what}, opened again:\n{}", list.join("\n"));
    again.close().unwrap();
    trial.check_alike(&device);
    failed
}
