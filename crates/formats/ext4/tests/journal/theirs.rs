//! Logs written by debugfs and the kernel.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ext4::format::jbd2::{FastCommitTag, MAGIC};
use ext4::log::recover;
use ext4::{Ext4, OpenOptions};
use testkit::guest::{self, Access, Kernel};
use testkit::{
    Ignore, KernelMount, Mke2fs, MountOptions, Tree, assert_same, e2fsck, effort, require, scratch,
};
use vfs::Paths;

use crate::changing::open;
use crate::journal::support::{
    Config, JournalImage, copy, debugfs_script, device, e2fsck_replay, needs_recovery, read_block,
};

#[test]
fn we_replay_what_debugfs_logs() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let features = ["", "^64bit", "^metadata_csum", "^metadata_csum,^64bit"];
    for (features, block_size) in features.into_iter().flat_map(|f| [(f, 1024), (f, 4096)]) {
        for open in ["jo", "jo -c", "jo -c -v 2", "jo -c -v 3"] {
            let image = JournalImage::new(&Config { fs_type: "ext4", block_size, features });
            let b = &image.blocks;
            let file = |name: &str, blocks: &[Vec<u8>]| {
                let path = image.path.with_extension(name);
                fs::write(&path, blocks.concat()).unwrap();
                path.display().to_string()
            };
            let mut escaped = image.pattern(2);
            escaped[..4].copy_from_slice(&MAGIC.to_be_bytes());
            let one = file("one", &[image.pattern(1), escaped.clone(), image.pattern(3)]);
            let two = file("two", &[image.pattern(4)]);
            // debugfs computes a wrong checksum of version 1 from the second transaction on: e2fsck and the kernel
            // reject its log.
            let is_v1 = features.contains("metadata_csum") && open != "jo";
            let second = format!("jw -b {} -r {} {two}\n", b[0], b[2]);
            let second = if is_v1 { "" } else { &second };
            debugfs_script(
                &image.path,
                &format!("{open}\njw -b {},{},{} {one}\n{second}jc\n", b[0], b[1], b[2]),
            );
            assert!(needs_recovery(&image.path));
            let by_e2fsck = image.copy("by-e2fsck");
            e2fsck_replay(&by_e2fsck);
            let report = recover(&*image.device()).unwrap();
            let counts = (report.transactions, report.blocks_replayed, report.blocks_revoked);
            assert_eq!(counts, if is_v1 { (1, 3, 0) } else { (2, 3, 1) }, "{features} {open}");
            let (first, third) = if is_v1 {
                (image.pattern(1), image.pattern(3))
            } else {
                (image.pattern(4), image.original(2))
            };
            let expected = [first, escaped, third, image.original(3)];
            for (&block, bytes) in b.iter().zip(&expected) {
                assert!(read_block(&image.path, block, image.block_size) == *bytes);
                assert!(read_block(&by_e2fsck, block, image.block_size) == *bytes);
            }
            e2fsck(&image.path);
        }
    }
}

/// Makes changes of many kinds.
fn change(root: &Path, round: u32) {
    let dir = root.join(format!("dir{round}"));
    fs::create_dir(&dir).unwrap();
    for index in 0..150 {
        fs::write(dir.join(format!("file-{index}")), vec![index as u8; index * 40]).unwrap();
    }
    for index in (0..150).step_by(3) {
        fs::remove_file(dir.join(format!("file-{index}"))).unwrap();
    }
    fs::rename(dir.join("file-1"), root.join(format!("moved{round}"))).unwrap();
    std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
    let mut journal_like = MAGIC.to_be_bytes().to_vec();
    journal_like.resize(9000, round as u8);
    fs::write(root.join("starts-with-the-magic"), journal_like).unwrap();
    if round > 0 {
        let old = root.join(format!("dir{}", round - 1));
        fs::remove_dir_all(old).unwrap();
    }
}

fn sync(root: &Path) {
    assert!(Command::new("sync").arg("-f").arg(root).status().unwrap().success());
}

/// Copies an image while the kernel has it mounted. Returns its tree.
fn crashed(directory: &Path, features: &str, block_size: u32, options: &str) -> Tree {
    let path = directory.join("live");
    let mut mke2fs = Mke2fs::new("ext4").block_size(block_size).arguments(["-J", "size=4"]);
    if !features.is_empty() {
        mke2fs = mke2fs.features(features);
    }
    mke2fs.create(&path, 64 << 20);
    let extra = [options, "noinit_itable"].join(if options.is_empty() { "" } else { "," });
    let mount = KernelMount::new(
        &path,
        &MountOptions { extra: &extra, ..MountOptions::read_write("ext4") },
    );
    for round in 0..4 {
        change(mount.path(), round);
        sync(mount.path());
    }
    let tree = Tree::of(mount.path());
    sync(mount.path());
    copy_at_rest(&path, &directory.join("crashed"));
    mount.unmount();
    tree
}

