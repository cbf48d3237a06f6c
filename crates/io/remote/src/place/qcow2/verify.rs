//! Walks an image: reads each structure once and records the clusters that it uses.

use std::collections::BTreeMap;
use std::io;

use disk::BlockDevice;

use super::clusters::{self, Clusters, PAGE_CLUSTERS, Verdict};
use super::damage::{Qcow2Error, Structure, damage};
use super::header::{
    self, BITMAP_BYTES, Bitmaps, ClusterMapping, Extensions, HEADER_BYTES, Qcow2Header,
    SNAPSHOT_BYTES, TableEntry, TableLocation,
};

/// Read size for tables, in bytes.
const PIECE_BYTES: u64 = 64 << 10;

impl Qcow2Header {
    /// Reads and checks the header with its extensions.
    ///
    /// # Errors
    /// As [`Self::parse`], or if the device fails.
    pub(crate) fn read(device: &dyn BlockDevice) -> Result<Self, Qcow2Error> {
        Ok(read_header(device)?.0)
    }
}

fn read_header(device: &dyn BlockDevice) -> Result<(Qcow2Header, Option<Bitmaps>), Qcow2Error> {
    let mut bytes = [0; HEADER_BYTES];
    read_padded(device, 0, &mut bytes)?;
    let mut header = Qcow2Header::parse(&bytes)?;
    let mut cluster = vec![0; header.cluster_bytes() as usize];
    read_padded(device, 0, &mut cluster)?;
    let Extensions { bitmaps, data_file } = header.extensions(&cluster)?;
    if header.has_external_data {
        header.data_file = Some(data_file.unwrap_or_default());
    }
    Ok((header, bitmaps))
}

/// Reads bytes. Bytes past the end read as zeros.
fn read_padded(device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let there = device.len().saturating_sub(offset).min(buf.len() as u64) as usize;
    let (head, tail) = buf.split_at_mut(there);
    tail.fill(0);
    if head.is_empty() { Ok(()) } else { device.read_at(offset, head) }
}

/// Verifies that writing to an image allocates no cluster that is in use, and changes none that is shared.
///
/// # Errors
/// The first damage, an unsupported feature, or a failure of the device.
pub(crate) fn verify(device: &dyn BlockDevice) -> Result<(), Qcow2Error> {
    let (header, bitmaps) = read_header(device)?;
    let mut walk = ReferenceWalk::new(device, header)?;
    walk.claim_counts()?;
    walk.claim_active()?;
    walk.claim_snapshots()?;
    if let Some(bitmaps) = bitmaps {
        walk.claim_bitmaps(bitmaps)?;
    }
    walk.claim_l2_tables()?;
    if !walk.header.has_external_data {
        walk.refer_to_data()?;
    }
    walk.check_shared()
}

/// References to one L2 table.
struct L2Use {
    /// The first referring structure.
    structure: Structure,
    references: u64,
    /// The active L1 table refers to it. Only then are its `COPIED` flags accurate.
    is_active: bool,
    /// The table is changed in place.
    is_exclusive: bool,
}

struct ReferenceWalk<'a> {
    device: &'a dyn BlockDevice,
    header: Qcow2Header,
    /// Offsets of the existing refcount blocks, by index.
    blocks: BTreeMap<u64, u64>,
    clusters: Clusters,
    /// First cluster and structure of all claims that are not L2 tables.
    claims: BTreeMap<u64, Structure>,
    /// L2 tables by offset.
    tables: BTreeMap<u64, L2Use>,
}

impl<'a> ReferenceWalk<'a> {
    fn new(device: &'a dyn BlockDevice, header: Qcow2Header) -> Result<Self, Qcow2Error> {
        let mut walk = Self {
            device,
            header,
            blocks: BTreeMap::new(),
            clusters: Clusters::default(),
            claims: BTreeMap::new(),
            tables: BTreeMap::new(),
        };
        let table = walk.header.refcount_table;
        walk.check_inside(Structure::RefcountTable, table.offset, table.entries * 8)?;
        let mut blocks = BTreeMap::new();
        walk.for_each_entry(table, |walk, index, place| {
            if place != 0 {
                let structure = Structure::RefcountBlock(index);
                walk.header.check_aligned(structure, place)?;
                walk.check_inside(structure, place, walk.header.cluster_bytes())?;
                blocks.insert(index, place);
            }
            Ok(())
        })?;
        walk.blocks = blocks;
        Ok(walk)
    }

