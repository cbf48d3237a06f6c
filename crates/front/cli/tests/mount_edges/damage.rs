//! Damaged images: access to damaged data fails and has no other effect. Sound data can be read.
//! Writes are rejected unless an option permits them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use testkit::{debugfs, digest, require, xfs_db};

use crate::place::probe::pattern;
use crate::place::{Driver, Format, Place, Wanted, prove};

/// Number of entries per directory, for several directory blocks.
const NAMES: usize = 600;

/// Number of extents: more than fit into an inode.
const EXTENTS: u64 = 200;

const DAMAGE: [Errno; 3] = [Errno::UCLEAN, Errno::IO, Errno::BADMSG];

fn is_damage(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|error| DAMAGE.contains(&error))
}

#[track_caller]
fn is_told<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.expect_err("damage is met");
    assert!(is_damage(&error), "{error}");
}

/// Creates a directory of small files, a fragmented file, a plain file, and a directory that stays
/// sound.
fn populate(root: &Path) {
    for directory in ["dir", "sound"] {
        fs::create_dir(root.join(directory)).unwrap();
        for number in 0..NAMES {
            let path = root.join(directory).join(format!("a name that takes some room {number}"));
            fs::write(path, format!("{number}")).unwrap();
        }
    }
    let tree = File::create(root.join("tree")).unwrap();
    for extent in 0..EXTENTS {
        tree.write_all_at(&pattern(extent, 0, 4096), extent * 8192).unwrap();
        // Sync, so that each is allocated separately.
        tree.sync_data().unwrap();
    }
    fs::write(root.join("inode"), "contents").unwrap();
    fs::write(root.join("file"), pattern(9, 0, 500_000)).unwrap();
}

fn overwrite(image: &Path, offset: u64) {
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&[0xa5; 100], offset).unwrap();
    file.sync_all().unwrap();
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|word| word.parse().ok()).collect()
}

/// Damages an inode, a block of a directory and a block of an extent tree.
fn damage_ext4(image: &Path) {
    // Output: "located at block 37, offset 0x0b00"
    let place = debugfs(image, "imap /inode");
    let block = numbers(place.split("located at block ").nth(1).unwrap())[0];
    let offset = place.split("offset 0x").nth(1).unwrap().trim();
    let offset = u64::from_str_radix(offset.split_whitespace().next().unwrap(), 16).unwrap();
    overwrite(image, block * 4096 + offset + 40);
    // The first block is the root of the index.
    let blocks = numbers(&debugfs(image, "blocks /dir"));
    assert!(blocks.len() > 5, "{blocks:?}");
    overwrite(image, blocks[3] * 4096 + 200);
    // Output: " 0/ 1   1/  1     0 -   399   8577            99": level, entry, blocks, device
    // block, length
    let extents = debugfs(image, "dump_extents -n /tree");
    let node = extents.lines().find(|line| line.trim_start().starts_with("0/")).unwrap();
    overwrite(image, numbers(node)[6] * 4096 + 1000);
}

/// Damages the same structures of XFS.
fn damage_xfs(image: &Path, inode_of: impl Fn(&str) -> u64) {
    let place = |commands: &[&str]| {
        let answer = xfs_db(image, commands);
        // Output: "datadev daddr is 128"
        let sector = answer.split("daddr is ").nth(1);
        numbers(sector.unwrap_or_else(|| panic!("{commands:?}: {answer}")))[0] * 512
    };
    let inode = |name: &str| format!("inode {}", inode_of(name));
    let dir = place(&[&inode("dir"), "dblock 2", "daddr"]);
    let tree = place(&[&inode("tree"), "addr u3.bmbt.ptrs[1]", "daddr"]);
    // An inode number is a block number with the index of the inode in the block in the lower three
    // bits.
    let damaged = xfs_db(image, &[&format!("convert inode {} fsblock", inode_of("inode"))]);
    let block = numbers(damaged.split_once('(').unwrap().1)[0];
    let start = place(&[&format!("fsblock {block}"), "daddr"]);
    overwrite(image, dir + 300);
    overwrite(image, tree + 1000);
    // In its data fork: the fields before it are checked for all inodes of a cluster together.
    overwrite(image, start + inode_of("inode") % 8 * 512 + 200);
}

/// Asserts that sound data is unchanged and that access to damaged data fails.
fn read_all(root: &Path) {
    is_told(fs::metadata(root.join("inode")));
    let listed: io::Result<Vec<_>> = fs::read_dir(root.join("dir")).and_then(Iterator::collect);
    is_told(listed);
    let path = |directory: &str, number| {
        root.join(directory).join(format!("a name that takes some room {number}"))
    };
    let results: Vec<_> =
        (0..NAMES).map(|number| (number, fs::read_to_string(path("dir", number)))).collect();
    let (sound, damaged): (Vec<_>, Vec<_>) =
        results.into_iter().partition(|(_, read)| read.is_ok());
    assert!(!sound.is_empty() && !damaged.is_empty(), "{} sound", sound.len());
    for (number, text) in sound {
        assert_eq!(text.unwrap(), number.to_string());
    }
    for (_, error) in damaged {
        is_told(error);
    }
    let mut bytes = vec![0; (EXTENTS * 8192) as usize];
    is_told(File::open(root.join("tree")).and_then(|mut file| file.read_exact(&mut bytes)));
    assert_eq!(fs::metadata(root.join("tree")).unwrap().size(), EXTENTS * 8192 - 4096);
    assert!(fs::read(root.join("file")).unwrap() == pattern(9, 0, 500_000));
    for number in 0..NAMES {
        assert_eq!(fs::read_to_string(path("sound", number)).unwrap(), number.to_string());
    }
    assert_eq!(fs::read_dir(root.join("sound")).unwrap().count(), NAMES);
}

