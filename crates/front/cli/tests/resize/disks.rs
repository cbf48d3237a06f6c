//! Images in partitions.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;
use testkit::require;

use crate::check::common::{ends, image, object, run};

pub(super) const MIB: u64 = 1 << 20;
/// First sector and number of sectors of each partition.
type Parts<'p> = &'p [(u64, u64)];
/// Number of blocks with GPT entries.
const ENTRIES: u64 = 32;

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Returns a master boot record with partitions of these types.
pub(super) fn mbr(parts: &[(u8, u64, u64)]) -> [u8; 512] {
    let mut sector = [0; 512];
    for (slot, (kind, first, count)) in parts.iter().enumerate() {
        let at = 446 + slot * 16;
        sector[at + 4] = *kind;
        put(&mut sector, at + 8, &(*first as u32).to_le_bytes());
        put(&mut sector, at + 12, &(*count as u32).to_le_bytes());
    }
    put(&mut sector, 510, &[0x55, 0xaa]);
    sector
}

fn write_mbr(disk: &File, parts: Parts<'_>) {
    let parts: Vec<_> = parts.iter().map(|(first, count)| (0x83, *first, *count)).collect();
    disk.write_all_at(&mbr(&parts), 0).unwrap();
}

fn write_gpt(disk: &File, parts: Parts<'_>) {
    let last = disk.metadata().unwrap().len() / 512 - 1;
    disk.write_all_at(&mbr(&[(0xee, 1, last)]), 0).unwrap();
    let mut entries = vec![0; ENTRIES as usize * 512];
    for (slot, (first, count)) in parts.iter().enumerate() {
        let entry = &mut entries[slot * 128..][..128];
        entry[..16].fill(0x5a);
        entry[16..32].fill(slot as u8 + 1);
        put(entry, 32, &first.to_le_bytes());
        put(entry, 40, &(first + count - 1).to_le_bytes());
    }
    for (own, other, place) in [(1, last, 2), (last, 1, last - ENTRIES)] {
        let mut header = [0; 92];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 8, &0x1_0000_u32.to_le_bytes());
        put(&mut header, 12, &92_u32.to_le_bytes());
        for (at, value) in [(24, own), (32, other), (40, 34), (48, last - ENTRIES - 1), (72, place)]
        {
            put(&mut header, at, &value.to_le_bytes());
        }
        header[56..72].fill(9);
        put(&mut header, 80, &128_u32.to_le_bytes());
        put(&mut header, 84, &128_u32.to_le_bytes());
        put(&mut header, 88, &crc32fast::hash(&entries).to_le_bytes());
        let sum = crc32fast::hash(&header);
        put(&mut header, 16, &sum.to_le_bytes());
        disk.write_all_at(&entries, place * 512).unwrap();
        disk.write_all_at(&header, own * 512).unwrap();
    }
}

/// Creates a disk of `bytes` bytes with a partition table, and an image of 64 MiB in the partition
/// that starts at `start`.
pub(super) fn disk(bytes: u64, start: u64, write_table: impl Fn(&File)) -> TempDir {
    let home = image("--fs ext4 --size 64M");
    let path = home.path().join("disk.img");
    let disk =
        File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    disk.set_len(bytes).unwrap();
    disk.write_all_at(&std::fs::read(home.path().join("a.img")).unwrap(), start).unwrap();
    write_table(&disk);
    home
}

/// Returns first sector and number of sectors of each partition, from util-linux.
fn shown(path: &Path) -> Vec<(u64, u64)> {
    let mut partx = testkit::command("partx");
    let output =
        partx.args(["--show", "--noheadings", "-o", "START,SECTORS"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    };
    text.lines().map(numbers).collect()
}

/// Asserts that util-linux sees these partitions, with either copy of a GPT.
#[track_caller]
fn assert_table(path: &Path, is_gpt: bool, parts: Parts<'_>) {
    assert_eq!(shown(path), parts);
    if is_gpt {
        let disk = File::options().read(true).write(true).open(path).unwrap();
        let mut header = [0; 512];
        disk.read_exact_at(&mut header, 512).unwrap();
        disk.write_all_at(&[0; 512], 512).unwrap();
        assert_eq!(shown(path), parts, "by the copy at the end");
        disk.write_all_at(&header, 512).unwrap();
    }
}

#[track_caller]
pub(super) fn assert_sound(home: &TempDir, number: u32) {
    let line = format!("check disk.img --partition {number} --json");
    let report = object(home.path(), &line, 0);
    assert_eq!(report["errors"].as_u64().unwrap_or(0), 0, "{report}");
    let line = format!("cat disk.img /dir/file --partition {number}");
    assert_eq!(ends(home.path(), &line, 0), "contents");
}

#[test]
fn an_entry_grows_and_shrinks_with_its_usage() {
    require!(Tool("partx"));
    for is_gpt in [true, false] {
        let parts = [(2048, 64 * 2048), (400_000, 20_480)];
        let home = disk(250 * MIB, MIB, |disk| {
            if is_gpt { write_gpt(disk, &parts) } else { write_mbr(disk, &parts) }
        });
        let path = home.path().join("disk.img");
        assert_table(&path, is_gpt, &parts);
        let report = object(home.path(), "grow disk.img --partition 1 --size 150M --json", 0);
        assert_eq!(report["after"]["bytes"], 150 * MIB, "{report}");
        assert_eq!(report["partition"]["after"], 150 * MIB, "{report}");
        assert_eq!(report["file"]["after"], 250 * MIB, "{report}");
        assert_table(&path, is_gpt, &[(2048, 150 * 2048), parts[1]]);
        assert_sound(&home, 1);
        let before = testkit::digest(&path);
        let said = run(home.path(), "grow disk.img --partition 1 --size 220M");
        assert_eq!(said.status, 4, "{}", said.messages);
        assert!(said.messages.contains("partition 2"), "{}", said.messages);
        assert_eq!(testkit::digest(&path), before);
        let report = object(home.path(), "shrink disk.img --partition 1 --size 90M --json", 0);
        assert_eq!(report["partition"]["after"], report["after"]["bytes"], "{report}");
        assert_eq!(path.metadata().unwrap().len(), 250 * MIB);
        let sectors = report["after"]["bytes"].as_u64().unwrap() / 512;
        assert_table(&path, is_gpt, &[(2048, sectors), parts[1]]);
        assert_sound(&home, 1);
    }
}

#[test]
fn the_disk_becomes_longer_where_nothing_follows() {
    require!(Tool("partx"));
    let parts = [(2048, 2048), (8192, 64 * 2048)];
    let home = disk(80 * MIB, 4 * MIB, |disk| write_gpt(disk, &parts));
    let path = home.path().join("disk.img");
    let report = object(home.path(), "grow disk.img --partition 2 --size 500M --json", 0);
    assert_eq!(report["after"]["bytes"], 500 * MIB, "{report}");
    assert!(path.metadata().unwrap().len() > 504 * MIB);
    assert_table(&path, true, &[parts[0], (8192, 500 * 2048)]);
    assert_sound(&home, 2);
    // Destroy the GPT at the start of the disk. Extending the disk would lose the other copy, which
    // is at its end.
    let disk = File::options().write(true).open(&path).unwrap();
    disk.write_all_at(&[0; 512], 512).unwrap();
    let before = path.metadata().unwrap().len();
    let said = run(home.path(), "grow disk.img --partition 2 --size 600M");
    assert_eq!(said.status, 3, "{}", said.messages);
    assert_eq!(path.metadata().unwrap().len(), before);
    assert_sound(&home, 2);
}
