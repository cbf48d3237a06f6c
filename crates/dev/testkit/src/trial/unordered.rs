//! Places of file contents that are not written from front to back.

use std::ops::ControlFlow;

use fastrand::Rng;
use vfs::{ExtentPlace, FileSystem, Ino};

use super::{NEW, Trial};

/// Size of one write, in bytes.
const PIECE: u64 = 64 << 10;
/// Number of writes in any order at a time, and number of these windows.
const WINDOW: usize = 16;
const WINDOWS: usize = 8;
const PIECES: usize = WINDOW * WINDOWS;
/// Maximum number of extents. There are several where the free space ends, for example at the end of a group.
const EXTENTS_MAX: usize = PIECES / 4;
const SEEDS: u64 = 4;
/// Number of scattered writes.
const SCATTERED: u64 = 64;

/// Returns the places of all extents of a file on the device and their lengths, in the order of the file.
fn extents(fs: &dyn FileSystem, ino: Ino) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    fs.extent_map(ino, 0, u64::MAX, &mut |run| {
        if let ExtentPlace::Device(place) = run.place {
            all.push((place, run.len));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Write-back with several threads sends parts of a file in another order. The file is in order on the device afterwards.
///
/// # Panics
/// If the file has many extents, contents are unexpected, or the image is not sound.
pub fn writes_out_of_order(trial: &Trial<'_>) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    for seed in 0..SEEDS {
        let ino = fs.create(fs.root(), format!("file {seed}").as_bytes(), &NEW).unwrap();
        let mut order: Vec<usize> = (0..PIECES).collect();
        let mut rng = Rng::with_seed(seed);
        order.chunks_mut(WINDOW).for_each(|window| rng.shuffle(window));
        for piece in order {
            let bytes = vec![piece as u8 + 1; PIECE as usize];
            fs.write(ino, piece as u64 * PIECE, &bytes, None).unwrap();
        }
        let found = extents(fs, ino);
        let backward = found.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
        let is_ordered = found.len() <= EXTENTS_MAX && backward <= EXTENTS_MAX / 2;
        assert!(is_ordered, "{}, seed {seed}: {found:?}", trial.name);
        let mut bytes = vec![0; PIECE as usize];
        for piece in 0..PIECES {
            fs.read(ino, piece as u64 * PIECE, &mut bytes).unwrap();
            assert!(bytes.iter().all(|it| *it == piece as u8 + 1), "{}: {piece}", trial.name);
        }
    }
    trial.close(mounted, &device);
}

/// Small writes that are scattered in a sparse file get blocks close to each other.
///
/// # Panics
/// If they do not, or the image is not sound.
pub fn scattered_writes(trial: &Trial<'_>) {
    let device = trial.make();
    let mounted = trial.open(device.clone());
    let fs = mounted.file_system();
    let ino = fs.create(fs.root(), b"file", &NEW).unwrap();
    let bytes = vec![1; trial.block_bytes as usize];
    let apart = 300 * trial.block_bytes;
    for piece in 0..SCATTERED {
        fs.write(ino, piece * apart, &bytes, None).unwrap();
    }
    let found = extents(fs, ino);
    let (first, last) = (found.iter().map(|it| it.0).min(), found.iter().map(|it| it.0).max());
    let span = last.unwrap() - first.unwrap();
    assert!(span < SCATTERED * apart / 8, "{}: {span} bytes, {found:?}", trial.name);
    trial.close(mounted, &device);
}