    /// Calls a function for each entry of a table.
    fn for_each_entry(
        &mut self,
        table: TableLocation,
        mut each: impl FnMut(&mut Self, u64, u64) -> Result<(), Qcow2Error>,
    ) -> Result<(), Qcow2Error> {
        let len = table.entries * 8;
        let mut buf = vec![0; len.min(PIECE_BYTES) as usize];
        for start in (0..len).step_by(PIECE_BYTES as usize) {
            let piece = &mut buf[..(len - start).min(PIECE_BYTES) as usize];
            read_padded(self.device, table.offset + start, piece)?;
            for (index, entry) in (start / 8..).zip(piece.as_chunks::<8>().0) {
                let entry = u64::from_be_bytes(*entry);
                if entry != 0 {
                    each(self, index, entry)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that a range ends inside the file. The last cluster may be short, so the range may end anywhere in it.
    fn check_inside(&self, structure: Structure, at: u64, len: u64) -> Result<(), Qcow2Error> {
        let (file, unit) = (self.device.len(), self.header.cluster_bytes());
        let end = at.checked_add(len);
        if at < file && end.is_some_and(|end| end <= file.next_multiple_of(unit)) {
            return Ok(());
        }
        let found = format!("bytes {at}+{len}");
        let expected = format!("inside the file of {file} bytes");
        Err(damage(structure, at, "place", expected, found))
    }

    /// Returns the refcount of a cluster.
    fn refcount(&self, cluster: u64) -> io::Result<u64> {
        let counts = self.refcounts(cluster, 1)?;
        Ok(clusters::refcount(&counts, self.header.refcount_order, self.first_in(cluster)))
    }

    /// Returns the index of a cluster in the bytes of [`Self::refcounts`].
    fn first_in(&self, cluster: u64) -> usize {
        let per_byte = (8_u64 >> self.header.refcount_order).max(1);
        (cluster % per_byte) as usize
    }

    /// Reads refcounts from one refcount block, starting at a byte boundary. Empty if the block does not exist.
    fn refcounts(&self, first: u64, count: u64) -> io::Result<Vec<u8>> {
        let (order, per_block) = (self.header.refcount_order, self.header.refcounts_per_block());
        let Some(block) = self.blocks.get(&(first / per_block)) else { return Ok(Vec::new()) };
        let start = ((first % per_block) << order) / 8;
        let len = (count.min(per_block) << order).div_ceil(8);
        let mut bytes = vec![0; len as usize];
        read_padded(self.device, block + start, &mut bytes)?;
        Ok(bytes)
    }

    /// Loads the page of refcounts that contains a cluster.
    fn load_page(&mut self, cluster: u64) -> io::Result<()> {
        let page = cluster / PAGE_CLUSTERS;
        if self.clusters.has_page(page) {
            return Ok(());
        }
        let (first, order) = (page * PAGE_CLUSTERS, self.header.refcount_order);
        let per_read = self.header.refcounts_per_block().min(PAGE_CLUSTERS);
        let mut counts = Vec::with_capacity(PAGE_CLUSTERS as usize);
        for start in (first..first + PAGE_CLUSTERS).step_by(per_read as usize) {
            let bytes = self.refcounts(start, per_read)?;
            let indexes = 0..per_read as usize;
            counts.extend(indexes.map(|index| clusters::refcount(&bytes, order, index)));
        }
        self.clusters.add_page(page, counts.into_iter());
        Ok(())
    }

    /// Records that a metadata structure uses a byte range exclusively.
    fn claim(
        &mut self,
        structure: Structure,
        offset: u64,
        len: u64,
        is_in_place: bool,
    ) -> Result<(), Qcow2Error> {
        self.check_inside(structure, offset, len)?;
        let bits = self.header.cluster_bits;
        for cluster in offset >> bits..(offset + len).div_ceil(1 << bits) {
            self.load_page(cluster)?;
            let verdict = self.clusters.claim(cluster, is_in_place);
            self.judge(verdict, structure, cluster)?;
        }
        self.claims.insert(offset >> bits, structure);
        Ok(())
    }

    fn judge(
        &self,
        verdict: Verdict,
        structure: Structure,
        cluster: u64,
    ) -> Result<(), Qcow2Error> {
        let at = cluster << self.header.cluster_bits;
        match verdict {
            Verdict::Fine => Ok(()),
            Verdict::Uncounted => Err(damage(structure, at, "refcount", "at least 1", 0)),
            Verdict::CountedAgain => {
                let (what, found) =
                    ("refcount of a cluster marked exclusive", self.refcount(cluster)?);
                Err(damage(structure, at, what, 1, found))
            }
            Verdict::Metadata => {
                let found = self.owner(cluster);
                Err(damage(structure, at, "overlap", "a cluster with one use", found))
            }
        }
    }

    /// Returns the metadata structure that uses a cluster.
    fn owner(&self, cluster: u64) -> Structure {
        let at = cluster << self.header.cluster_bits;
        let table = self.tables.get(&at).map(|table| (cluster, table.structure));
        let claim =
            self.claims.range(..=cluster).next_back().map(|(first, owner)| (*first, *owner));
        // A claim that starts here is exact. An earlier one may be a long table that extends to here.
        let exact = claim.filter(|(first, _)| *first == cluster).or(table);
        exact.or(claim).map_or(Structure::Header, |(_, owner)| owner)
    }

    fn claim_counts(&mut self) -> Result<(), Qcow2Error> {
        let (unit, table) = (self.header.cluster_bytes(), self.header.refcount_table);
        self.claim(Structure::Header, 0, unit, false)?;
        self.claim(Structure::RefcountTable, table.offset, table.entries * 8, false)?;
        let blocks: Vec<_> = self.blocks.iter().map(|(index, place)| (*index, *place)).collect();
        for (index, place) in blocks {
            self.claim(Structure::RefcountBlock(index), place, unit, false)?;
        }
        Ok(())
    }

    fn claim_active(&mut self) -> Result<(), Qcow2Error> {
        self.claim_l1(Structure::L1, None, self.header.l1)
    }

    /// Claims an L1 table, and collects its L2 tables.
    fn claim_l1(
        &mut self,
        structure: Structure,
        snapshot: Option<u32>,
        table: TableLocation,
    ) -> Result<(), Qcow2Error> {
        self.header.check_l1(structure, table)?;
        if table.entries == 0 {
            return Ok(());
        }
        self.claim(structure, table.offset, table.entries * 8, false)?;
        self.for_each_entry(table, |walk, index, entry| {
            let l2 = Structure::L2(snapshot, index);
            match header::l1_entry(entry) {
                ClusterMapping::Cluster { offset, is_exclusive } => {
                    walk.header.check_aligned(l2, offset)?;
                    walk.add_l2(l2, offset, snapshot.is_none(), is_exclusive)
                }
                ClusterMapping::Reserved(bits) => {
                    let (at, found) = (table.offset + index * 8, format!("{bits:#x}"));
                    Err(damage(structure, at, "reserved bits of an entry", 0, found))
                }
                ClusterMapping::None | ClusterMapping::Compressed { .. } => Ok(()),
            }
        })
    }

    fn add_l2(
        &mut self,
        structure: Structure,
        place: u64,
        is_active: bool,
        is_exclusive: bool,
    ) -> Result<(), Qcow2Error> {
        let Some(known) = self.tables.get_mut(&place) else {
            let first = L2Use {
                structure,
                references: 1,
                is_active,
                is_exclusive: is_active && is_exclusive,
            };
            self.tables.insert(place, first);
            return Ok(());
        };
        let is_twice = |other: Structure| match (structure, other) {
            (Structure::L2(a, _), Structure::L2(b, _)) => a == b,
            _ => false,
        };
        if is_twice(known.structure) {
            // One L1 table refers to it twice.
            let found = known.structure;
            return Err(damage(structure, place, "overlap", "a cluster with one use", found));
        }
        known.references += 1;
        Ok(())
    }

    fn claim_snapshots(&mut self) -> Result<(), Qcow2Error> {
        let (start, count) = (self.header.snapshots_offset, self.header.snapshots);
        let mut at = start;
        let mut tables = Vec::new();
        for snapshot in 0..count {
            let entry = self.entry::<SNAPSHOT_BYTES>(Structure::Snapshots, at, header::snapshot)?;
            at += entry.bytes;
            tables.push((snapshot, entry.table));
        }
        if count > 0 {
            self.claim(Structure::Snapshots, start, at - start, false)?;
        }
        for (snapshot, table) in tables {
            self.claim_l1(Structure::SnapshotL1(snapshot), Some(snapshot), table)?;
        }
        Ok(())
    }

    /// Reads one entry of a directory, which must end inside the file.
    fn entry<const BYTES: usize>(
        &self,
        structure: Structure,
        at: u64,
        parse: fn(&[u8; BYTES]) -> TableEntry,
    ) -> Result<TableEntry, Qcow2Error> {
        self.check_inside(structure, at, BYTES as u64)?;
        let mut bytes = [0; BYTES];
        read_padded(self.device, at, &mut bytes)?;
        let entry = parse(&bytes);
        self.check_inside(structure, at, entry.bytes)?;
        Ok(entry)
    }

    fn claim_bitmaps(&mut self, bitmaps: Bitmaps) -> Result<(), Qcow2Error> {
        self.claim(Structure::BitmapDirectory, bitmaps.offset, bitmaps.bytes, false)?;
        let mut at = bitmaps.offset;
        for bitmap in 0..bitmaps.count {
            let directory = Structure::BitmapDirectory;
            let entry = self.entry::<BITMAP_BYTES>(directory, at, header::bitmap)?;
            at += entry.bytes;
            let structure = Structure::BitmapTable(bitmap);
            self.header.check_l1(structure, entry.table)?;
            if entry.table.entries == 0 {
                continue;
            }
            self.claim(structure, entry.table.offset, entry.table.entries * 8, false)?;
            self.for_each_entry(entry.table, |walk, _, entry| {
                let ClusterMapping::Cluster { offset, .. } = header::l1_entry(entry & !1) else {
                    return Ok(());
                };
                let structure = Structure::BitmapData(bitmap);
                walk.header.check_aligned(structure, offset)?;
                walk.claim(structure, offset, walk.header.cluster_bytes(), false)
            })?;
        }
        Ok(())
    }

    fn claim_l2_tables(&mut self) -> Result<(), Qcow2Error> {
        let unit = self.header.cluster_bytes();
        let tables: Vec<_> = self
            .tables
            .iter()
            .map(|(place, table)| (*place, table.structure, table.references, table.is_exclusive))
            .collect();
        for (place, structure, references, is_exclusive) in tables {
            self.check_inside(structure, place, unit)?;
            let cluster = place >> self.header.cluster_bits;
            self.load_page(cluster)?;
            let verdict = self.clusters.claim(cluster, is_exclusive);
            self.judge_table(verdict, structure, cluster)?;
            let found = self.refcount(cluster)?;
            if found < references {
                let expected = format!("at least {references}");
                return Err(damage(structure, place, "refcount", expected, found));
            }
        }
        Ok(())
    }

    /// Like [`Self::judge`], for an L2 table, which must not count as its own owner.
    fn judge_table(
        &self,
        verdict: Verdict,
        structure: Structure,
        cluster: u64,
    ) -> Result<(), Qcow2Error> {
        if verdict != Verdict::Metadata {
            return self.judge(verdict, structure, cluster);
        }
        let owner = self.claims.range(..=cluster).next_back();
        let found = owner.map_or(Structure::Header, |(_, owner)| *owner);
        let at = cluster << self.header.cluster_bits;
        Err(damage(structure, at, "overlap", "a cluster with one use", found))
    }

    fn refer_to_data(&mut self) -> Result<(), Qcow2Error> {
        let entries = self.header.cluster_bytes() / 8;
        let tables: Vec<_> = self
            .tables
            .iter()
            .map(|(place, table)| (*place, table.structure, table.references, table.is_active))
            .collect();
        for (offset, structure, references, is_active) in tables {
            let Structure::L2(_, l1_index) = structure else { continue };
            self.for_each_entry(TableLocation { offset, entries }, |walk, index, entry| {
                let guest = (l1_index * entries + index) << walk.header.cluster_bits;
                match header::l2_entry(entry, &walk.header) {
                    ClusterMapping::None => Ok(()),
                    ClusterMapping::Cluster { offset, is_exclusive } => {
                        let data = Structure::Data(guest);
                        walk.header.check_aligned(data, offset)?;
                        let unit = walk.header.cluster_bytes();
                        walk.refer(data, offset, unit, references, is_active && is_exclusive)
                    }
                    ClusterMapping::Compressed { offset, bytes } => {
                        walk.refer(Structure::Compressed(guest), offset, bytes, references, false)
                    }
                    ClusterMapping::Reserved(bits) => {
                        let (at, found) = (offset + index * 8, format!("{bits:#x}"));
                        Err(damage(structure, at, "reserved bits of an entry", 0, found))
                    }
                }
            })?;
        }
        Ok(())
    }

    fn refer(
        &mut self,
        structure: Structure,
        offset: u64,
        len: u64,
        references: u64,
        is_in_place: bool,
    ) -> Result<(), Qcow2Error> {
        self.check_inside(structure, offset, len)?;
        let bits = self.header.cluster_bits;
        for cluster in offset >> bits..(offset + len).div_ceil(1 << bits) {
            self.load_page(cluster)?;
            let verdict = self.clusters.refer(cluster, references, is_in_place);
            self.judge(verdict, structure, cluster)?;
        }
        Ok(())
    }

    /// Compares the refcounts of shared data with the number of references.
    fn check_shared(&self) -> Result<(), Qcow2Error> {
        for (cluster, references) in self.clusters.shared() {
            let found = self.refcount(cluster)?;
            if found < references {
                let at = cluster << self.header.cluster_bits;
                let expected = format!("at least {references}");
                return Err(damage(Structure::Shared, at, "refcount", expected, found));
            }
        }
        Ok(())
    }
}
