//! Many threads on the same names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vfs::{Error, FileSystem, Ino, RenameMode};

use super::{NEW, Trial, Watchdog, entries, later};

const THREADS: u64 = 6;
const STEPS: usize = 6_000;
/// Not a measure of the duration: machines do other work as well.
const DEADLOCK_AFTER: Duration = Duration::from_secs(1800);

/// Returns whether an error may result from concurrent changes of the same names.
fn is_expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotEmpty
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::Invalid(_)
    )
}

/// Executes a random operation on names in `dirs`.
fn step(fs: &dyn FileSystem, dirs: &[Ino], random: &mut fastrand::Rng) -> Result<(), Error> {
    let dir = dirs[random.usize(..dirs.len())];
    let to = dirs[random.usize(..dirs.len())];
    let name = |random: &mut fastrand::Rng| format!("n{}", random.u32(..12)).into_bytes();
    let (old, new) = (name(random), name(random));
    let time = later(random.i64(..100));
    match random.u32(..8) {
        0 | 1 => fs.create(dir, &old, &NEW).map(drop),
        2 => fs.mkdir(dir, &old, &NEW).map(drop),
        3 => fs.unlink(dir, &old, time),
        4 => fs.rmdir(dir, &old, time),
        5 => fs.link(fs.lookup(dir, &old)?, to, &new, time),
        _ => {
            let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            fs.rename((dir, &old), (to, &new), modes[random.usize(..3)], time)
        }
    }
}

/// Checks that every directory is below the root exactly once, and link counts are correct.
fn check(fs: &dyn FileSystem, dir: Ino) -> usize {
    let mut subdirectories = 0;
    let mut found = 1;
    for (name, ino) in entries(fs, dir) {
        assert_eq!(fs.lookup(dir, &name).unwrap(), ino);
        if fs.attributes(ino).unwrap().file_type == vfs::FileType::Directory {
            assert_eq!(fs.lookup(ino, b"..").unwrap(), dir);
            subdirectories += 1;
            found += check(fs, ino);
        }
    }
    assert_eq!(fs.attributes(dir).unwrap().links, 2 + subdirectories);
    found
}

/// Runs random operations of many threads on few names, all in the same directories (`shared`) or each in its own.
///
/// # Panics
/// If they do not end, or the resulting tree is invalid.
pub fn many_threads(trial: &Trial<'_>, shared: bool) {
    let _watchdog = Watchdog::new(DEADLOCK_AFTER, format!("threads on {}", trial.name));
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let mut dirs: Vec<Vec<Ino>> = Vec::new();
    for thread in 0..THREADS {
        let top = fs.mkdir(fs.root(), format!("top{thread}").as_bytes(), &NEW).unwrap();
        let below = fs.mkdir(top, b"n0", &NEW).unwrap();
        let deep = fs.mkdir(below, b"n1", &NEW).unwrap();
        dirs.push(vec![top, below, deep]);
    }
    if shared {
        dirs = vec![dirs[..2].concat(); THREADS as usize];
    }
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (seed, dirs) in dirs.iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed as u64);
                for _ in 0..STEPS {
                    match step(fs, dirs, &mut random) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(is_expected(&error), "{error}"),
                    }
                }
            });
        }
    });
    assert!(done.into_inner() > STEPS, "hardly anything was done");
    assert!(check_tops(fs) > 0);
    trial.close(mounted, &device);
}

fn check_tops(fs: &dyn FileSystem) -> usize {
    let tops = entries(fs, fs.root());
    tops.iter().filter(|(name, _)| name != b"lost+found").map(|(_, top)| check(fs, *top)).sum()
}

/// Returns the current parent of a directory, and its name there.
fn whereabouts(fs: &dyn FileSystem, dir: Ino) -> Option<(Ino, Vec<u8>)> {
    let parent = fs.lookup(dir, b"..").unwrap();
    let (name, _) = entries(fs, parent).into_iter().find(|(_, ino)| *ino == dir)?;
    Some((parent, name))
}

/// Threads move directories into each other, which could detach a cycle from the tree if two moves succeeded.
///
/// # Panics
/// If they do not end, or a directory is lost.
pub fn no_circle(trial: &Trial<'_>) {
    let _watchdog = Watchdog::new(DEADLOCK_AFTER, format!("moves on {}", trial.name));
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let top = fs.mkdir(fs.root(), b"top", &NEW).unwrap();
    let name = |n: usize| format!("d{n}").into_bytes();
    let dirs: Vec<Ino> = (0..8).map(|n| fs.mkdir(top, &name(n), &NEW).unwrap()).collect();
    let moved = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (dirs, moved) = (&dirs, &moved);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..STEPS {
                    let (n, other) = (random.usize(..8), random.usize(..8));
                    let Some((from, old)) = whereabouts(fs, dirs[n]) else { continue };
                    let to = if random.u8(..4) == 0 { top } else { dirs[other] };
                    let exchanged = random.bool().then(|| whereabouts(fs, dirs[other]));
                    let (to, new, mode) = match exchanged.flatten() {
                        Some((to, new)) => (to, new, RenameMode::Exchange),
                        None => (to, name(random.usize(..)), RenameMode::NoReplace),
                    };
                    match fs.rename((from, &old), (to, &new), mode, None) {
                        Ok(()) => drop(moved.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(is_expected(&error), "{error}"),
                    }
                }
            });
        }
    });
    assert!(moved.into_inner() > 100, "hardly anything was moved");
    assert_eq!(check(fs, top), 1 + dirs.len());
    trial.close(mounted, &device);
}