/// Makes a consistent copy of an image in use. Long after a sync, the kernel may still write blocks back and then free
/// their log space. A copy with the old blocks and the new journal would lack both.
fn copy_at_rest(live: &Path, to: &Path) {
    const TRIALS: usize = 20;
    let is_same = |_| {
        copy(live, to);
        fs::read(live).unwrap() == fs::read(to).unwrap()
    };
    assert!((0..TRIALS).any(is_same), "the kernel wrote to the image {TRIALS} times");
}

#[test]
fn we_replay_what_the_kernel_logs() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let cases = [
        ("", 4096, ""),
        ("", 1024, "data=journal"),
        ("^64bit", 1024, ""),
        ("^metadata_csum", 1024, "journal_checksum"),
        ("^metadata_csum", 4096, "journal_async_commit,data=writeback"),
        ("", 1024, "journal_async_commit,data=writeback"),
        ("^metadata_csum,^64bit", 1024, "data=journal"),
        ("^extent,^64bit", 1024, ""),
        ("bigalloc", 1024, ""),
    ];
    for (features, block_size, options) in cases {
        let directory = scratch();
        let expected = crashed(directory.path(), features, block_size, options);
        let path = directory.path().join("crashed");
        assert!(needs_recovery(&path), "{features} {options}");
        let by_e2fsck = directory.path().join("by-e2fsck");
        copy(&path, &by_e2fsck);
        e2fsck_replay(&by_e2fsck);
        let report = recover(&*device(&path)).unwrap();
        assert!(report.transactions > 0, "{features} {options}: {report:?}");
        assert!(!needs_recovery(&path));
        e2fsck(&path);
        let mount = KernelMount::new(&path, &MountOptions::read_only("ext4"));
        assert_same(&expected, &Tree::of(mount.path()), &Ignore::default());
        mount.unmount();
        same_but_for_superblocks(&path, &by_e2fsck, block_size);
    }
}

/// Asserts that two images have the same blocks, except superblocks of the file system and of the journal, and
/// descriptors. e2fsck sets "uninitialised" flags in descriptors where it can.
fn same_but_for_superblocks(ours: &Path, theirs: &Path, block_size: u32) {
    let (ours, theirs) = (fs::read(ours).unwrap(), fs::read(theirs).unwrap());
    let size = block_size as usize;
    let differing: Vec<usize> = (0..ours.len() / size)
        .filter(|block| ours[block * size..][..size] != theirs[block * size..][..size])
        .collect();
    let is_superblock = |block: &usize| {
        let bytes = &ours[block * size..][..size];
        *block <= 1024 / size + 1
            || bytes.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4])
            || bytes[0x38..0x3a] == [0x53, 0xef]
    };
    let others: Vec<_> = differing.into_iter().filter(|block| !is_superblock(block)).collect();
    assert!(others.is_empty(), "blocks differ: {others:?}");
}

/// Features and mount options with which the guest's kernel leaves a log.
const GUEST_LOGS: [(&str, &str); 8] = [
    ("quota,project", "usrquota,grpquota,prjquota"),
    ("quota,fast_commit", "usrquota,commit=600"),
    ("", "data=journal"),
    ("", "data=journal,journal_checksum"),
    ("^metadata_csum", "journal_checksum"),
    ("", "journal_async_commit,data=writeback"),
    ("^metadata_csum,^64bit", "journal_async_commit,data=writeback,nobarrier"),
    ("^orphan_file,^extent,^64bit", "data=writeback,dioread_lock,nodelalloc"),
];

