//! Logs that the guest's kernel leaves at a crash, with quotas and mount options that change the contents or the shape
//! of the log. They are recovered as that kernel recovers them.

use std::path::Path;

use testkit::guest::{self, Access, GuestJob, Kernel};
use testkit::{Ignore, MkfsXfs, differences, effort, require, scratch, xfs_repair_verdict};

use super::support::{MIB, by_us, copy};
use crate::checking::assert_sound;

/// Options of `mkfs.xfs` and of the mount.
///
/// Quotas log dquots, `wsync` writes a separate record for each change of names, and the sizes of log buffers decide how
/// long records are. `inode32` changes where inodes are allocated.
const KINDS: [(&str, &str); 5] = [
    ("", "uquota,gquota,pquota"),
    ("-b size=1024", "uquota,gquota,pquota,logbsize=256k,wsync"),
    ("-l su=64k", "uquota,pquota,logbsize=64k,inode32"),
    ("-m rmapbt=0,reflink=0", "gqnoenforce,logbsize=16k,logbufs=2"),
    ("-i size=1024 -n parent=0", "wsync,logbsize=128k"),
];

/// Changes with several owners, groups and one project, partly before a `sync`. Each program takes the guest tens of
/// milliseconds to start, so most of them change several files.
const LOAD: &str = r#"
mkdir $M/a $M/b $M/c
xfs_io -r -c 'chproj 42' -c 'chattr +P' $M/b
for n in $(seq 60); do
    printf "%$((n * 500))s" $n >$M/a/$n
done
for n in 0 1 2 3 4 5 6 7 8 9; do
    chown $((n % 5 * 1000)):$((n % 3)) $M/a/*$n
done
xfs_quota -x -c 'limit -u bhard=40m ihard=500 1000' $M >/dev/null 2>&1 || true
sync
cp $M/a/? $M/a/[1-4]? $M/b/
for n in 0 1 2 3 4 5 6 7 8 9; do
    chown $((n % 7 * 1000)):9 $M/b/*$n
    setfattr -n user.name -v value-$n $M/b/*$n
done
cp -l $M/b/* $M/c/
xfs_quota -x -c 'limit -g bsoft=1m isoft=300 9' $M >/dev/null 2>&1 || true
rm $M/a/1? $M/c/2?
mv $M/a/3? $M/c/
truncate -s 100000 $M/a/40
chown 77:88 $M/a/50"#;

fn assert_recovered_alike(mkfs: &str, options: &str, is_log_flushed: bool) {
    let what = format!("{mkfs:?}, {options}, flushed: {is_log_flushed}");
    let home = scratch();
    let ours = home.path().join("image");
    MkfsXfs::default().options(mkfs).create(&ours, 96 * MIB);
    guest::crash_with(&ours, Kernel::Newest, options, LOAD, is_log_flushed);
    let theirs = copy(&ours, "theirs");
    let report = by_us(&ours).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(report.items_replayed > 0, "{what}: {report:?}");
    assert_sound(&ours);
    xfs_repair_verdict(&ours).unwrap_or_else(|found| panic!("{what}: {found}"));
    let shown = |image: &Path| {
        guest::shown(image, Kernel::Newest, Access::ReadWrite, options)
            .unwrap_or_else(|complaint| panic!("{what}: {complaint}"))
    };
    let expected = shown(&theirs);
    assert!(expected.nodes.len() > 60, "{what}: {}", expected.nodes.len());
    let log = guest::mount_log(&ours, Kernel::Newest, Access::ReadWrite, options);
    let log = log.unwrap_or_else(|complaint| panic!("{what}: {complaint}"));
    assert!(!log.contains("recovery"), "{what}: {log}");
    let found = differences(&expected, &shown(&ours), &Ignore::default());
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
    if quotas(options).next().is_some() {
        let expected = quota_report(&theirs, options);
        let kinds = expected.lines().filter(|line| line.starts_with("#0 ")).count();
        assert_eq!(kinds, quotas(options).count(), "{what}: {expected}");
        assert_eq!(quota_report(&ours, options), expected, "{what}");
    }
    guest::scrub(&ours).unwrap_or_else(|found| panic!("{what}: {found}"));
}

/// Returns the options of `xfs_quota` for the quotas that a mount option list contains.
fn quotas(options: &str) -> impl Iterator<Item = &'static str> {
    [("uq", "-u"), ("gq", "-g"), ("pq", "-p")]
        .into_iter()
        .filter(|(option, _)| options.split(',').any(|word| word.starts_with(option)))
        .map(|(_, kind)| kind)
}

/// Returns usage and limits of all owners. The kernel counts the usage at the mount after a recovery by this
/// implementation; the limits are in the dquots only. A new count resets grace times, so no soft limit is exceeded.
fn quota_report(image: &Path, options: &str) -> String {
    let kinds = quotas(options).collect::<Vec<_>>().join(" ");
    let script = format!(
        "set -e\nmkdir -p /mnt/image\nmount -t xfs -o nouuid,{options} $1 /mnt/image\n\
         for kind in {kinds}; do xfs_quota -x -c \"report -bin $kind\" /mnt/image; done\n\
         umount /mnt/image"
    );
    let answer = guest::run(&GuestJob::new(script).disk(image, false));
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    answer.output.lines().filter(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Not with *quick*, because a start of the guest takes as long as many other tests.
#[test]
fn a_crash_with_quotas_or_unusual_log_buffers_is_recovered_as_the_guest_does() {
    require!(Guest("XFS_QUOTA"), GuestTree, Tool("mkfs.xfs"), Tool("xfs_repair"));
    let kinds = effort(&KINDS[..0], &KINDS[..1], &KINDS[..]);
    for (nth, (mkfs, options)) in kinds.iter().enumerate() {
        assert_recovered_alike(mkfs, options, nth % 2 == 0);
        if effort(false, false, true) {
            assert_recovered_alike(mkfs, options, nth % 2 != 0);
        }
    }
}
