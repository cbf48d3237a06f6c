//! XFS: files removed by the kernel and by this program.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use testkit::MkfsXfs;

use super::{Deleted, contents, done};

const LEN_ONE: usize = 100_000;
const LEN_TWO: usize = 300_001;
const BLOCK: u64 = 4096;
const BLOCKS_SCATTERED: u64 = 60;

/// Inode numbers of files with known contents.
#[derive(Default)]
struct Known {
    one: u64,
    two: u64,
    scattered: u64,
}

fn make_files(top: &Path) -> Known {
    fs::create_dir(top.join("d")).unwrap();
    fs::create_dir(top.join("short")).unwrap();
    for number in 0..4 {
        fs::write(top.join(format!("short/s{number}")), "short").unwrap();
    }
    fs::write(top.join("d/one"), contents(1, LEN_ONE)).unwrap();
    fs::write(top.join("d/two"), contents(2, LEN_TWO)).unwrap();
    for number in 0..80 {
        fs::write(top.join(format!("d/other-{number}")), "other").unwrap();
    }
    let scattered = File::create(top.join("scattered")).unwrap();
    let between = File::create(top.join("between")).unwrap();
    let bytes = contents(3, (BLOCKS_SCATTERED * BLOCK) as usize);
    for (nth, block) in bytes.chunks(BLOCK as usize).enumerate() {
        // Every other block, so that each is an extent.
        scattered.write_all_at(block, 2 * nth as u64 * BLOCK).unwrap();
        scattered.sync_all().unwrap();
        between.write_all_at(block, nth as u64 * BLOCK).unwrap();
        between.sync_all().unwrap();
    }
    let ino = |name: &str| fs::metadata(top.join(name)).unwrap().ino();
    Known { one: ino("d/one"), two: ino("d/two"), scattered: ino("scattered") }
}

fn remove_files(top: &Path) {
    for name in ["d/one", "d/two", "d/other-7", "d/other-8", "scattered", "short/s1", "short/s3"] {
        fs::remove_file(top.join(name)).unwrap();
    }
    fs::rename(top.join("d/other-9"), top.join("d/renamed")).unwrap();
}

fn scattered() -> Vec<u8> {
    let bytes = contents(3, (BLOCKS_SCATTERED * BLOCK) as usize);
    let mut whole = Vec::new();
    for block in bytes.chunks(BLOCK as usize) {
        whole.extend_from_slice(block);
        whole.resize(whole.len() + BLOCK as usize, 0);
    }
    whole.truncate(whole.len() - BLOCK as usize);
    whole
}

#[track_caller]
fn assert_recovered(image: &Path, known: &Known) {
    let deleted = Deleted::of(image, "");
    for (ino, expected) in [
        (known.one, contents(1, LEN_ONE)),
        (known.two, contents(2, LEN_TWO)),
        (known.scattered, scattered()),
    ] {
        assert_eq!(deleted.certainty_of(ino, &expected), "intact", "inode {ino}");
    }
    let paths = deleted.paths();
    for path in ["/d/one", "/d/two", "/d/other-7", "/d/other-8", "/short/s3"] {
        assert!(paths.contains(path), "{path} in {paths:?}");
    }
    assert!(!paths.contains("/d/renamed") && !paths.contains("/d/other-6"), "{paths:?}");
}

#[test]
fn the_log_and_the_inodes_together_recover_files() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let home = testkit::scratch();
    let image = home.path().join("image");
    // Kernels before 6.10 do not know the newest features.
    MkfsXfs::default().options("-i exchange=0 -n parent=0").create(&image, 320 << 20);
    let mut known = Known::default();
    testkit::populate_with_kernel(&image, "xfs", |top| known = make_files(top));
    testkit::populate_with_kernel(&image, "xfs", remove_files);
    assert_recovered(&image, &known);
}

#[test]
fn removals_in_an_image_of_this_program_are_recovered() {
    require!(Mount("xfs"));
    let home = testkit::scratch();
    let dir = home.path();
    fs::create_dir(dir.join("empty")).unwrap();
    done(dir, "build empty image --fs xfs --size 320M");
    let image = dir.join("image");
    let mut known = Known::default();
    testkit::populate_with_kernel(&image, "xfs", |top| known = make_files(top));
    testkit::populate_with_kernel(&image, "xfs", remove_files);
    assert_recovered(&image, &known);
}

