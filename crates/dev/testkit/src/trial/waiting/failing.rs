//! No room, and a device that fails, while files wait.

use std::sync::Arc;

use disk::{Access, Fault, FaultyDevice};
use vfs::{Error, FileSystem};

use super::{ALL, CACHE_BYTES, NEW, OpenTrial, WaitingTrial, name};

/// Fills a file until so many blocks are left.
fn fill(opened: &OpenTrial, block_bytes: usize, left: u64) -> vfs::Ino {
    let fs = opened.fs();
    let filler = fs.create(fs.root(), b"filler", &NEW).unwrap();
    let block = vec![1; block_bytes];
    for number in 0.. {
        if fs.statfs().unwrap().blocks_for_contents < left {
            break;
        }
        match fs.write(filler, number * block_bytes as u64, &block, None) {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    fs.sync().unwrap();
    filler
}

/// In an image in which `left` blocks are left, a file that was made is there, whether it waited or not; one that was
/// refused is not.
///
/// # Panics
/// If it is not so.
pub fn full_image(trial: &WaitingTrial<'_>, block_bytes: usize, left: u64) {
    let opened = trial.empty(ALL);
    let (fs, dir) = (opened.fs(), opened.dir);
    (0..200).for_each(|number| opened.create(number));
    // What was promised to files that wait is nobody's any more.
    fs.sync().unwrap();
    let filler = fill(&opened, block_bytes, left);
    let (mut made, mut most) = (200, 0);
    let refused = loop {
        match fs.create(dir, &name(made), &NEW) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        most = most.max(opened.waiting());
    };
    assert!(matches!(refused, Error::NoSpace | Error::NoInodes), "{refused}");
    assert!(made > 300 && most > 0, "{made} files, {most} waited");
    assert!(!opened.has(made));
    assert_eq!(opened.entries().len(), made as usize);
    fs.sync().unwrap();
    assert!((0..made).all(|number| opened.has(number)));
    // There is room again where something went.
    fs.truncate(filler, 0, None).unwrap();
    fs.sync().unwrap();
    opened.create(made);
    trial.close(opened);
}

/// On an image with a small log, nothing is promised that cannot become durable, and what was is told of.
///
/// # Panics
/// If it is not so.
pub fn failing_checkpoints(trial: &WaitingTrial<'_>) {
    for (access, number) in
        [(Access::Write, 1), (Access::Write, 3), (Access::Write, 40), (Access::Flush, 1)]
    {
        let inner = Arc::new((trial.make)());
        let faulty = Arc::new(FaultyDevice::new(inner.clone()));
        let mounted = (trial.open)(faulty.clone(), CACHE_BYTES, Some(ALL)).unwrap();
        let fs = mounted.file_system();
        let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
        (0..200).for_each(|number| assert!(fs.create(dir, &name(number), &NEW).is_ok()));
        fs.sync().unwrap();
        (200..300).for_each(|number| assert!(fs.create(dir, &name(number), &NEW).is_ok()));
        assert_eq!(mounted.files_deferred(), 100);
        faulty.set(access, Fault::From(number));
        let (made, told) = make_until_told(fs, dir);
        assert!(matches!(told, Error::Device(_)), "{told}");
        assert!(matches!(fs.create(dir, b"refused", &NEW), Err(Error::Device(_))));
        assert!(matches!(fs.lookup(dir, b"refused"), Err(Error::NotFound)));
        assert!(fs.sync().is_err());
        assert!(mounted.close().is_err());
        faulty.set(access, Fault::Never);
        drop(faulty);
        // What was synced is there, and each other file wholly or not.
        let left = trial.after_crash(&inner);
        assert!((0..200).all(|number| left.has(number)));
        let there = (0..made).filter(|&number| left.has(number)).count();
        assert_eq!(left.entries().len(), there);
        trial.close(left);
    }
}

/// Makes files and syncs each until one of both fails. Files that were made, and the failure.
fn make_until_told(fs: &dyn FileSystem, dir: vfs::Ino) -> (u32, Error) {
    let mut made = 300;
    loop {
        let outcome = fs.create(dir, &name(made), &NEW).map(drop);
        made += u32::from(outcome.is_ok());
        if let Err(error) = outcome.and_then(|()| fs.fsync(dir)) {
            return (made, error);
        }
    }
}