/// The guest takes ten seconds to start.
#[test]
fn we_replay_what_the_newest_kernel_logs_with_any_mount_option() {
    const LOAD: &str = "mkdir $M/a $M/b\n\
        for n in $(seq 60); do echo $n >$M/a/file-$n; ln $M/a/file-$n $M/b/$n; done; chown 7:8 $M/a/file-5\n\
        sync; for n in $(seq 20 40); do mv $M/a/file-$n $M/b/moved-$n; rm $M/b/$n; done\n\
        truncate -s 5000 $M/a/file-2; rm $M/a/file-3; chown 9 $M/a/file-6\n\
        xfs_io -f -c 'pwrite -q 0 70k' -c fsync -c 'truncate 9999' -c fsync $M/b/synced";
    let cases = &GUEST_LOGS[..effort(0, 2, GUEST_LOGS.len())];
    if cases.is_empty() {
        return;
    }
    require!(Guest("QUOTA"), GuestTree, Tool("mke2fs"), Tool("e2fsck"));
    let directory = scratch();
    let [ours, theirs] = ["ours", "theirs"].map(|name| directory.path().join(name));
    for (number, (features, options)) in cases.iter().enumerate() {
        for is_log_flushed in [true, false] {
            // *full* tests the first options in both states, and the others in turn.
            if effort(true, true, false) && number > 0 && is_log_flushed == (number % 2 == 0) {
                continue;
            }
            let what = format!("{features} {options} {is_log_flushed}");
            let made = Mke2fs::new("ext4").block_size(1024);
            let made = if features.is_empty() { made } else { made.features(features) };
            made.create(&ours, 32 << 20);
            guest::crash_with(&ours, Kernel::Newest, options, LOAD, is_log_flushed);
            assert!(needs_recovery(&ours), "{what}");
            copy(&ours, &theirs);
            open(device(&ours), 1 << 20)
                .and_then(|fs| fs.close())
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(!needs_recovery(&ours), "{what}");
            e2fsck(&ours);
            let shown = |image: &Path, access| {
                guest::shown(image, Kernel::Newest, access, "")
                    .unwrap_or_else(|e| panic!("{what}: {e}"))
            };
            let expected = shown(&theirs, Access::ReadWrite);
            assert!(expected.nodes.len() > 60, "{what}: {}", expected.nodes.len());
            assert_same(&expected, &shown(&ours, Access::ReadOnly), &Ignore::default());
        }
    }
}

#[test]
fn fast_commits_are_handed_out_and_the_log_waits_for_them() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for block_size in [1024, 4096] {
        let directory = scratch();
        let (crashed, _) = with_fast_commits(directory.path(), block_size, "fast_commit", |root| {
            for index in 0..5 {
                let file = root.join(format!("fast-{index}"));
                fs::write(&file, vec![7; 5000]).unwrap();
                fs::File::open(&file).unwrap().sync_all().unwrap();
            }
        });
        let report = recover(&*device(&crashed)).unwrap();
        assert!(report.transactions > 0);
        let created: Vec<String> = report
            .fast_commits
            .iter()
            .filter_map(|tag| match tag {
                FastCommitTag::Create(entry) => Some(String::from_utf8_lossy(&entry.name).into()),
                _ => None,
            })
            .collect();
        for index in 0..5 {
            assert!(created.contains(&format!("fast-{index}")), "{created:?}");
        }
        let has = |wanted: fn(&FastCommitTag) -> bool| report.fast_commits.iter().any(wanted);
        assert!(has(|tag| matches!(tag, FastCommitTag::AddRange { .. })));
        assert!(has(|tag| matches!(tag, FastCommitTag::Inode { .. })));
        assert!(report.resume.is_some());
        assert!(needs_recovery(&crashed));
        // Recovery can be repeated any number of times, and the kernel still finds the fast commits.
        assert_eq!(recover(&*device(&crashed)).unwrap().fast_commits, report.fast_commits);
        let mount = KernelMount::new(&crashed, &MountOptions::read_write("ext4"));
        assert_eq!(fs::read(mount.path().join("fast-4")).unwrap(), vec![7; 5000]);
        mount.unmount();
        e2fsck(&crashed);
    }
}

/// Options that prevent periodic full commits by the kernel, however slow the machine is.
fn without_timer() -> MountOptions<'static> {
    MountOptions { extra: "commit=600,noinit_itable", ..MountOptions::read_write("ext4") }
}

/// Makes changes that the kernel logs as fast commits. Each is made durable by an fsync.
fn change_fast(root: &Path, round: u32) {
    let fsync = |path: &Path| fs::File::open(path).unwrap().sync_all().unwrap();
    let name = |name: &str| root.join(format!("{name}-{round}"));
    let file = name("appended");
    for piece in 0..3 {
        let mut open = fs::File::options().create(true).append(true).open(&file).unwrap();
        open.write_all(&vec![piece; 7000]).unwrap();
        open.sync_all().unwrap();
    }
    fs::hard_link(&file, name("linked")).unwrap();
    fs::write(name("gone"), vec![9; 20_000]).unwrap();
    fsync(&name("gone"));
    fs::remove_file(name("gone")).unwrap();
    fs::rename(&file, name("renamed")).unwrap();
    fsync(&name("renamed"));
    let shrunk = name("shrunk");
    fs::write(&shrunk, vec![3; 50_000]).unwrap();
    fsync(&shrunk);
    fs::File::options().write(true).open(&shrunk).unwrap().set_len(9_999).unwrap();
    fs::create_dir(name("dir")).unwrap();
    fs::write(name("dir").join("inside"), "x").unwrap();
    fsync(&name("dir").join("inside"));
    let old = root.join("old");
    if round == 0 {
        fs::remove_file(old).unwrap();
    }
    let sparse = fs::File::create(name("sparse")).unwrap();
    sparse.write_all_at(&[1; 100], 1 << 20).unwrap();
    sparse.write_all_at(&[2; 100], 5000).unwrap();
    sparse.sync_all().unwrap();
    fsync(&shrunk);
}

