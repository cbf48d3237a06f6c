//! Usage is counted correctly for all owners: e2fsck recounts it.

use std::collections::BTreeMap;
use std::thread;

use ext4::{Ext4, OpenOptions};
use testkit::{debugfs, debugfs_write, e2fsck, e2fsck_verdict, require};
use vfs::{AllocateMode, Error, FileSystem, Ino, RenameMode, SetAttributes};

use super::project::{find, with_project};
use super::{QuotaImage, owned};

/// Kinds of images under test.
pub const KINDS: [&[&str]; 6] = [
    &["-b", "4096", "-O", "quota"],
    &["-b", "1024", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    &["-b", "4096", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    &["-b", "1024", "-O", "quota,^extent,^64bit,^metadata_csum", "-E", "quotatype=usrquota"],
    &["-b", "4096", "-O", "quota,^has_journal,inline_data", "-E", "quotatype=grpquota"],
    &["-b", "1024", "-O", "quota,bigalloc", "-C", "8192"],
];

/// Returns limits and usage as listed by debugfs: by id, bytes and inodes.
fn listed(image: &QuotaImage, kind: &str) -> BTreeMap<u32, (u64, u64)> {
    let text = debugfs(&image.path, &format!("list_quota {kind}"));
    let numbers =
        |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok();
    let lines = text.lines().filter_map(numbers).filter(|numbers| numbers.len() == 7);
    lines.map(|line| (line[0] as u32, (line[1], line[4]))).collect()
}

fn chown(fs: &Ext4, ino: Ino, uid: Option<u32>, gid: Option<u32>) {
    fs.set_attributes(ino, &SetAttributes { uid, gid, ..SetAttributes::default() }).unwrap();
}

#[test]
fn e2fsck_does_judge_usage() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = QuotaImage::new(KINDS[0]);
    e2fsck(&image.path);
    debugfs_write(&image.path, "set_inode_field <2> uid 5");
    assert!(e2fsck_verdict(&image.path).unwrap_err().contains("QUOTA"));
}

#[test]
fn usage_follows_what_owners_have() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    // Without a journal, because debugfs does not read it.
    let image = QuotaImage::new(&["-b", "4096", "-O", "quota,^has_journal"]);
    let fs = image.open();
    let file = fs.create(fs.root(), b"file", &owned(1000, 50)).unwrap();
    fs.write(file, 0, &[1; 40_000], None).unwrap();
    fs.mkdir(fs.root(), b"dir", &owned(1000, 60)).unwrap();
    fs.sync().unwrap();
    assert_eq!(listed(&image, "user")[&1000], (45_056, 2));
    let groups = listed(&image, "group");
    assert_eq!((groups[&50], groups[&60]), ((40_960, 1), (4096, 1)));
    fs.set_xattr(file, b"user.large", &[2; 3000]).unwrap();
    chown(&fs, file, Some(7), None);
    fs.sync().unwrap();
    let users = listed(&image, "user");
    assert_eq!((users[&1000], users[&7]), ((4096, 1), (45_056, 1)));
    fs.truncate(file, 5000, None).unwrap();
    fs.remove_xattr(file, b"user.large").unwrap();
    fs.sync().unwrap();
    assert_eq!(listed(&image, "user")[&7], (8192, 1));
    FileSystem::open(&fs, file).unwrap();
    fs.unlink(fs.root(), b"file", None).unwrap();
    fs.sync().unwrap();
    assert_eq!(listed(&image, "user")[&7], (8192, 1), "it is still open");
    FileSystem::close(&fs, file).unwrap();
    fs.rmdir(fs.root(), b"dir", None).unwrap();
    chown(&fs, fs.root(), Some(8), None);
    fs.close().unwrap();
    e2fsck(&image.path);
    let users = listed(&image, "user");
    assert_eq!((users[&1000], users[&7], users[&8]), ((0, 0), (0, 0), (4096, 1)));
}

#[test]
fn projects_are_counted_and_limits_kept() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = with_project(KINDS[1]);
    let repaired = testkit::command("e2fsck").arg("-fy").arg(&image.path).output();
    assert_eq!(repaired.unwrap().status.code(), Some(1));
    e2fsck(&image.path);
    let before = listed(&image, "project");
    assert_eq!(before[&77].1, 1);
    let fs = image.open();
    let bound = find(&fs, "bound");
    let file = fs.create(bound, b"file", &owned(3, 3)).unwrap();
    fs.allocate(file, 0, 100_000, AllocateMode::Unwritten).unwrap();
    fs.rename((bound, b"file"), (find(&fs, "free"), b"file"), RenameMode::Replace, None).unwrap();
    fs.close().unwrap();
    e2fsck(&image.path);
    let now = listed(&image, "project")[&77];
    assert_eq!((now.0 - before[&77].0, now.1), (98 * 1024, 2));
}

