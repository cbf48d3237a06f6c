//! Quotas as the guest's kernel sees them.

use std::path::Path;
use std::sync::Arc;

use disk::MemoryDevice;
use testkit::crash::{read_image, write_image};
use testkit::guest::{self, Answer, GuestJob};
use testkit::{MkfsXfs, effort, require, scratch, xfs_repair_verdict};
use vfs::{FileSystem, NewInode};

use super::run::QuotaRun;
use super::{Usage, assert_counted, open, superblock, usage};
use crate::changing::MIB;

const MOUNT: &str = "set -e\nmkdir -p /mnt/image\n\
                     mount -t xfs -o nouuid,uquota,gquota,pquota $1 /mnt/image\ncd /mnt/image\n";
const UNMOUNT: &str = "\ncd /\numount /mnt/image";

/// Runs commands in a mount of an image with quotas.
pub(super) fn mounted(image: &Path, commands: &str) -> Answer {
    let answer =
        guest::run(&GuestJob::new(format!("{MOUNT}{commands}{UNMOUNT}")).disk(image, false));
    assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
    answer
}

/// Commands that report all usage in a mount.
pub(super) const REPORT: &str = "\nfor kind in u g p; do echo \"= $kind\"\n\
                                 xfs_quota -x -c \"report -$kind -b -i -r -n -N\" $PWD\ndone\n";

/// Returns the usage in the output of [`REPORT`], without identifiers that have none.
pub(super) fn parsed(output: &str, block_size: u64) -> Usage {
    let mut usage = Usage::default();
    let mut kind = 0;
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("= ") {
            kind = ["u", "g", "p"].iter().position(|known| *known == name).unwrap();
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [id, kib, _, _, _, _, inodes, _, _, _, _, realtime, ..] = fields[..]
            && let Some(id) = id.strip_prefix('#')
        {
            let blocks = |kib: &str| kib.parse::<u64>().unwrap() * 1024 / block_size;
            let counts = (blocks(kib), inodes.parse().unwrap(), blocks(realtime));
            usage[kind].insert(id.parse().unwrap(), counts);
        }
    }
    usage.iter_mut().for_each(|kind| kind.retain(|_, counts| *counts != (0, 0, 0)));
    usage
}

/// Returns the usage that the guest reports, if its kernel did not count.
pub(crate) fn reported(image: &Path, block_size: u64) -> Usage {
    let answer = mounted(image, REPORT);
    assert!(!answer.log.to_lowercase().contains("quotacheck"), "{}", answer.log);
    parsed(&answer.output, block_size)
}

/// Returns an image for which the guest has counted quotas.
pub(super) fn made(home: &Path, mkfs: &str) -> Arc<MemoryDevice> {
    let path = home.join("made");
    MkfsXfs::default().options(mkfs).create(&path, 400 * MIB);
    mounted(&path, "");
    Arc::new(read_image(&path).unwrap())
}

/// Not with *quick*: the guest starts three times for each image.
#[test]
fn the_guest_need_not_count_after_random_changes_or_a_crash() {
    require!(Guest("XFS_QUOTA"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    let kinds = [
        "",
        "-m uquota,gquota,pquota",
        "-b size=1024 -m bigtime=0",
        "-m rmapbt=0,reflink=0 -n parent=0",
    ];
    for (seed, mkfs) in effort(&kinds[..0], &kinds[..2], &kinds[..]).iter().enumerate() {
        let home = scratch();
        let device = made(home.path(), mkfs);
        let block_size = u64::from(superblock(&device).raw.blocksize.get());
        let mut run = QuotaRun::new(open(&device), seed as u64);
        run.steps(effort(4_000, 4_000, 10_000));
        let expected = usage(&run.fs);
        run.fs.sync().unwrap();
        let crashed = device.fork();
        run.fs.close().unwrap();
        assert_counted(&device);
        for (name, device) in [("closed", &*device), ("crashed", &crashed)] {
            let path = home.path().join(name);
            write_image(device, &path).unwrap();
            assert_eq!(reported(&path, block_size), expected, "{mkfs:?}, {name}");
            xfs_repair_verdict(&path).unwrap();
        }
    }
}

/// Counts changes until the first fails, and appends its error.
fn count(mut change: impl FnMut(u64) -> vfs::Result<()>) -> String {
    for nth in 0.. {
        if let Err(error) = change(nth) {
            let name = if matches!(error, vfs::Error::QuotaExceeded) { "quota" } else { "space" };
            return format!("{nth} {name}");
        }
    }
    unreachable!("there is a limit")
}

/// A group's inodes, the inodes and blocks of a project, and the blocks of a user, changed by a privileged process.
#[test]
fn limits_are_those_of_the_guest() {
    require!(Guest("XFS_QUOTA"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    if effort(true, false, false) {
        return;
    }
    let home = scratch();
    let path = home.path().join("image");
    write_image(&made(home.path(), ""), &path).unwrap();
    mounted(
        &path,
        "mkdir g p\nchown :9 g\nchmod 2777 g\nxfs_io -r -c 'chproj 42' -c 'chattr +P' p\n\
         touch w\nchown 1000 w\n\
         for l in '-u bhard=1m 1000' '-g ihard=20 9' '-p bhard=512k ihard=10 42'; do\n\
         xfs_quota -x -c \"limit $l\" /mnt/image; done",
    );
    let ours = Arc::new(read_image(&path).unwrap());
    // Each line is the number of successes, and the error.
    let script = r#"
until_error() {
    n=0
    while "$@" $n 2>/tmp/error; do n=$((n + 1)); done
    if grep -q -i 'quota' /tmp/error; then echo "$n quota"; else echo "$n space"; fi
}
new() { true >"$1/$2"; }
append() { dd if=/dev/zero of="$1" bs=64k count=1 seek="$2" conv=notrunc,fsync 2>&1 >/dev/null | { ! grep error >&2; }; }
until_error new g
until_error new p
until_error append w
until_error append p/0"#;
    let theirs = mounted(&path, script).output;
    let fs = open(&ours);
    let dir = |name: &[u8]| fs.lookup(fs.root(), name).unwrap();
    let (g, p, w) = (dir(b"g"), dir(b"p"), dir(b"w"));
    let new = NewInode { permissions: 0o644, ..NewInode::default() };
    let name = |nth: u64| nth.to_string().into_bytes();
    let piece = vec![0; 64 << 10];
    let append = |ino| count(|nth| fs.write(ino, nth * (64 << 10), &piece, None));
    let mut found = vec![
        count(|nth| fs.create(g, &name(nth), &NewInode { gid: 9, ..new }).map(drop)),
        count(|nth| fs.create(p, &name(nth), &new).map(drop)),
        append(w),
    ];
    found.push(append(fs.lookup(p, b"0").unwrap()));
    fs.close().unwrap();
    assert_eq!(found, theirs.lines().collect::<Vec<_>>());
    assert_counted(&ours);
}
