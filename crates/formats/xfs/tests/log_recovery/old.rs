//! Logs of version 4, which the stable guest's kernel leaves at a crash. They are replayed in memory to read or check an
//! image, and by a repair.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use testkit::crash::{read_image, write_image};
use testkit::fs_tree::{FsTree, Rules};
use testkit::guest::{self, Access, Kernel};
use testkit::{Ignore, MkfsXfs, differences, effort, require, scratch, xfs_repair_verdict};
use xfs::{OpenOptions, Xfs};

use super::support::{MIB, copy};
use crate::checking::findings;
use crate::repair::subject::repaired;

/// Options of `mkfs.xfs` and of the mount.
const KINDS: [(&str, &str); 4] = [
    ("", ""),
    ("-b size=1024 -n ftype=1 -l version=1", "uquota,pquota,wsync"),
    ("-i size=1024 -l su=64k -n size=16384", "uquota,gquota"),
    ("-b size=512 -i attr=1,projid32bit=0 -l lazy-count=0", "gquota"),
];

/// Changes of names, contents, attributes and owners, partly before a `sync`.
const LOAD: &str = r#"
mkdir $M/a $M/b $M/c
for n in $(seq 60); do
    head -c $((n * 700)) /dev/urandom >$M/a/$n
done
for n in 0 1 2 3 4 5 6 7 8 9; do
    chown $((n % 5 * 1000)):$((n % 3)) $M/a/*$n
done
sync
cp $M/a/? $M/a/[1-4]? $M/b/
for n in 0 1 2 3 4 5 6 7 8 9; do
    setfattr -n user.name -v value-$n $M/b/*$n
done
for n in $(seq 40); do
    ln $M/b/$n "$M/c/a longer name, so that the directory needs blocks $n"
done
ln -s ../a/40 $M/c/link
mknod $M/c/node c 10 7
rm $M/a/1? $M/b/2?
mv $M/a/3? $M/c/
truncate -s 100000 $M/a/40
sync $M/b/*
rm $M/c/3?"#;

fn tree(image: &Path) -> FsTree {
    let device = Arc::new(FileDevice::new(File::open(image).unwrap()).unwrap());
    FsTree::of(&Xfs::open(device, &OpenOptions::default()).unwrap()).unwrap()
}

fn assert_replayed(mkfs: &str, options: &str, is_log_flushed: bool) {
    let what = format!("{mkfs:?}, {options:?}, flushed: {is_log_flushed}");
    let home = scratch();
    let image = home.path().join("image");
    MkfsXfs::default().options("-m crc=0").options(mkfs).create(&image, 96 * MIB);
    guest::crash_with(&image, Kernel::Stable, options, LOAD, is_log_flushed);
    let (theirs, ours) = (copy(&image, "theirs"), image.with_extension("ours"));
    let shown = |image: &Path| {
        guest::shown(image, Kernel::Stable, Access::ReadWrite, options)
            .unwrap_or_else(|complaint| panic!("{what}: {complaint}"))
    };
    let expected = shown(&theirs);
    assert!(expected.nodes.len() > 60, "{what}: {}", expected.nodes.len());

    let in_memory = tree(&image).differences(&tree(&theirs), Rules::default());
    assert!(in_memory.is_empty(), "{what}: {in_memory:?}");
    let crashed = read_image(&image).unwrap();
    let found = findings(Arc::new(crashed.fork())).unwrap();
    assert!(found.is_empty(), "{what}: {found:#?}");

    let repaired = repaired(crashed).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(repaired.left.is_empty() && repaired.is_complete, "{what}: {:?}", repaired.left);
    write_image(&repaired.device, &ours).unwrap();
    xfs_repair_verdict(&ours).unwrap_or_else(|found| panic!("{what}: {found}"));
    let log = guest::mount_log(&copy(&ours, "mounted"), Kernel::Stable, Access::ReadWrite, options);
    let log = log.unwrap_or_else(|complaint| panic!("{what}: {complaint}"));
    assert!(!log.contains("recovery"), "{what}: {log}");
    let found = differences(&expected, &shown(&ours), &Ignore::default());
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn logs_of_version_4_are_replayed_as_the_guest_does() {
    require!(StableGuest("XFS_SUPPORT_V4"), GuestTree, Tool("mkfs.xfs"), Tool("xfs_repair"));
    let kinds = effort(&KINDS[..0], &KINDS[..1], &KINDS[..]);
    for (nth, (mkfs, options)) in kinds.iter().enumerate() {
        assert_replayed(mkfs, options, nth % 2 == 0);
    }
}