/// Makes the log one that was never written.
fn clear_log(image: &Path) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut superblock = [0; 512];
    file.read_exact_at(&mut superblock, 0).unwrap();
    let number = |at: usize| u32::from_be_bytes(superblock[at..at + 4].try_into().unwrap());
    let (group_blocks, group_log) = (u64::from(number(84)), superblock[124]);
    let (start, blocks) = (u64::from(number(48)) << 32 | u64::from(number(52)), number(96));
    let (group, block) = (start >> group_log, start & ((1 << group_log) - 1));
    let zeros = vec![0; blocks as usize * BLOCK as usize];
    file.write_all_at(&zeros, (group * group_blocks + block) * BLOCK).unwrap();
}

/// Without the log, the extents of freed inodes are still in their slots.
#[test]
fn extents_of_freed_inodes_survive_without_the_log() {
    require!(Mount("xfs"));
    let home = testkit::scratch();
    let dir = home.path();
    fs::create_dir(dir.join("empty")).unwrap();
    done(dir, "build empty image --fs xfs --size 320M");
    let image = dir.join("image");
    let mut known = Known::default();
    testkit::populate_with_kernel(&image, "xfs", |top| known = make_files(top));
    testkit::populate_with_kernel(&image, "xfs", remove_files);
    clear_log(&image);
    let deleted = Deleted::of(&image, "");
    for (ino, expected) in [(known.one, contents(1, LEN_ONE)), (known.two, contents(2, LEN_TWO))] {
        let file = deleted.inode(ino)[0];
        assert_eq!((&file["certainty"], &file["size"]), (&"probable".into(), &().into()));
        let found = deleted.read(file).unwrap();
        assert_eq!(found.len() as u64, (expected.len() as u64).next_multiple_of(BLOCK));
        assert!(found.starts_with(&expected), "inode {ino}");
    }
    let file = deleted.inode(known.scattered)[0];
    assert!(deleted.read(file).unwrap().starts_with(&scattered()), "{file:#}");
}

/// If a whole chunk of inodes is freed, its blocks keep the last images that were written.
#[test]
fn inodes_of_freed_chunks_are_in_free_blocks() {
    require!(Mount("xfs"));
    let home = testkit::scratch();
    let dir = home.path();
    fs::create_dir(dir.join("empty")).unwrap();
    done(dir, "build empty image --fs xfs --size 320M");
    let image = dir.join("image");
    let mut ino = 0;
    testkit::populate_with_kernel(&image, "xfs", |top| {
        // The kernel puts directories into one group after the other, so this chunk has no other inodes.
        for name in ["first", "second", "gone"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        fs::write(top.join("gone/inner"), contents(5, LEN_ONE)).unwrap();
        ino = fs::metadata(top.join("gone/inner")).unwrap().ino();
    });
    testkit::populate_with_kernel(&image, "xfs", |top| {
        fs::remove_dir_all(top.join("gone")).unwrap();
    });
    clear_log(&image);
    let deleted = Deleted::of(&image, "--free-blocks");
    assert_eq!(deleted.certainty_of(ino, &contents(5, LEN_ONE)), "intact");
}

#[test]
fn files_removed_by_this_program_are_listed() {
    let home = testkit::scratch();
    let dir = home.path();
    fs::create_dir_all(dir.join("tree/d")).unwrap();
    for number in 0..30 {
        fs::write(dir.join(format!("tree/d/name-{number}")), contents(number, 5000)).unwrap();
    }
    done(dir, "build tree image --fs xfs --small --size 64M");
    done(dir, "rm image /d/name-3 /d/name-5");
    let deleted = Deleted::of(&dir.join("image"), "");
    let paths = deleted.paths();
    for path in ["/d/name-3", "/d/name-5"] {
        assert!(paths.contains(path), "{path} in {paths:?}");
    }
    assert!(!paths.contains("/d/name-4"), "{paths:?}");
}
