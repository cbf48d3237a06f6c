//! Images in logical partitions, whose entries form a chain of records in an extended partition.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;
use testkit::require;

use super::disks::{MIB, assert_sound, disk, mbr};
use crate::check::common::{object, run};

/// First sector and number of sectors of the extended partition.
const EXTENDED: (u64, u64) = (2048, 300_000);
/// Number of sectors between a record and its partition.
const GAP: u64 = 2048;
/// Sector of the second record.
const SECOND: u64 = 200_000;
/// Sectors of an image of 64 MiB, and of the other partition.
const IMAGE: u64 = 64 * 2048;
const OTHER: u64 = 20_480;

/// Creates a disk of 250 MiB with two logical partitions, 5 and 6, with these sizes in sectors, and
/// an image in one of them.
fn logical_disk(holder: u32, first: u64, second: u64) -> TempDir {
    let start = if holder == 5 { EXTENDED.0 } else { SECOND };
    disk(250 * MIB, (start + GAP) * 512, |disk| {
        let record = |sector: u64, entries: &[(u8, u64, u64)]| {
            disk.write_all_at(&mbr(entries), sector * 512).unwrap();
        };
        record(0, &[(0x0f, EXTENDED.0, EXTENDED.1)]);
        let link = (5, SECOND - EXTENDED.0, GAP + second);
        record(EXTENDED.0, &[(0x83, GAP, first), link]);
        record(SECOND, &[(0x83, GAP, second)]);
    })
}

/// Returns number, first sector and sectors of each partition from `sfdisk`, which must find no
/// fault.
#[track_caller]
fn shown(path: &Path) -> Vec<(u64, u64, u64)> {
    let verified = testkit::command("sfdisk").arg("--verify").arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success() && said.contains("No errors detected"), "{verified:?}");
    let dump = testkit::command("sfdisk").arg("--json").arg(path).output().unwrap();
    let dump: serde_json::Value = serde_json::from_slice(&dump.stdout).unwrap();
    let partitions = dump["partitiontable"]["partitions"].as_array().unwrap();
    let one = |partition: &serde_json::Value| {
        let node = partition["node"].as_str().unwrap();
        let number = node.trim_start_matches(path.to_str().unwrap()).parse().unwrap();
        (number, partition["start"].as_u64().unwrap(), partition["size"].as_u64().unwrap())
    };
    partitions.iter().map(one).collect()
}

/// Returns the sector count in the record of the first logical partition for the second one and its
/// record.
fn linked(path: &Path) -> u64 {
    let mut count = [0; 4];
    let entry = EXTENDED.0 * 512 + 446 + 16;
    File::open(path).unwrap().read_exact_at(&mut count, entry + 12).unwrap();
    u32::from_le_bytes(count).into()
}

#[test]
fn the_first_one_grows_up_to_the_record_of_the_second() {
    require!(Tool("sfdisk"));
    let home = logical_disk(5, IMAGE, OTHER);
    let path = home.path().join("disk.img");
    let table = |first| {
        vec![(1, EXTENDED.0, EXTENDED.1), (5, EXTENDED.0 + GAP, first), (6, SECOND + GAP, OTHER)]
    };
    assert_eq!(shown(&path), table(IMAGE));
    let report = object(home.path(), "grow disk.img --partition 5 --size 90M --json", 0);
    assert_eq!(report["partition"]["after"], 90 * MIB, "{report}");
    assert_eq!(report["file"]["after"], 250 * MIB, "{report}");
    assert_eq!(shown(&path), table(90 * 2048));
    assert_eq!(linked(&path), GAP + OTHER);
    assert_sound(&home, 5);
    let before = testkit::digest(&path);
    let said = run(home.path(), "grow disk.img --partition 5 --size 110M");
    assert_eq!(said.status, 4, "{}", said.messages);
    let room = (SECOND - EXTENDED.0 - GAP) * 512;
    let expected = format!("partition 5 can grow to {room} bytes, but {} are needed", 110 * MIB);
    assert!(said.messages.contains(&expected), "{}", said.messages);
    assert!(said.messages.contains("record of another logical"), "{}", said.messages);
    assert_eq!(testkit::digest(&path), before);
    let report = object(home.path(), "shrink disk.img --partition 5 --size 70M --json", 0);
    let sectors = report["after"]["bytes"].as_u64().unwrap() / 512;
    assert_eq!(report["partition"]["after"], report["after"]["bytes"], "{report}");
    assert_eq!(shown(&path), table(sectors));
    assert_sound(&home, 5);
}

#[test]
fn the_extended_partition_and_the_disk_grow_with_the_last_one() {
    require!(Tool("sfdisk"));
    let home = logical_disk(6, OTHER, IMAGE);
    let path = home.path().join("disk.img");
    let disk = File::options().write(true).open(&path).unwrap();
    // The extended partition ends with the last partition.
    let covering = SECOND + GAP + IMAGE - EXTENDED.0;
    disk.write_all_at(&mbr(&[(0x0f, EXTENDED.0, covering)]), 0).unwrap();
    let table = |extended, second| {
        vec![(1, EXTENDED.0, extended), (5, EXTENDED.0 + GAP, OTHER), (6, SECOND + GAP, second)]
    };
    assert_eq!(shown(&path), table(covering, IMAGE));
    let report = object(home.path(), "grow disk.img --partition 6 --size 300M --json", 0);
    assert_eq!(report["after"]["bytes"], 300 * MIB, "{report}");
    assert_eq!(report["file"]["after"], (SECOND + GAP) * 512 + 300 * MIB, "{report}");
    let grown = 300 * 2048;
    assert_eq!(shown(&path), table(covering - IMAGE + grown, grown));
    assert_eq!(linked(&path), GAP + grown);
    assert_sound(&home, 6);
    // Freed space remains in the extended partition.
    let report = object(home.path(), "shrink disk.img --partition 6 --size 80M --json", 0);
    let sectors = report["after"]["bytes"].as_u64().unwrap() / 512;
    assert_eq!(shown(&path), table(covering - IMAGE + grown, sectors));
    assert_eq!(linked(&path), GAP + sectors);
    assert_sound(&home, 6);
}

#[test]
fn a_primary_partition_behind_the_extended_one_is_in_the_way() {
    let home = logical_disk(6, OTHER, IMAGE);
    let path = home.path().join("disk.img");
    let disk = File::options().write(true).open(&path).unwrap();
    let end = SECOND + GAP + IMAGE;
    let table = mbr(&[(0x0f, EXTENDED.0, end - EXTENDED.0), (0x83, end + 8192, 2048)]);
    disk.write_all_at(&table, 0).unwrap();
    let before = testkit::digest(&path);
    let said = run(home.path(), "grow disk.img --partition 6 --size 80M");
    assert_eq!(said.status, 4, "{}", said.messages);
    assert!(said.messages.contains("partition 2 follows"), "{}", said.messages);
    assert_eq!(testkit::digest(&path), before);
    // There is a gap of four megabytes between the two.
    object(home.path(), "grow disk.img --partition 6 --size 68M --json", 0);
    assert_sound(&home, 6);
}
