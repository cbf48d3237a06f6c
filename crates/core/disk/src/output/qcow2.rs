//! qcow2, version 3, with clusters of 64 KiB and 16-bit reference counts. All numbers are big-endian. Source: QEMU's
//! docs/interop/qcow2.rst.
//!
//! A cluster without data is not allocated and reads as zeros. The clusters of the file are, in this order: the header;
//! for each part of the image that one L2 table maps (512 MiB), its data and then the L2 table; the L1 table; the
//! refcount blocks; the refcount table. Every cluster is used once.

use std::fs::File;
use vfs::hint::Setting;

use crate::FileAt;

use crate::output::raw::runs;
use crate::output::{Error, OutputFormat, Raw, chunks};

const CLUSTER_BITS: u32 = 16;
const CLUSTER_BYTES: u64 = 1 << CLUSTER_BITS;

/// Number of entries of a table of one cluster.
const ENTRIES: u64 = CLUSTER_BYTES / 8;

/// Number of reference counts in a cluster. They have 16 bits, so their order is 4.
const COUNTS: u64 = CLUSTER_BYTES / 2;
const REFCOUNT_ORDER: u32 = 4;

const MAGIC: u32 = 0x5146_49fb;
const HEADER_BYTES: u32 = 104;

/// Flag in an entry of either table: the cluster has a reference count of one.
const COPIED: u64 = 1 << 63;

/// Maximum number of L1 entries that QEMU accepts (32 MiB).
const L1_ENTRIES_MAX: u64 = (32 << 20) / 8;

pub(crate) fn check(len: u64) -> Result<(), Error> {
    if tables(len) > L1_ENTRIES_MAX {
        let why = format!(
            "its maximum is {} bytes with 64 KiB clusters; make the image smaller with {}, or \
             use raw",
            L1_ENTRIES_MAX * ENTRIES * CLUSTER_BYTES,
            Setting::SIZE
        );
        return Err(Error::Unfit { format: OutputFormat::Qcow2.name(), why });
    }
    Ok(())
}

/// Returns the number of L1 entries.
fn tables(len: u64) -> u64 {
    len.div_ceil(CLUSTER_BYTES).div_ceil(ENTRIES)
}

pub(crate) fn write(raw: &Raw<'_>, out: &File, progress: &dyn Fn(u64)) -> Result<(), Error> {
    let upper = vec![0; tables(raw.len()) as usize];
    let mut writer = Qcow2Writer { out, clusters: 1, upper, lower: Vec::new(), part: 0 };
    chunks::for_each(raw, progress, |at, bytes| {
        for (range, is_zero) in runs(bytes, CLUSTER_BYTES as usize) {
            if !is_zero {
                writer.add(at + range.start as u64, &bytes[range])?;
            }
        }
        Ok::<(), Error>(())
    })?;
    writer.finish(raw.len())
}

struct Qcow2Writer<'a> {
    out: &'a File,
    /// Number of clusters of the file so far.
    clusters: u64,
    /// The L1 table: offsets of the L2 tables.
    upper: Vec<u64>,
    /// The L2 table of the current part, if that has data: offsets of its clusters.
    lower: Vec<u64>,
    /// Number of the current part.
    part: u64,
}

impl Qcow2Writer<'_> {
    /// Adds clusters of data. The last one may be short at the end of the image.
    fn add(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        for (number, data) in (at / CLUSTER_BYTES..).zip(bytes.chunks(CLUSTER_BYTES as usize)) {
            if self.part != number / ENTRIES {
                self.end_part()?;
                self.part = number / ENTRIES;
            }
            self.lower.resize(ENTRIES as usize, 0);
            self.lower[(number % ENTRIES) as usize] = self.append(data)? | COPIED;
        }
        Ok(())
    }

    /// Appends whole clusters to the file. Returns their offset.
    fn append(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let place = self.clusters * CLUSTER_BYTES;
        self.out.write_all_at(bytes, place).map_err(Error::Write)?;
        self.clusters += (bytes.len() as u64).div_ceil(CLUSTER_BYTES);
        Ok(place)
    }

    fn end_part(&mut self) -> Result<(), Error> {
        if !self.lower.is_empty() {
            let table = big_endian(&self.lower);
            self.lower.clear();
            self.upper[self.part as usize] = self.append(&table)? | COPIED;
        }
        Ok(())
    }

    fn finish(mut self, len: u64) -> Result<(), Error> {
        self.end_part()?;
        let l1_entries = self.upper.len() as u32;
        let l1 = self.append(&big_endian(&self.upper))?;
        let first = self.clusters;
        let (blocks, table_clusters) = refcounts(first);
        let all = first + blocks + table_clusters;
        let places: Vec<u64> = (first..first + blocks).map(|n| n * CLUSTER_BYTES).collect();
        for block in 0..blocks {
            let used = COUNTS.min(all - block * COUNTS) as usize;
            self.append(&[0, 1].repeat(used))?;
        }
        let refcount_table = self.append(&big_endian(&places))?;
        let mut header = Vec::with_capacity(HEADER_BYTES as usize);
        header.extend(MAGIC.to_be_bytes());
        header.extend(3_u32.to_be_bytes());
        // No backing file.
        header.extend([0; 12]);
        header.extend(CLUSTER_BITS.to_be_bytes());
        header.extend(len.to_be_bytes());
        // No encryption.
        header.extend([0; 4]);
        header.extend(l1_entries.to_be_bytes());
        header.extend(l1.to_be_bytes());
        header.extend(refcount_table.to_be_bytes());
        header.extend((table_clusters as u32).to_be_bytes());
        // No snapshots and no features.
        header.extend([0; 36]);
        header.extend(REFCOUNT_ORDER.to_be_bytes());
        header.extend(HEADER_BYTES.to_be_bytes());
        self.out.write_all_at(&header, 0).map_err(Error::Write)?;
        // Extends the last cluster to its full length.
        self.out.set_len(all * CLUSTER_BYTES).map_err(Error::Write)
    }
}