/// Creates and changes files of many owners at random.
fn work(fs: &Ext4, seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let ids: Vec<u32> = (0..60).map(|_| random.u32(..u32::MAX)).collect();
    let dir = format!("dir{seed}");
    let dir = fs.mkdir(fs.root(), dir.as_bytes(), &owned(ids[0], ids[1])).unwrap();
    let mut names = Vec::new();
    for step in 0..steps {
        let id = ids[random.usize(..ids.len())];
        let other = ids[random.usize(..ids.len())];
        let name = format!("{step}").into_bytes();
        if names.len() < 5 || random.u8(..) < 80 {
            match fs.create(dir, &name, &owned(id, other)) {
                Err(Error::NoInodes | Error::NoSpace) => continue,
                outcome => outcome.unwrap(),
            };
            names.push(name);
            continue;
        }
        let at = random.usize(..names.len());
        let ino = fs.lookup(dir, &names[at]).unwrap();
        let outcome = match random.u8(..6) {
            0 => fs.write(ino, random.u64(..200_000), &vec![1; random.usize(1..30_000)], None),
            1 => fs.truncate(ino, random.u64(..100_000), None),
            2 => fs.set_xattr(ino, b"user.x", &vec![1; random.usize(..900)]),
            3 => {
                chown(fs, ino, Some(id), random.bool().then_some(other));
                Ok(())
            }
            4 => fs.link(ino, dir, &name, None).map(|()| names.push(name)),
            _ => fs.unlink(dir, &names.swap_remove(at), None),
        };
        assert!(matches!(outcome, Ok(()) | Err(Error::NoSpace)), "{outcome:?}");
    }
}

#[test]
fn usage_of_many_owners_is_right_after_random_changes() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for arguments in KINDS {
        let image = QuotaImage::new(arguments);
        for round in 0..3 {
            let fs = image.open();
            thread::scope(|scope| {
                for part in 0..4 {
                    let fs = &fs;
                    scope.spawn(move || work(fs, round * 4 + part, 400));
                }
            });
            fs.close().unwrap();
            super::check(&image.path);
        }
    }
}

#[test]
fn a_full_file_system_refuses_a_new_owner_and_stays_valid() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = QuotaImage::new(KINDS[1]);
    let fs = image.open();
    let file = fs.create(fs.root(), b"file", &owned(0, 0)).unwrap();
    while fs.write(file, fs.attributes(file).unwrap().size, &[1; 1 << 20], None).is_ok() {}
    while fs.write(file, fs.attributes(file).unwrap().size, &[1; 1 << 10], None).is_ok() {}
    let free = fs.statfs().unwrap().blocks_free;
    let mut refused = 0;
    for id in (0..u32::MAX).step_by(u32::MAX as usize / 50) {
        let change = SetAttributes { uid: Some(id), ..SetAttributes::default() };
        match fs.set_attributes(file, &change) {
            Err(Error::NoSpace) => refused += 1,
            outcome => outcome.unwrap(),
        }
    }
    assert!(refused > 0, "{free} blocks were free");
    fs.close().unwrap();
    super::check(&image.path);
}

#[test]
fn damaged_quota_files_are_refused_as_they_are() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let made = QuotaImage::new(KINDS[0]);
    let text = debugfs(&made.path, "bmap <3> 0");
    let block: u64 = text.lines().find_map(|line| line.trim().parse().ok()).unwrap();
    let original = made.in_memory();
    let at = block * 4096;
    // Magic number, version, number of blocks, pointers from the root, pointers to the leaf.
    let damage: [(u64, u32); 7] =
        [(0, 1), (4, 0), (20, 1), (20, 9), (1024, 1), (1024, 6), (4096, 7)];
    for (offset, value) in damage {
        let device = std::sync::Arc::new(original.fork());
        disk::BlockDevice::write_at(&*device, at + offset, &value.to_le_bytes()).unwrap();
        let outcome = Ext4::open_writable(device.clone(), &OpenOptions::default());
        let what = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(what.contains("quota file"), "{offset}, {value}: {what:?}");
        Ext4::open(device, &OpenOptions::default()).unwrap();
    }
}