#[test]
fn fast_commits_are_applied_in_one_step() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (block_size, features) in
        [(1024, "fast_commit"), (4096, "fast_commit"), (1024, "fast_commit,^metadata_csum")]
    {
        let directory = scratch();
        let (crashed, expected) =
            with_fast_commits(directory.path(), block_size, features, |root| {
                change_fast(root, 0);
                change_fast(root, 1);
            });
        // A read-only open shows the changes and does not modify the image.
        let before = fs::read(&crashed).unwrap();
        let fs = Ext4::open(device(&crashed), &OpenOptions::default()).unwrap();
        assert_eq!(Paths::new(&fs).read(b"/renamed-1", 1 << 20).unwrap().len(), 21_000);
        drop(fs);
        assert!(fs::read(&crashed).unwrap() == before);
        let report = recover(&*device(&crashed)).unwrap();
        assert!(report.fast_commits.len() > 30, "{report:?}");
        let killed = directory.path().join("killed");
        copy(&crashed, &killed);

        let fs = Ext4::open_writable(device(&crashed), &OpenOptions::default()).unwrap();
        fs.close().unwrap();
        check_tree(&crashed, &expected);
        // Killed right after the changes were made, before any block was written back.
        drop(Ext4::open_writable(device(&killed), &OpenOptions::default()).unwrap());
        assert!(needs_recovery(&killed));
        assert!(recover(&*device(&killed)).unwrap().fast_commits.is_empty());
        check_tree(&killed, &expected);
    }
}

/// Copies an image in use whose journal ends in many fast commits. Returns its tree.
///
/// A `sync(2)` by any process makes the kernel commit every file system in full. Then there are no fast commits left,
/// or the copy is inconsistent, so the copy is retried.
fn with_fast_commits(
    directory: &Path,
    block_size: u32,
    features: &str,
    change: fn(&Path),
) -> (PathBuf, Tree) {
    const TRIALS: usize = 20;
    let (live, crashed) = (directory.join("live"), directory.join("crashed"));
    for _ in 0..TRIALS {
        Mke2fs::new("ext4")
            .block_size(block_size)
            .features(features)
            .arguments(["-J", "fast_commit_size=1024"])
            .create(&live, 64 << 20);
        let mount = KernelMount::new(&live, &without_timer());
        fs::write(mount.path().join("old"), vec![5; 30_000]).unwrap();
        sync(mount.path());
        let before = commits(mount.path());
        change(mount.path());
        let expected = Tree::of(mount.path());
        copy_at_rest(&live, &crashed);
        let is_undisturbed = commits(mount.path()) == before;
        mount.unmount();
        if is_undisturbed {
            return (crashed, expected);
        }
    }
    panic!("{TRIALS} times, the kernel committed in full");
}

/// Returns the kernel's statistics on full commits of a mounted file system: "N transactions (M requested), …".
fn commits(root: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == root.to_str()).unwrap();
    let device = line.split(' ').next().unwrap().trim_start_matches("/dev/");
    let journals = fs::read_dir("/proc/fs/jbd2").unwrap().map(|entry| entry.unwrap().path());
    let is_its = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.strip_prefix(device).is_some_and(|rest| rest.starts_with('-'))
    };
    let info = fs::read_to_string(journals.into_iter().find(is_its).unwrap().join("info")).unwrap();
    info.lines().next().unwrap().to_owned()
}

/// Checks an image, and compares its tree without the times of directories, which fast commits do not contain.
fn check_tree(path: &Path, expected: &Tree) {
    e2fsck(path);
    let mount = KernelMount::new(path, &MountOptions::read_only("ext4"));
    let ignore = Ignore { mtime: true, root: true, ..Ignore::default() };
    assert_same(expected, &Tree::of(mount.path()), &ignore);
    mount.unmount();
}
