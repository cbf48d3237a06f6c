//! Damaged group headers are refused when an image is opened, with errors that name location and field.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use testkit::{MkfsXfs, xfs_db_write};
use vfs::{Error, FileSystem};
use xfs::{OpenOptions, Xfs};

const SIZE: u64 = 320 << 20;

fn open(image: &Path) -> vfs::Result<Xfs> {
    let file = std::fs::File::open(image).unwrap();
    Xfs::open(Arc::new(FileDevice::new(file).unwrap()), &OpenOptions::default())
}

/// Returns the error for an image with a changed `field` in a header of group 2.
fn complaint(header: &str, field: &str, value: &str) -> String {
    let home = testkit::scratch();
    let image = home.path().join("image");
    MkfsXfs::default().create(&image, SIZE);
    xfs_db_write(&image, &[&format!("{header} 2"), &format!("write -d {field} {value}")]);
    match open(&image) {
        Err(Error::Corrupt(damage)) => damage.to_string(),
        Err(error) => panic!("{header} {field}: {error}"),
        Ok(_) => panic!("{header} {field}: opened"),
    }
}

#[test]
fn each_number_is_checked() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_db"));
    let cases = [
        ("agf", "magicnum", "1", "AGF"),
        ("agf", "versionnum", "2", "versionnum"),
        ("agf", "seqno", "7", "another group"),
        ("agf", "length", "100", "length"),
        ("agf", "bnoroot", "0", "root of a tree"),
        ("agf", "cntroot", "0xffffffff", "root of a tree"),
        ("agf", "rmaplevel", "0", "levels of a tree"),
        ("agf", "refcntlevel", "10", "levels of a tree"),
        ("agf", "flfirst", "119", "flfirst"),
        ("agf", "fllast", "0x80000000", "fllast"),
        ("agf", "flcount", "100", "flcount"),
        ("agf", "flcount", "120", "flcount"),
        ("agf", "freeblks", "0xffffffff", "freeblks"),
        ("agf", "longest", "0x7fffffff", "longest"),
        ("agf", "btreeblks", "0xfffffff0", "btreeblks"),
        ("agi", "magicnum", "1", "AGI"),
        ("agi", "length", "1", "length"),
        ("agi", "count", "0xffffffff", "count"),
        ("agi", "freecount", "1000", "freecount"),
        ("agi", "root", "3000000", "root of a tree"),
        ("agi", "free_level", "200", "levels of a tree"),
        ("agfl", "magicnum", "1", "AGFL"),
        ("agfl", "seqno", "1", "another group"),
    ];
    for (header, field, value, expected) in cases {
        let said = complaint(header, field, value);
        assert!(said.contains("group 2"), "{header} {field}: {said}");
        assert!(said.contains(expected), "{header} {field}: {said}");
    }
}

#[test]
fn a_wrong_checksum_is_reported() {
    testkit::require!(Tool("mkfs.xfs"));
    let home = testkit::scratch();
    let image = home.path().join("image");
    MkfsXfs::default().options("-d agsize=80m").create(&image, SIZE);
    let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
    // In the spare bytes of the AGF, in sector 1 of group 2.
    file.write_all_at(&[1], 2 * (80 << 20) + 512 + 150).unwrap();
    let Err(Error::Corrupt(damage)) = open(&image) else { panic!("it is not refused") };
    let said = damage.to_string();
    assert!(said.starts_with("damaged AGF, group 2"), "{said}");
    assert!(said.contains("checksum"), "{said}");
}

#[test]
fn images_of_many_groups_and_of_all_kinds_open() {
    testkit::require!(Tool("mkfs.xfs"));
    let home = testkit::scratch();
    let image = home.path().join("image");
    for (options, size) in [
        ("-m crc=0", SIZE),
        ("-m crc=0 -b size=512 -n size=4096", SIZE),
        ("-m crc=0 -s size=4096", SIZE),
        ("-b size=1024 -s size=1024", SIZE),
        ("-d agsize=16m", 40 << 30),
    ] {
        MkfsXfs::default().options(options).create(&image, size);
        let fs = open(&image).unwrap_or_else(|error| panic!("{options}: {error}"));
        let totals = fs.statfs().unwrap();
        let raw = &fs.superblock().raw;
        assert!(totals.blocks_free <= raw.fdblocks.get(), "{options}");
        assert!(totals.blocks_free * 100 > raw.fdblocks.get() * 95, "{options}");
        assert_eq!(totals.inodes - totals.inodes_free, 3, "{options}");
    }
}
