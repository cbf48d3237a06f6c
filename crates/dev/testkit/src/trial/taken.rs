//! An existing name takes precedence over all other errors.

use vfs::{AllocateMode, Error, FileSystem, Ino, Result, SpecialFile};

use super::{NEW, Trial, entries};

/// Numbers of blocks that the filler takes at a time, in descending order.
const STEPS: [u64; 3] = [256, 16, 1];
/// A link target that needs a block.
const TARGET: [u8; 600] = [b't'; 600];

/// A new name, longer than those that fill the directory, so that it finds no space if they do not.
const NEW_NAME: [u8; 200] = [b'n'; 200];

/// Takes all blocks, then all inodes that are available without blocks.
fn fill(fs: &dyn FileSystem, dir: Ino, block_bytes: u64) {
    let filler = fs.create(dir, b"filler", &NEW).unwrap();
    let mut size = 0;
    for step in STEPS.map(|blocks| blocks * block_bytes) {
        while fs.allocate(filler, size, step, AllocateMode::Unwritten).is_ok() {
            size += step;
        }
    }
    let mut number = 0;
    while fs.create(dir, format!("more {number}").as_bytes(), &NEW).is_ok() {
        number += 1;
    }
}

/// Runs every operation that adds a name, with this name, except links to directories.
fn additions(fs: &dyn FileSystem, dir: Ino, name: &[u8], file: Ino) -> Vec<Result<()>> {
    vec![
        fs.create(dir, name, &NEW).map(drop),
        fs.mkdir(dir, name, &NEW).map(drop),
        fs.mknod(dir, name, SpecialFile::Fifo, &NEW).map(drop),
        fs.symlink(dir, name, &TARGET, &NEW).map(drop),
        fs.link(file, dir, name, None),
    ]
}

/// On a full file system a new name finds no space, an existing name is rejected as such, and nothing changes. The same
/// holds for a second name of a directory.
///
/// # Panics
/// If that is violated.
pub fn taken(trial: &Trial<'_>) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
    let file = fs.create(dir, b"file", &NEW).unwrap();
    fill(fs, dir, trial.block_bytes);
    let before = (entries(fs, dir), fs.statfs().unwrap(), fs.attributes(dir).unwrap());

    for refused in &additions(fs, dir, &NEW_NAME, file)[..4] {
        let is_full = matches!(refused, Err(Error::NoSpace | Error::NoInodes));
        assert!(is_full, "{}: {refused:?}", trial.name);
    }
    for name in ["file", "filler", "more 0"] {
        for refused in additions(fs, dir, name.as_bytes(), file) {
            assert!(matches!(refused, Err(Error::Exists)), "{}: {name}: {refused:?}", trial.name);
        }
    }
    let (taken, new) = (fs.link(dir, dir, b"file", None), fs.link(dir, dir, b"new", None));
    assert!(matches!(taken, Err(Error::Exists)), "{}: {taken:?}", trial.name);
    assert!(matches!(new, Err(Error::IsADirectory)), "{}: {new:?}", trial.name);

    let after = (entries(fs, dir), fs.statfs().unwrap(), fs.attributes(dir).unwrap());
    assert_eq!(before, after, "{}", trial.name);
    trial.close(mounted, &device);
}
