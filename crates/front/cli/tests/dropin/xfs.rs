//! Programs for XFS: their effects and exit statuses.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::{contents, done, file, home, run};

#[test]
fn a_directory_becomes_an_image() {
    let home = home();
    let dir = home.path();
    file(dir, "image", 320 << 20);
    done(
        dir,
        "mkfs.xfs -q -L root -m uuid=0a28e812-3747-40bc-8194-e08e509097d0,reflink=1 -K -p tree image",
    );
    assert_eq!(contents(dir, "image", "/etc/file-17"), "17");
    assert_eq!(fs::metadata(dir.join("image")).unwrap().len(), 320 << 20);
    // Existing contents are kept without -f.
    let again = run(dir, "mkfs.xfs -q image");
    assert_eq!(again.status, 1, "{again:?}");
    assert!(again.messages.contains("-f"), "{again:?}");
    assert_eq!(contents(dir, "image", "/etc/file-17"), "17");
    done(dir, "mkfs.xfs -q -f image");
    testkit::require!(Tool("xfs_repair"));
    testkit::xfs_repair(dir.join("image"));
}

#[test]
fn geometry_is_what_was_asked_for() {
    let home = home();
    let dir = home.path();
    for (number, (options, lines)) in [
        ("-d size=400m,agcount=2", ["agcount=2, agsize=51200 blks", "blocks=102400, imaxpct=25"]),
        ("-b size=2k -d size=320m -i size=1024", ["isize=1024", "bsize=2048   blocks=163840"]),
        ("-d size=102400b,agsize=200m -l size=64m", ["agcount=2, ", "blocks=16384, version=2"]),
        (
            "-d size=1g -m rmapbt=0,finobt=0,reflink=0 -i maxpct=10",
            ["finobt=0, sparse=1, rmapbt=0", "imaxpct=10"],
        ),
        (
            "-d size=1g -n size=8k,parent=0 -i exchange=0",
            ["bsize=8192   ascii-ci=0, ftype=1, parent=0", "exchange=0"],
        ),
        ("-d size=1g -s size=4k", ["sectsz=4096", "agcount=4"]),
    ]
    .into_iter()
    .enumerate()
    {
        let image = format!("image-{number}");
        let said = done(dir, &format!("mkfs.xfs {options} {image}"));
        assert_eq!(said, done(dir, &format!("xfs_info {image}")));
        for line in lines {
            assert!(said.contains(line), "{options}: {line} is not in {said}");
        }
        testkit::require!(Tool("xfs_repair"));
        testkit::xfs_repair(dir.join(image));
    }
}

#[test]
fn an_image_grows() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.xfs -q -d size=320m,agcount=2 -p tree image");
    assert!(done(dir, "xfs_growfs image").contains("data size unchanged"));
    assert!(done(dir, "xfs_growfs -n image").contains("blocks=81920"));
    let grown = done(dir, "xfs_growfs -D 131072 image");
    assert!(grown.contains("data blocks changed from 81920 to 131072"), "{grown}");
    File::options().write(true).open(dir.join("image")).unwrap().set_len(1 << 30).unwrap();
    assert!(done(dir, "xfs_growfs -d image").contains("to 262144"));
    assert_eq!(contents(dir, "image", "/etc/file-17"), "17");
    testkit::require!(Tool("xfs_repair"));
    testkit::xfs_repair(dir.join("image"));
}

#[test]
fn a_repair_ends_as_xfs_repair_does() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.xfs -q -d size=320m -p tree image");
    done(dir, "xfs_repair -n image");
    done(dir, "xfs_repair -f image");
    done(dir, "fsck.xfs -a image");
    // The free block count in the second group's header.
    let device = File::options().read(true).write(true).open(dir.join("image")).unwrap();
    let group = (320 << 20) / 4;
    device.write_all_at(&[0xff; 4], group + 512 + 52).unwrap();
    assert_eq!(run(dir, "xfs_repair -n image").status, 1);
    assert_eq!(run(dir, "xfs_repair -e image").status, 4);
    done(dir, "xfs_repair -n image");
    testkit::require!(Tool("xfs_repair"));
    testkit::xfs_repair(dir.join("image"));
}

#[test]
fn invalid_requests_have_the_status_of_the_original() {
    let home = home();
    let dir = home.path();
    file(dir, "zeros", 1 << 20);
    done(dir, "mkfs.ext4 -q ext 8M");
    for line in [
        "mkfs.xfs",
        "mkfs.xfs nothing",
        "mkfs.xfs zeros",
        "mkfs.xfs -d size=200m a",
        "mkfs.xfs -d size=1g,agcount=2,agsize=200m a",
        "mkfs.xfs -d size=1g -b size=3000 a",
        "mkfs.xfs -d size=1g -i size=100 a",
        "mkfs.xfs -d size=1g -i sparkles=1 a",
        "mkfs.xfs -d size=1g -m crc=0 a",
        "mkfs.xfs -d size=1g -m finobt=2 a",
        "mkfs.xfs -d size=1g -L thirteen-bytes a",
        "mkfs.xfs -d size=1g -p nothing a",
        "mkfs.xfs -d size=1g a b",
        "xfs_repair",
        "xfs_repair zeros",
        "xfs_repair ext",
        "xfs_growfs ext",
        "xfs_info zeros",
    ] {
        let ended = run(dir, line);
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        assert!(!ended.messages.is_empty(), "{line}");
    }
    assert!(!dir.join("a").exists() && !dir.join("nothing").exists());
}
