//! Totals of directories with the limits of their project, compared with those of the guest's kernel.

use ext4::{Ext4, OpenOptions};
use testkit::guest::totals::{MAKE_PROJECTS, SHOW_TOTALS, inode_at, parse_totals, totals_of};
use testkit::guest::{self, GuestJob};
use testkit::require;
use vfs::FileSystem;

use super::QuotaImage;
use super::usage::KINDS;

/// Sets the limits of the projects in the working directory.
const LIMITS: &str = r#"
setquota -P 42 0 10240 0 20 $PWD
setquota -P 43 2048 11000 1 0 $PWD
setquota -P 45 0 10240 0 0 $PWD
"#;

#[test]
fn totals_are_within_the_limits_of_projects() {
    require!(Guest("QUOTA"), Tool("mke2fs"), Tool("e2fsck"));
    for kind in &KINDS[1..3] {
        let image = QuotaImage::new(kind);
        let script = format!(
            "set -e; mkdir -p /mnt/image; mount -t ext4 -o prjquota $1 /mnt/image; cd /mnt/image
             {MAKE_PROJECTS}{LIMITS}{SHOW_TOTALS}
             cd /; umount /mnt/image"
        );
        let answer = guest::run(&GuestJob::new(&script).disk(&image.path, false));
        assert!(answer.status == 0, "{}\n{}", answer.output, answer.log);
        let theirs = parse_totals(&answer.output);
        let reading = Ext4::open(image.device(), &OpenOptions::default()).unwrap();
        for (name, theirs) in &theirs {
            assert_eq!(&totals_of(&reading, name), theirs, "{name}");
        }
        drop(reading);
        let fs = image.open();
        for (name, theirs) in theirs.iter().filter(|(name, _)| *name != "none") {
            let found = totals_of(&fs, name);
            assert_eq!((found[0], found[2]), (theirs[0], theirs[2]), "{name}");
        }
        // Changes count before their checkpoint.
        let (dir, before) = (inode_at(&fs, "hard"), totals_of(&fs, "hard"));
        fs.create(dir, b"new", &vfs::NewInode::default()).unwrap();
        let after = totals_of(&fs, "hard");
        assert_eq!(after, [before[0], before[1], before[2], before[3] - 1]);
        Ext4::close(fs).unwrap();
        testkit::e2fsck(&image.path);
    }
}