fn wanted(format: Format) -> Wanted {
    // The minimum size of mkfs.xfs.
    Wanted { bytes: 310 << 20, ..Wanted::new(format) }
}

/// Fills an image, unmounts it, calls `check`, and damages the image.
fn damaged_after(place: &mut Place, check: impl FnOnce(&mut Place)) {
    populate(place.path());
    let inodes =
        ["dir", "tree", "inode"].map(|name| (name, fs::metadata(place.join(name)).unwrap().ino()));
    place.unmount();
    check(place);
    match place.format() {
        Format::Ext => damage_ext4(place.image()),
        Format::Xfs => damage_xfs(place.image(), |name| {
            inodes.iter().find(|(known, _)| *known == name).unwrap().1
        }),
    }
}

fn damaged(place: &mut Place) {
    damaged_after(place, |_| {});
}

/// Runs a test on each format whose `errors=` matches ours: the kernel's XFS has its own rules for
/// a shutdown.
fn prove_on_each(name: &str, proof: impl Fn(&mut Place)) {
    for format in [Format::Ext, Format::Xfs] {
        let wanted = wanted(format);
        if format == Format::Ext || wanted.driver == Driver::Own {
            prove(name, wanted, &proof);
        }
    }
}

#[test]
fn damaged_images_are_not_written_any_more() {
    require!(Tool("debugfs"), Tool("xfs_db"));
    prove_on_each("damaged_images_are_not_written_any_more", |place| {
        damaged(place);
        place.mount_with("errors=remount-ro");
        // Changes before the damage is detected.
        let mut open = File::create(place.join("before")).unwrap();
        open.write_all(b"durable").unwrap();
        open.sync_all().unwrap();
        read_all(place.path());
        let known = digest(place.image());
        let read_only = |result: io::Result<()>| {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        };
        read_only(File::create(place.join("after")).map(drop));
        read_only(fs::create_dir(place.join("directory")));
        read_only(fs::remove_file(place.join("file")));
        read_only(fs::rename(place.join("file"), place.join("elsewhere")));
        read_only(fs::hard_link(place.join("file"), place.join("second")));
        read_only(fs::set_permissions(
            place.join("file"),
            fs::metadata(place.join("before")).unwrap().permissions(),
        ));
        let set = rustix::fs::setxattr(
            place.join("file"),
            "user.x",
            b"",
            rustix::fs::XattrFlags::empty(),
        );
        read_only(set.map_err(io::Error::from));
        read_only(open.set_len(1 << 20));
        // The kernel may accept a write into its cache. A sync then reports the error.
        let written = open.write_all(b"lost").and_then(|()| open.sync_all());
        assert!(written.is_err(), "a write that cannot be durable is said to be");
        drop(open);
        read_all(place.path());
        let (status, said) = place.unmount_unjudged();
        if place.driver() == Driver::Own {
            assert_eq!(digest(place.image()), known, "the image has changed");
            assert!(status == 3 && said.contains("damaged"), "status {status}: {said}");
        }
        place.mount_with("");
        assert_eq!(fs::read(place.join("before")).unwrap(), b"durable");
        assert!(!place.join("after").exists());
        place.unmount_unjudged();
    });
}

#[test]
fn damaged_images_may_be_written_on() {
    require!(Tool("debugfs"), Tool("xfs_db"));
    prove_on_each("damaged_images_may_be_written_on", |place| {
        damaged(place);
        place.mount_with("errors=continue");
        read_all(place.path());
        for number in 0..50 {
            fs::write(place.join(format!("after {number}")), pattern(number, 0, 10_000)).unwrap();
        }
        fs::remove_file(place.join("file")).unwrap();
        fs::write(place.join("file"), pattern(9, 0, 500_000)).unwrap();
        is_told(fs::write(place.join("inode"), "new"));
        read_all(place.path());
        place.unmount_unjudged();
        place.mount_with("errors=continue");
        for number in 0..50 {
            let found = fs::read(place.join(format!("after {number}"))).unwrap();
            assert!(found == pattern(number, 0, 10_000));
        }
        read_all(place.path());
        place.unmount_unjudged();
    });
}

/// Asserts that in a read-only mount all data can be read, changes fail, and the image is
/// unchanged.
fn read_only(place: &mut Place, damaged: bool) {
    let before = digest(place.image());
    place.mount_read_only();
    let names: Vec<PathBuf> = vec![place.join("file"), place.join("new")];
    let is_read_only = |result: io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    };
    if damaged {
        read_all(place.path());
    }
    for path in &names {
        is_read_only(File::options().create(true).append(true).open(path).map(drop));
    }
    is_read_only(fs::create_dir(place.join("directory")));
    is_read_only(fs::remove_file(place.join("file")));
    is_read_only(fs::rename(place.join("file"), place.join("elsewhere")));
    // Reading changes no times.
    let accessed = fs::metadata(place.join("file")).unwrap().atime();
    assert!(fs::read(place.join("file")).unwrap() == pattern(9, 0, 500_000));
    assert_eq!(fs::metadata(place.join("file")).unwrap().atime(), accessed);
    place.unmount_unjudged();
    assert_eq!(digest(place.image()), before, "the image has changed");
}

#[test]
fn read_only_images_stay_as_they_are() {
    require!(Tool("debugfs"), Tool("xfs_db"));
    for format in [Format::Ext, Format::Xfs] {
        prove("read_only_images_stay_as_they_are", wanted(format), |place| {
            damaged_after(place, |place| read_only(place, false));
            read_only(place, true);
        });
    }
}