fn big_endian(entries: &[u64]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_be_bytes()).collect()
}

/// Returns the number of refcount blocks and of the clusters of their table after `clusters` other clusters. The counts
/// include these blocks and clusters.
fn refcounts(clusters: u64) -> (u64, u64) {
    let (mut blocks, mut table) = (1, 1);
    loop {
        let next = (clusters + blocks + table).div_ceil(COUNTS);
        let next_table = next.div_ceil(ENTRIES);
        if (next, next_table) == (blocks, table) {
            return (blocks, table);
        }
        (blocks, table) = (next, next_table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::raw::tests::sample;

    fn all(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn word(bytes: &[u8], at: u64) -> u64 {
        u64::from_be_bytes(bytes[at as usize..][..8].try_into().unwrap())
    }

    fn half(bytes: &[u8], at: u64) -> u64 {
        u32::from_be_bytes(bytes[at as usize..][..4].try_into().unwrap()).into()
    }

    /// Reads a cluster of the guest through the tables.
    fn cluster(file: &[u8], number: u64, used: &mut [u16]) -> Option<Vec<u8>> {
        let l1 = word(file, 40) + number / ENTRIES * 8;
        let l2 = word(file, l1) & !COPIED;
        if l2 == 0 {
            return None;
        }
        if number.is_multiple_of(ENTRIES) {
            used[(l2 / CLUSTER_BYTES) as usize] += 1;
        }
        let place = word(file, l2 + number % ENTRIES * 8);
        assert!(place == 0 || place & COPIED != 0);
        let place = place & !COPIED;
        if place == 0 {
            return None;
        }
        used[(place / CLUSTER_BYTES) as usize] += 1;
        Some(file[place as usize..][..CLUSTER_BYTES as usize].to_vec())
    }

    #[test]
    fn written_data_can_be_read_and_holes_take_no_space() {
        let (raw_file, bytes) = sample();
        // A second L2 table, whose part begins with a hole.
        let far = 600_u64 << 20;
        raw_file.write_all_at(b"far away", far).unwrap();
        raw_file.set_len(far + 4096).unwrap();
        let raw = Raw::new(&raw_file, far + 4096, Vec::new());
        let out = tempfile::tempfile().unwrap();
        write(&raw, &out, &|_| ()).unwrap();
        let file = all(&out);
        assert!(file.len() < 30 << CLUSTER_BITS, "{} bytes", file.len());
        assert_eq!((half(&file, 0), half(&file, 4), half(&file, 20)), (MAGIC.into(), 3, 16));
        assert_eq!((word(&file, 24), half(&file, 36)), (far + 4096, 2));
        assert_eq!((half(&file, 96), half(&file, 100)), (4, 104));
        let mut used = vec![0; file.len() / CLUSTER_BYTES as usize];
        for number in 0..(far + 4096).div_ceil(CLUSTER_BYTES) {
            let start = (number * CLUSTER_BYTES) as usize;
            let mut expected = vec![0; CLUSTER_BYTES as usize];
            if let Some(rest) = bytes.get(start..) {
                let count = rest.len().min(expected.len());
                expected[..count].copy_from_slice(&rest[..count]);
            }
            if start as u64 == far {
                expected[..8].copy_from_slice(b"far away");
            }
            let read = cluster(&file, number, &mut used);
            let is_hole = expected.iter().all(|byte| *byte == 0);
            assert_eq!(read.is_none(), is_hole, "cluster {number}");
            assert!(read.is_none_or(|read| read == expected), "cluster {number}");
        }
        // Every cluster is used once. The header, L1 table, refcount blocks and refcount table have not been counted
        // yet.
        let table = word(&file, 48);
        let counts = word(&file, table);
        for place in [0, word(&file, 40), counts, table] {
            used[(place / CLUSTER_BYTES) as usize] += 1;
        }
        for (number, used) in used.into_iter().enumerate() {
            let at = counts as usize + 2 * number;
            let counted = u16::from_be_bytes([file[at], file[at + 1]]);
            assert_eq!((counted, used), (1, 1), "cluster {number}");
        }
        let again = tempfile::tempfile().unwrap();
        write(&raw, &again, &|_| ()).unwrap();
        assert!(all(&again) == file);
    }

    #[test]
    fn reference_counts_count_themselves() {
        assert_eq!(refcounts(1), (1, 1));
        assert_eq!(refcounts(COUNTS - 2), (1, 1));
        assert_eq!(refcounts(COUNTS - 1), (2, 1));
        let (blocks, table) = refcounts(COUNTS * ENTRIES);
        assert_eq!(table, 2);
        assert!(blocks * COUNTS >= COUNTS * ENTRIES + blocks + table);
    }

    #[test]
    fn an_image_that_does_not_fit_is_refused() {
        assert!(check(1 << 51).is_ok());
        assert!(check((1 << 51) + 1).unwrap_err().to_string().contains("--size"));
    }
}
