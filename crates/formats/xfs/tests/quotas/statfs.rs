//! Totals of directories with the limits of their project, compared with those of the guest's kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use testkit::crash::{read_image, write_image};
use testkit::{require, scratch};
use vfs::{FileSystem, Ino};
use xfs::{OpenOptions, Xfs};

use super::guest::{made, mounted};
use super::{assert_counted, open};

/// Makes directories with projects and limits, and shows the totals: blocks, free ones, inodes, free ones.
const SCRIPT: &str = r#"
mkdir hard soft none other
for d in hard soft none other; do
    id=$(case $d in hard) echo 42;; soft) echo 43;; none) echo 44;; other) echo 45;; esac)
    xfs_io -r -c "chproj $id" -c 'chattr +P' $d
    dd if=/dev/zero of=$d/f bs=1M count=3 2>/dev/null
done
mkdir hard/sub
xfs_io -r -c 'chattr -P' other
xfs_quota -x -c 'limit -p bhard=10m ihard=20 42' $PWD
xfs_quota -x -c 'limit -p bsoft=2m bhard=11m isoft=1 43' $PWD
xfs_quota -x -c 'limit -p bhard=10m 45' $PWD
sync
for d in hard hard/sub soft none other hard/f; do echo $d $(stat -f -c '%b %f %c %d' $d); done
"#;

fn find(fs: &Xfs, path: &str) -> Ino {
    path.split('/').fold(fs.root(), |dir, name| fs.lookup(dir, name.as_bytes()).unwrap())
}

/// Returns the totals as [`SCRIPT`] shows them.
fn totals(fs: &Xfs, path: &str) -> Vec<u64> {
    let found = fs.statfs_of(find(fs, path)).unwrap();
    vec![found.blocks, found.blocks_free, found.inodes, found.inodes_free]
}

#[test]
fn totals_are_within_the_limits_of_projects() {
    require!(Guest("XFS_QUOTA"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    let home = scratch();
    let path = home.path().join("image");
    write_image(&made(home.path(), ""), &path).unwrap();
    let answer = mounted(&path, SCRIPT);
    let parse = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let numbers = numbers.split(' ').map(|number| number.parse().ok());
        Some((name.to_owned(), numbers.collect::<Option<Vec<u64>>>()?))
    };
    let theirs: BTreeMap<String, Vec<u64>> = answer.output.lines().filter_map(parse).collect();
    assert_eq!(theirs.len(), 6, "{}", answer.output);
    let device = Arc::new(read_image(&path).unwrap());
    let reading = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
    let fs = open(&device);
    for (name, theirs) in &theirs {
        let (read, written) = (totals(&reading, name), totals(&fs, name));
        assert_eq!(read, written, "{name}");
        // Kernels hold back free space for their own use.
        let is_limited = name.starts_with("hard") && name != "hard/f" || name == "soft";
        if is_limited {
            assert_eq!(&written, theirs, "{name}");
        } else {
            assert_eq!((written[0], written[2]), (theirs[0], theirs[2]), "{name}");
        }
    }
    // Changes count before their checkpoint.
    let (dir, file) = (find(&fs, "hard"), find(&fs, "hard/f"));
    let before = totals(&fs, "hard");
    fs.write(file, 3 << 20, &[1; 8192], None).unwrap();
    fs.create(dir, b"new", &vfs::NewInode::default()).unwrap();
    let after = totals(&fs, "hard");
    assert_eq!(after, [before[0], before[1] - 2, before[2], before[3] - 1]);
    Xfs::close(fs).unwrap();
    assert_counted(&device);
}
