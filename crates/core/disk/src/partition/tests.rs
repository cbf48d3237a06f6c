use crate::{BlockDevice, MemoryDevice};
use proptest::prelude::*;

use super::{Partition, PartitionError, disk_for, find, read, resize};

const DISK_BYTES: u64 = 4 << 20;

fn record(entries: &[(u8, u32, u32)]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    for (slot, &(kind, first, count)) in entries.iter().enumerate() {
        let at = 446 + 16 * slot;
        sector[at + 4] = kind;
        sector[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        sector[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn places(partitions: &[Partition]) -> Vec<(u32, u64, u64)> {
    partitions.iter().map(|p| (p.number, p.offset, p.len)).collect()
}

#[test]
fn primary_and_logical_partitions_have_linux_numbers() {
    let disk = MemoryDevice::new(DISK_BYTES);
    disk.write_at(0, &record(&[(0x83, 8, 8), (0, 0, 0), (0x05, 100, 1000), (0x83, 16, 4)]))
        .unwrap();
    disk.write_at(100 * 512, &record(&[(0x83, 2, 10), (0x05, 50, 20)])).unwrap();
    disk.write_at(150 * 512, &record(&[(0x82, 2, 18)])).unwrap();
    let found = read(&disk).unwrap().unwrap();
    let unit = |(number, first, count): (u32, u64, u64)| (number, first * 512, count * 512);
    let expected = [(1, 8, 8), (4, 16, 4), (5, 102, 10), (6, 152, 18)].map(unit);
    assert_eq!(places(&found), expected);
    assert_eq!(find(&disk, 6).unwrap().len, 18 * 512);
    let missing = find(&disk, 2).unwrap_err().to_string();
    assert!(
        missing.contains("partition 2 does not exist") && missing.contains("5 (type 0x83"),
        "{missing}"
    );
}

#[test]
fn a_cyclic_chain_ends() {
    let disk = MemoryDevice::new(DISK_BYTES);
    disk.write_at(0, &record(&[(0x0f, 100, 1000)])).unwrap();
    disk.write_at(100 * 512, &record(&[(0x83, 2, 10), (0x05, 0, 20)])).unwrap();
    assert!(matches!(read(&disk), Err(PartitionError::Damaged { .. })));
}

#[test]
fn a_partition_past_the_end_is_refused() {
    let disk = MemoryDevice::new(DISK_BYTES);
    disk.write_at(0, &record(&[(0x83, 8000, 8000)])).unwrap();
    assert!(matches!(find(&disk, 1), Err(PartitionError::PastEnd { number: 1, .. })));
}

#[test]
fn no_table_is_not_an_error() {
    assert_eq!(read(&MemoryDevice::new(DISK_BYTES)).unwrap(), None);
    assert_eq!(read(&MemoryDevice::new(100)).unwrap(), None);
    assert!(matches!(find(&MemoryDevice::new(100), 1), Err(PartitionError::NoTable)));
}

/// Writes a header at `at`, with the table of entries at `entries`.
fn write_gpt(disk: &MemoryDevice, unit: u64, at: u64, entries: u64) {
    let mut table = vec![0; 128 * 128];
    for (slot, first, last) in [(0_usize, 64_u64, 127_u64), (2, 128, 128)] {
        let entry = &mut table[slot * 128..][..128];
        entry[..32].fill(7);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        entry[56..60].copy_from_slice(b"r\0t\0");
    }
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    header[72..80].copy_from_slice(&entries.to_le_bytes());
    header[80..88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
    header[88..92].copy_from_slice(&crc32fast::hash(&table).to_le_bytes());
    let sum = crc32fast::hash(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    disk.write_at(at * unit, &header).unwrap();
    disk.write_at(entries * unit, &table).unwrap();
}

#[test]
fn gpt_of_either_block_size_is_read_and_its_copy_too() {
    for unit in [512, 4096] {
        let disk = MemoryDevice::new(DISK_BYTES);
        let last = DISK_BYTES / unit - 1;
        disk.write_at(0, &record(&[(0xee, 1, u32::MAX)])).unwrap();
        write_gpt(&disk, unit, 1, 2);
        write_gpt(&disk, unit, last, last - 40);
        let expected = vec![(1, 64 * unit, 64 * unit), (3, 128 * unit, unit)];
        let found = read(&disk).unwrap().unwrap();
        assert_eq!(places(&found), expected);
        assert_eq!(found[0].description, "rt");
        disk.write_at(unit + 30, &[0x55]).unwrap();
        assert_eq!(places(&read(&disk).unwrap().unwrap()), expected, "from the copy");
        disk.write_at(last * unit + 30, &[0x55]).unwrap();
        let error = read(&disk).unwrap_err().to_string();
        assert_eq!(error, "damaged GPT partition table: wrong header checksum");
    }
}

proptest! {
    #[test]
    fn hostile_tables_are_harmless(
        sectors in prop::collection::vec(prop::collection::vec(any::<u8>(), 64), 1..8),
        kind in prop::sample::select(vec![0x05_u8, 0x0f, 0x83, 0xee]),
    ) {
        let disk = MemoryDevice::new(64 << 10);
        for (number, bytes) in sectors.iter().enumerate() {
            let mut sector = record(&[]);
            sector[446..510].copy_from_slice(bytes);
            for slot in 0..4 {
                sector[446 + 16 * slot] &= 0x80;
                // Small addresses, so that chains lead somewhere.
                sector[446 + 16 * slot + 9..446 + 16 * slot + 12].fill(0);
                sector[446 + 16 * slot + 8] %= 8;
            }
            sector[450] = kind;
            disk.write_at(number as u64 * 512, &sector).unwrap();
        }
        if let Ok(Some(partitions)) = read(&disk) {
            for partition in partitions {
                if let Ok(found) = find(&disk, partition.number) {
                    prop_assert!(found.offset + found.len <= disk.len());
                    let _ = disk_for(&disk, found.number, found.len + 4096);
                    let _ = resize(&disk, found.number, found.len + 512);
                }
            }
        }
    }
}

/// Returns the type, first sector and sector count of an entry of a record.
fn entry(disk: &MemoryDevice, sector: u64, slot: u64) -> (u8, u32, u32) {
    let mut bytes = [0; 16];
    disk.read_at(sector * 512 + 446 + slot * 16, &mut bytes).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    (bytes[4], word(8), word(12))
}

#[test]
fn the_extended_partition_grows_with_a_logical_one() {
    let disk = MemoryDevice::new(DISK_BYTES);
    disk.write_at(0, &record(&[(0x83, 8, 8), (0x05, 100, 120)])).unwrap();
    disk.write_at(100 * 512, &record(&[(0x83, 2, 10), (0x05, 50, 20)])).unwrap();
    disk.write_at(150 * 512, &record(&[(0x82, 2, 18), (0x05, 80, 30)])).unwrap();
    disk.write_at(180 * 512, &record(&[(0x83, 4, 6)])).unwrap();
    // Up to the record of the next partition, which is an obstacle like a partition.
    assert_eq!(disk_for(&disk, 6, 28 * 512).unwrap(), DISK_BYTES);
    assert!(matches!(disk_for(&disk, 6, 29 * 512), Err(PartitionError::NoRoom { number: 6, .. })));
    resize(&disk, 6, 28 * 512).unwrap();
    assert_eq!(entry(&disk, 150, 0), (0x82, 2, 28));
    assert_eq!(entry(&disk, 100, 1), (0x05, 50, 30), "it was as long as what it leads to");
    assert_eq!(entry(&disk, 150, 1), (0x05, 80, 30));
    assert_eq!(entry(&disk, 0, 1), (0x05, 100, 120));
    // The last partition extends the extended partition. The entry that leads to it covers its record, too.
    resize(&disk, 7, 100 * 512).unwrap();
    assert_eq!(entry(&disk, 180, 0), (0x83, 4, 100));
    assert_eq!(entry(&disk, 150, 1), (0x05, 80, 104));
    assert_eq!(entry(&disk, 0, 1), (0x05, 100, 184));
    assert_eq!(find(&disk, 7).unwrap().len, 100 * 512);
    resize(&disk, 7, 512).unwrap();
    assert_eq!(entry(&disk, 150, 1), (0x05, 80, 5));
    assert_eq!(entry(&disk, 0, 1), (0x05, 100, 184), "never smaller");
    // An entry that covers more than necessary stays.
    disk.write_at(150 * 512, &record(&[(0x82, 2, 28), (0x05, 80, 60)])).unwrap();
    resize(&disk, 7, 2 * 512).unwrap();
    assert_eq!(entry(&disk, 150, 1), (0x05, 80, 60));
    let error = resize(&disk, 8, 512).unwrap_err();
    assert!(matches!(error, PartitionError::NoPartition { number: 8, .. }));
}
