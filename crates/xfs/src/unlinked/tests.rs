//! Files that are too much for one operation, and crashes while they are freed.

use vfs::{FileSystem, Ino, NewInode};

use crate::mkfs::Options;
use crate::stub::Logged;

const BLOCK: u64 = 4096;
/// Few, so that an operation frees few extents.
const LOG_BLOCKS: usize = 256;
/// Fewest crashes that are looked at.
const CRASHES: usize = 4;

fn image() -> Logged {
    Logged::new(&Options { allow_small: true, ..Options::new(64 << 20) }, LOG_BLOCKS)
}

fn create(image: &Logged) -> Ino {
    let root = image.fs.root_ino();
    image.fs.create(root, b"file", &NewInode::default()).unwrap()
}

/// Takes the name of the only file away, with crashes between the operations that does in: what is there then is sound,
/// and what is left of the file is freed when the image is opened again.
fn check_unlink(image: &Logged) {
    let root = image.fs.root_ino();
    let free = |image: &Logged| image.fs.statfs().unwrap().blocks_free;
    image.fs.sync().unwrap();
    let crashes = image.crashes_of(|fs| {
        fs.unlink(root, b"file", None).unwrap();
        fs.sync().unwrap();
    });
    let is_gone = |crashed: &&Logged| crashed.fs.lookup(root, b"file").is_err();
    let crashes: Vec<_> = crashes.iter().filter(is_gone).collect();
    assert!(crashes.len() >= CRASHES, "{} crashes", crashes.len());
    let is_begun = |crashed: &&&Logged| free(crashed) != free(&image.crash());
    assert!(crashes.iter().filter(is_begun).count() >= CRASHES, "it was one operation");
    for crashed in crashes {
        crashed.fs.reap_all().unwrap();
        assert_eq!(free(crashed), free(image));
        crashed.judge();
    }
    image.judge();
}

#[test]
fn a_file_of_many_extents_is_freed_in_several_operations() {
    oracle::require!(Tool("xfs_repair"));
    let image = image();
    let ino = create(&image);
    for at in 0..4000 {
        image.fs.write(ino, at * 2 * BLOCK, &[at as u8]).unwrap();
    }
    check_unlink(&image);
}

#[test]
fn many_attributes_are_freed_in_several_operations() {
    oracle::require!(Tool("xfs_repair"));
    let image = image();
    let ino = create(&image);
    for at in 0..300 {
        let len = if at % 3 == 0 { 60_000 } else { 2000 };
        image.fs.set_xattr(ino, format!("user.{at}").as_bytes(), &vec![1; len]).unwrap();
    }
    check_unlink(&image);
}

#[test]
fn a_large_truncation_is_several_operations_that_crashes_may_part() {
    oracle::require!(Tool("xfs_repair"));
    let image = image();
    let ino = create(&image);
    for at in 0..3000 {
        image.fs.write(ino, at * 2 * BLOCK, &[1; 10]).unwrap();
    }
    image.fs.sync().unwrap();
    let crashes = image.crashes_of(|fs| {
        fs.truncate(ino, 100).unwrap();
        fs.sync().unwrap();
    });
    let is_cut = |crashed: &&Logged| crashed.fs.attributes(ino).unwrap().size == 100;
    let crashes: Vec<_> = crashes.iter().filter(is_cut).collect();
    assert!(crashes.len() >= CRASHES, "{} crashes", crashes.len());
    for crashed in crashes {
        let mut bytes = [9; 200];
        assert_eq!(crashed.fs.read(ino, 0, &mut bytes).unwrap(), 100);
        assert_eq!(bytes[..100], [[1; 10].as_slice(), &[0; 90]].concat());
        // What is left past the end is not seen when the file grows, and goes when it is cut again.
        crashed.fs.truncate(ino, 6000 * BLOCK).unwrap();
        let mut past = vec![9; 64 << 10];
        crashed.fs.read(ino, 0, &mut past).unwrap();
        assert!(past[10..].iter().all(|byte| *byte == 0));
        crashed.fs.truncate(ino, 100).unwrap();
        assert_eq!(crashed.fs.attributes(ino).unwrap().blocks_512, 8);
        crashed.judge();
    }
    image.judge();
}
