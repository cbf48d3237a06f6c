//! Quotas of images with realtime groups: the usage of both sections is separate.

use std::collections::BTreeMap;
use std::fs;

use testkit::{effort, require, scratch};
use vfs::{Error, FileAttributesChange, FileSystem, Ino, InodeFlags, NewInode, SetAttributes};
use xfs::Xfs;

use super::guest::{REPORT, parsed};
use super::run::QuotaRun;
use super::{COUNTED, Usage, usage};
use crate::realtime_change::in_guest;
use crate::realtime_crash::Pair;

const BLOCK: u64 = 4096;
const MOUNT: &str = "set -e\nmount -t xfs -o rtdev=$2,uquota,gquota,pquota $1 /mnt\ncd /mnt\n";
const UNMOUNT: &str = "\ncd /\numount /mnt\n";

/// Runs commands in the guest's mount of an image.
fn mounted(pair: &Pair, commands: &str) -> testkit::guest::Answer {
    in_guest(std::slice::from_ref(pair), &format!("{MOUNT}{commands}{UNMOUNT}"))
}

fn flags(fs: &Xfs) -> u16 {
    fs.superblock().raw.qflags.get()
}

/// Returns the usage that the guest reports, if its kernel did not count.
fn reported(pair: &Pair) -> Usage {
    let answer = mounted(pair, REPORT);
    assert!(!answer.log.to_lowercase().contains("quotacheck"), "{}", answer.log);
    parsed(&answer.output, BLOCK)
}

/// Returns the usage that the guest's kernel counts.
fn counted(pair: &Pair) -> Usage {
    let script =
        format!("mount -t xfs -o rtdev=$2,noquota $1 /mnt\numount /mnt\n{MOUNT}{REPORT}{UNMOUNT}");
    let answer = in_guest(std::slice::from_ref(pair), &script);
    assert!(answer.log.to_lowercase().contains("quotacheck"), "{}", answer.log);
    parsed(&answer.output, BLOCK)
}

/// Returns the sums over both sections.
fn sums(usage: &Usage) -> [BTreeMap<u32, (u64, u64)>; 3] {
    let sum = |(id, (blocks, inodes, realtime)): (&u32, &(u64, u64, u64))| {
        (*id, (blocks + realtime, *inodes))
    };
    usage.each_ref().map(|kind| kind.iter().map(sum).collect())
}

fn create(fs: &Xfs, name: &str) -> Ino {
    fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap()
}

/// Changes that random ones do not make: clones, owners of files with many extents, files of the data section.
fn change_more(fs: &Xfs) {
    let many = create(fs, "many");
    for nth in 0..700 {
        fs.write(many, nth * 2 * BLOCK, &[1; BLOCK as usize], None).unwrap();
    }
    let copy = create(fs, "copy");
    fs.share_blocks((many, 0), (copy, 0), 1399 * BLOCK).unwrap();
    fs.write(copy, 0, &[2; 10 * BLOCK as usize], None).unwrap();
    fs.set_xattr(copy, b"user.large", &[3; 9000]).unwrap();
    let owner = SetAttributes { uid: Some(77), gid: Some(78), ..SetAttributes::default() };
    fs.set_attributes(copy, &owner).unwrap();
    let project = FileAttributesChange { project_id: Some(79), ..Default::default() };
    fs.set_file_attributes(many, &project).unwrap();
    fs.truncate(many, 100 * BLOCK, None).unwrap();
    let plain = create(fs, "plain");
    let clear = InodeFlags::REALTIME;
    let change = FileAttributesChange { clear, ..FileAttributesChange::default() };
    fs.set_file_attributes(plain, &change).unwrap();
    fs.write(plain, 0, &[4; 50_000], None).unwrap();
    fs.set_attributes(plain, &owner).unwrap();
    let gone = create(fs, "gone");
    fs.write(gone, 0, &[5; 50_000], None).unwrap();
    fs.set_attributes(gone, &owner).unwrap();
    fs.unlink(fs.root(), b"gone", None).unwrap();
}

/// The guest makes the quota files, and reports the usage after our changes without counting again.
#[test]
fn usage_of_both_sections_is_that_of_the_guest() {
    require!(Guest("XFS_QUOTA"), Guest("XFS_RT"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = scratch();
    let kinds = ["", ",extsize=64k"];
    for (seed, options) in effort(&kinds[..1], &kinds[..1], &kinds[..]).iter().enumerate() {
        let pair = Pair::make_groups(folder.path(), &format!("image{seed}"), options);
        mounted(&pair, "xfs_io -f -c 'pwrite -q 0 100k' file\nchown 5:6 file");
        let mut run = QuotaRun::new(pair.open(), seed as u64);
        assert_eq!(flags(&run.fs) & COUNTED, COUNTED);
        run.steps(effort(500, 2000, 10_000));
        if options.is_empty() {
            change_more(&run.fs);
        }
        let expected = usage(&run.fs);
        assert!(expected[0].values().any(|(.., realtime)| *realtime > 0));
        run.fs.sync().unwrap();
        let crashed = Pair::in_folder(folder.path(), &format!("crashed{seed}"));
        fs::copy(&pair.image, &crashed.image).unwrap();
        fs::copy(&pair.realtime, &crashed.realtime).unwrap();
        Xfs::close(run.fs).unwrap();
        pair.assert_sound();
        for pair in [&pair, &crashed] {
            let found = reported(pair);
            // Maps as shown here end with the file, and some files have blocks after it.
            assert_eq!(sums(&found), sums(&expected), "{options:?}");
            assert_eq!(found, counted(pair), "{options:?}");
            pair.assert_sound();
        }
        // The guest changes it again.
        mounted(&pair, "xfs_io -f -c 'pwrite -q 0 200k' theirs\nchown 9 theirs\nrm file");
        pair.assert_sound();
    }
}

/// Limits of realtime blocks are independent of those of other blocks.
#[test]
fn limits_of_realtime_blocks_are_enforced() {
    require!(Guest("XFS_QUOTA"), Guest("XFS_RT"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    let folder = scratch();
    let pair = Pair::make_groups(folder.path(), "image", "");
    mounted(
        &pair,
        "touch w\nchown 1000 w\nxfs_quota -x -c 'limit -u rtbhard=1m bhard=4k 1000' /mnt",
    );
    let fs = pair.open();
    let file = fs.lookup(fs.root(), b"w").unwrap();
    fs.write(file, 0, &vec![1; 1 << 20], None).unwrap();
    let refused = fs.write(file, 1 << 20, &[1], None);
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
    fs.truncate(file, 0, None).unwrap();
    fs.write(file, 0, &vec![1; 1 << 20], None).unwrap();
    Xfs::close(fs).unwrap();
    pair.assert_sound();
    let answer = mounted(&pair, "! xfs_io -c 'pwrite -q 1m 4k' -c fsync w 2>&1");
    assert!(answer.output.contains("quota"), "{}", answer.output);
}
