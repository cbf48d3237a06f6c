//! Totals of directories with the limits of their project, compared with those of the guest's kernel.

use std::collections::BTreeMap;

use ext4::{Ext4, OpenOptions};
use testkit::guest::{self, GuestJob};
use testkit::require;
use vfs::{FileSystem, Ino};

use super::QuotaImage;
use super::usage::KINDS;

/// Makes directories with projects and limits, and shows the totals: blocks, free ones, inodes, free ones.
const SCRIPT: &str = r#"set -e
mkdir -p /mnt/image
mount -t ext4 -o prjquota $1 /mnt/image
cd /mnt/image
mkdir hard soft none other
for d in hard soft none other; do
    id=$(case $d in hard) echo 42;; soft) echo 43;; none) echo 44;; other) echo 45;; esac)
    xfs_io -r -c "chproj $id" -c 'chattr +P' $d
    dd if=/dev/zero of=$d/f bs=1M count=3 2>/dev/null
done
mkdir hard/sub
xfs_io -r -c 'chattr -P' other
sync
setquota -P 42 0 10240 0 20 $PWD
setquota -P 43 2048 11000 1 0 $PWD
setquota -P 45 0 10240 0 0 $PWD
for d in hard hard/sub soft none other hard/f; do echo $d $(stat -f -c '%b %f %c %d' $d); done
cd /
umount /mnt/image
"#;

fn find(fs: &Ext4, path: &str) -> Ino {
    path.split('/').fold(fs.root(), |dir, name| fs.lookup(dir, name.as_bytes()).unwrap())
}

/// Returns the totals as [`SCRIPT`] shows them.
fn totals(fs: &Ext4, path: &str) -> Vec<u64> {
    let found = fs.statfs_of(find(fs, path)).unwrap();
    vec![found.blocks, found.blocks_free, found.inodes, found.inodes_free]
}

#[test]
fn totals_are_within_the_limits_of_projects() {
    require!(Guest("QUOTA"), Tool("mke2fs"), Tool("e2fsck"));
    for kind in &KINDS[1..3] {
        let image = QuotaImage::new(kind);
        let answer = guest::run(&GuestJob::new(SCRIPT).disk(&image.path, false));
        assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
        let parse = |line: &str| {
            let (name, numbers) = line.split_once(' ')?;
            let numbers = numbers.split(' ').map(|number| number.parse().ok());
            Some((name.to_owned(), numbers.collect::<Option<Vec<u64>>>()?))
        };
        let theirs: BTreeMap<String, Vec<u64>> = answer.output.lines().filter_map(parse).collect();
        assert_eq!(theirs.len(), 6, "{}", answer.output);
        let reading = Ext4::open(image.device(), &OpenOptions::default()).unwrap();
        for (name, theirs) in &theirs {
            assert_eq!(&totals(&reading, name), theirs, "{name}");
        }
        drop(reading);
        let fs = image.open();
        for (name, theirs) in theirs.iter().filter(|(name, _)| *name != "none") {
            let found = totals(&fs, name);
            assert_eq!((found[0], found[2]), (theirs[0], theirs[2]), "{name}");
        }
        // Changes count before their checkpoint.
        let (dir, before) = (find(&fs, "hard"), totals(&fs, "hard"));
        fs.create(dir, b"new", &vfs::NewInode::default()).unwrap();
        let after = totals(&fs, "hard");
        assert_eq!(after, [before[0], before[1], before[2], before[3] - 1]);
        Ext4::close(fs).unwrap();
        testkit::e2fsck(&image.path);
    }
}