/// Kinds of images in which attribute values are in separate inodes.
const WITH_VALUES: [&[&str]; 3] = [
    &["-b", "4096", "-O", "quota,ea_inode,^has_journal"],
    &["-b", "1024", "-O", "quota,ea_inode,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    &["-b", "1024", "-O", "quota,ea_inode,bigalloc", "-C", "8192"],
];

#[test]
fn values_in_separate_inodes_count_for_the_owner_of_the_file() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = QuotaImage::new(WITH_VALUES[0]);
    let fs = image.open();
    let usage = |id| {
        fs.sync().unwrap();
        listed(&image, "user").get(&id).copied().unwrap_or_default()
    };
    let file = fs.create(fs.root(), b"file", &owned(1000, 50)).unwrap();
    assert_eq!(usage(1000), (0, 1));
    fs.set_xattr(file, b"user.large", &[2; 9000]).unwrap();
    assert_eq!(usage(1000), (12 << 10, 2));
    fs.set_xattr(file, b"user.larger", &[3; 20_000]).unwrap();
    assert_eq!(usage(1000), (32 << 10, 3));
    chown(&fs, file, Some(7), None);
    assert_eq!((usage(1000), usage(7)), ((0, 0), (32 << 10, 3)));
    fs.set_xattr(file, b"user.large", b"small").unwrap();
    assert_eq!(usage(7), (20 << 10, 2));
    fs.remove_xattr(file, b"user.larger").unwrap();
    assert_eq!(usage(7), (0, 1));
    fs.set_xattr(file, b"user.large", &[4; 5000]).unwrap();
    fs.unlink(fs.root(), b"file", None).unwrap();
    assert_eq!(usage(7), (0, 0));
    fs.close().unwrap();
    e2fsck(&image.path);
}

/// Changes attributes, owners and names at random.
fn work_with_values(fs: &Ext4, dir: Ino, seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut names = Vec::new();
    for step in 0..steps {
        let (id, other) = (random.u32(..9), random.u32(..9));
        if names.len() < 4 {
            names.push(format!("{seed}-{step}").into_bytes());
            fs.create(dir, &names[names.len() - 1], &owned(id, other)).unwrap();
        }
        let at = random.usize(..names.len());
        let ino = fs.lookup(dir, &names[at]).unwrap();
        let name = format!("user.{}", random.u8(..3)).into_bytes();
        let outcome = match random.u8(..8) {
            0..4 => fs.set_xattr(ino, &name, &vec![step as u8; random.usize(..9000)]),
            4 => fs.remove_xattr(ino, &name),
            5 | 6 => {
                chown(fs, ino, random.bool().then_some(id), random.bool().then_some(other));
                Ok(())
            }
            _ => fs.unlink(dir, &names.swap_remove(at), None),
        };
        let may_fail = |error: &Error| {
            matches!(error, Error::NoSpace | Error::NoAttribute | Error::AttributeTooLarge(_))
        };
        assert!(outcome.as_ref().err().is_none_or(may_fail), "{outcome:?}");
    }
}

#[test]
fn usage_with_values_in_inodes_is_right_after_random_changes() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for arguments in WITH_VALUES {
        let image = QuotaImage::new(arguments);
        for round in 0..2 {
            let fs = image.open();
            let dirs = [0, 1].map(|part| {
                fs.mkdir(fs.root(), format!("{round}-{part}").as_bytes(), &owned(1, 2)).unwrap()
            });
            thread::scope(|scope| {
                for (part, dir) in (0..).zip(dirs) {
                    let fs = &fs;
                    scope.spawn(move || work_with_values(fs, dir, round * 2 + part, 300));
                }
            });
            fs.close().unwrap();
            super::check(&image.path);
        }
    }
}

/// The kernel shares values and attribute blocks between inodes, which this crate only keeps. e2fsprogs count the usage
/// before, because kernels without quotas mount no image with them.
#[test]
fn usage_of_values_that_the_kernel_shared_is_kept() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("tune2fs"), Mount("ext4"));
    let image = QuotaImage::new(&["-b", "1024", "-O", "ea_inode"]);
    let mount = testkit::KernelMount::new(&image.path, &testkit::MountOptions::read_write("ext4"));
    for number in 0..6_u32 {
        let path = mount.path().join(number.to_string());
        std::fs::write(&path, "contents").unwrap();
        std::os::unix::fs::chown(&path, Some(number % 3), Some(number % 2)).unwrap();
        for name in ["user.a", "user.b", "user.c"] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, name, &[b'v'; 6000], flags).unwrap();
        }
    }
    mount.unmount();
    let tuned = testkit::command("tune2fs").args(["-O", "quota"]).arg(&image.path).output();
    assert!(tuned.unwrap().status.success());
    let _ = testkit::command("e2fsck").arg("-fy").arg(&image.path).output().unwrap();
    e2fsck(&image.path);
    let fs = image.open();
    let find = |name: &[u8]| fs.lookup(fs.root(), name).unwrap();
    chown(&fs, find(b"0"), Some(8), Some(8));
    fs.set_xattr(find(b"1"), b"user.a", b"small").unwrap();
    fs.remove_xattr(find(b"2"), b"user.b").unwrap();
    fs.set_xattr(find(b"3"), b"user.d", &[b'v'; 6000]).unwrap();
    fs.unlink(fs.root(), b"4", None).unwrap();
    fs.close().unwrap();
    super::check(&image.path);
}
