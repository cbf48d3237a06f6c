//! Freed space is available again immediately.

use std::sync::Arc;

use vfs::{AllocateMode, Error, FileSystem, Ino};

use super::{NEW, Trial};

/// Size of the first writes in bytes, reduced when space runs out.
const STEP: usize = 1 << 20;
/// Number of times that all space is filled.
const ROUNDS: u8 = 6;
/// Number of blocks by which a map may exceed the one before it.
const SLACK: u64 = 32;

/// Writes a file until there is no space. Returns its size.
fn fill(fs: &dyn FileSystem, ino: Ino, seed: u8, block_bytes: usize) -> u64 {
    let (mut size, mut step) = (0, STEP);
    while step >= block_bytes {
        match fs.write(ino, size, &vec![seed; step], None) {
            Ok(()) => {}
            Err(Error::NoSpace) => step /= 2,
            Err(error) => panic!("{error}"),
        }
        // A write without space may have been partially completed.
        size = fs.attributes(ino).unwrap().size.next_multiple_of(block_bytes as u64);
    }
    fs.attributes(ino).unwrap().size
}

/// Fills all space, frees it in different ways, and fills it again without a sync in between.
///
/// # Panics
/// If much less can be filled again, or contents are unexpected.
pub fn space_comes_back(trial: &Trial<'_>) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let block_bytes = trial.block_bytes as usize;
    let mut sizes = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("file {round}");
        let ino = fs.create(fs.root(), name.as_bytes(), &NEW).unwrap();
        let size = fill(fs, ino, round + 1, block_bytes);
        let mut bytes = vec![0; STEP];
        for offset in (0..size).step_by(STEP) {
            let len = fs.read(ino, offset, &mut bytes).unwrap();
            assert!(bytes[..len].iter().all(|&b| b == round + 1), "{}: {offset}", trial.name);
        }
        sizes.push(size);
        if round == ROUNDS - 1 {
            break;
        }
        match round % 3 {
            0 => fs.truncate(ino, 0, None).unwrap(),
            1 => fs.allocate(ino, 0, size, AllocateMode::PunchHole).unwrap(),
            _ => fs.unlink(fs.root(), name.as_bytes(), None).unwrap(),
        }
    }
    let least = sizes[0] - SLACK * trial.block_bytes;
    assert!(sizes.iter().all(|&size| size >= least), "{}: {sizes:?}", trial.name);
    mounted.close().unwrap();
    (trial.check)(&device);
    let again = trial.open(Arc::clone(&device) as _);
    let fs = again.file_system();
    let ino = fs.lookup(fs.root(), format!("file {}", ROUNDS - 1).as_bytes()).unwrap();
    assert_eq!(Some(&fs.attributes(ino).unwrap().size), sizes.last());
    trial.close(again, &device);
}
