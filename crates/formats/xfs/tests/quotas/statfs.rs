//! Totals of directories with the limits of their project, compared with those of the guest's kernel.

use std::sync::Arc;

use testkit::crash::{read_image, write_image};
use testkit::guest::totals::{MAKE_PROJECTS, SHOW_TOTALS, inode_at, parse_totals, totals_of};
use testkit::{require, scratch};
use vfs::FileSystem;
use xfs::{OpenOptions, Xfs};

use super::guest::{made, mounted};
use super::{assert_counted, open};

/// Sets the limits of the projects in the working directory.
const LIMITS: &str = r#"
xfs_quota -x -c 'limit -p bhard=10m ihard=20 42' $PWD
xfs_quota -x -c 'limit -p bsoft=2m bhard=11m isoft=1 43' $PWD
xfs_quota -x -c 'limit -p bhard=10m 45' $PWD
sync
"#;

#[test]
fn totals_are_within_the_limits_of_projects() {
    require!(Guest("XFS_QUOTA"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    let home = scratch();
    let path = home.path().join("image");
    write_image(&made(home.path(), ""), &path).unwrap();
    let answer = mounted(&path, &format!("{MAKE_PROJECTS}{LIMITS}{SHOW_TOTALS}"));
    let theirs = parse_totals(&answer.output);
    let device = Arc::new(read_image(&path).unwrap());
    let reading = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
    let fs = open(&device);
    for (name, theirs) in &theirs {
        let (read, written) = (totals_of(&reading, name), totals_of(&fs, name));
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
    let (dir, file) = (inode_at(&fs, "hard"), inode_at(&fs, "hard/f"));
    let before = totals_of(&fs, "hard");
    fs.write(file, 3 << 20, &[1; 8192], None).unwrap();
    fs.create(dir, b"new", &vfs::NewInode::default()).unwrap();
    let after = totals_of(&fs, "hard");
    assert_eq!(after, [before[0], before[1] - 2, before[2], before[3] - 1]);
    Xfs::close(fs).unwrap();
    assert_counted(&device);
}
