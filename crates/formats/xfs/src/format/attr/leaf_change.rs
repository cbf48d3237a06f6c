//! Changing leaves.

use super::super::bytes::{put16, put32};
use super::leaf::{
    ALIGNMENT, AttrLeafEntry, AttrLeafHeader, ENTRY_SIZE, LOCAL_SIZE, MAPS, REMOTE_SIZE, Value,
    count, entries, entry, local_size, remote_size,
};
use super::{AttrLayout, flags};
use crate::format::edit::Edit;

/// An entry to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewEntry<'a> {
    /// Hash of the name; for parent pointers also of the parent.
    pub hash: u32,
    /// Its namespace.
    pub namespace: u8,
    /// The name.
    pub name: &'a [u8],
    /// The value or its location.
    pub value: Value<'a>,
}

impl<'a> NewEntry<'a> {
    /// Returns the size of its name area in bytes.
    fn size(&self) -> usize {
        match self.value {
            Value::Local(value) => local_size(self.name.len(), value.len()),
            Value::Remote(_) => remote_size(self.name.len()),
        }
    }

    /// Returns the total size in a leaf in bytes.
    pub(crate) fn content_size(&self) -> usize {
        ENTRY_SIZE + self.size()
    }

    fn flags(&self) -> u8 {
        let local = if matches!(self.value, Value::Local(_)) { flags::LOCAL } else { 0 };
        self.namespace | local
    }

    fn write(&self, at: &mut [u8]) {
        at.fill(0);
        let start = match self.value {
            Value::Local(value) => {
                put16(at, 0, value.len() as u16);
                let end = LOCAL_SIZE + self.name.len();
                at[end..end + value.len()].copy_from_slice(value);
                LOCAL_SIZE
            }
            Value::Remote(place) => {
                put32(at, 0, place.block);
                put32(at, 4, place.len);
                REMOTE_SIZE
            }
        };
        at[start - 1] = self.name.len() as u8;
        at[start..start + self.name.len()].copy_from_slice(self.name);
    }

    /// Converts a stored entry. Keeps its flag for incomplete entries.
    fn from_stored(stored: &AttrLeafEntry<'a>) -> Self {
        let AttrLeafEntry { hash, flags, name, value, .. } = *stored;
        Self { hash, namespace: flags & !flags::LOCAL, name, value }
    }
}

/// Returns whether there is room for an entry, contiguous or not.
pub(crate) fn has_room(layout: AttrLayout, data: &[u8], new: &NewEntry<'_>) -> bool {
    AttrLeafHeader::read(layout, data).free(layout) >= new.content_size()
}

/// Adds an entry at `index`, which must keep the order of hashes. There must be room (`has_room`).
pub(crate) fn insert(block: &mut impl Edit, layout: AttrLayout, index: usize, new: &NewEntry<'_>) {
    let mut header = AttrLeafHeader::read(layout, block.bytes());
    let size = new.size();
    let place = match find_room(layout, block.bytes(), &header, size) {
        Some(place) => place,
        None => {
            compact(block, layout);
            header = AttrLeafHeader::read(layout, block.bytes());
            header.first_used - size
        }
    };
    new.write(block.edit(place..place + size));
    let at = layout.leaf_header() + index * ENTRY_SIZE;
    let end = header.table_end(layout);
    let table = block.edit(at..end + ENTRY_SIZE);
    table.copy_within(..end - at, ENTRY_SIZE);
    write_entry(table, new.hash, place, new.flags());
    let old_first = header.first_used;
    header.count += 1;
    header.used += size;
    header.first_used = old_first.min(place);
    let holes = header.maps.map(|map| {
        // Space is allocated from the end of a hole.
        let is_it = map.0 >= old_first && map.1 >= size && map.0 + map.1 == place + size;
        if is_it { (map.0, map.1 - size) } else { map }
    });
    write_header(block, layout, &mut header, holes.iter().filter(|map| map.0 >= old_first));
}

fn write_entry(at: &mut [u8], hash: u32, place: usize, flags: u8) {
    put32(at, 0, hash);
    put16(at, 4, place as u16);
    at[6] = flags;
    at[7] = 0;
}

/// Finds `size` contiguous free bytes, with room for another entry in the table.
fn find_room(
    layout: AttrLayout,
    data: &[u8],
    header: &AttrLeafHeader,
    size: usize,
) -> Option<usize> {
    let gap = header.first_used - header.table_end(layout);
    if gap >= size + ENTRY_SIZE {
        return Some(header.first_used - size);
    }
    let fits = |map: &&(usize, usize)| map.0 >= header.first_used && map.1 >= size;
    let hole = header.maps.iter().find(fits).filter(|_| gap >= ENTRY_SIZE)?;
    let place = hole.0 + hole.1 - size;
    // Kernels are known to have recorded used space as free.
    let is_apart = |e: AttrLeafEntry<'_>| e.place + e.size() <= place || e.place >= place + size;
    entries(layout, data).all(is_apart).then_some(place)
}

/// Removes entry `index`. The caller frees the blocks of its value.
pub(crate) fn remove(block: &mut impl Edit, layout: AttrLayout, index: usize) {
    let mut header = AttrLeafHeader::read(layout, block.bytes());
    let Some(removed) = entry(layout, block.bytes(), index) else { return };
    let (place, size) = (removed.place, removed.size());
    let at = layout.leaf_header() + index * ENTRY_SIZE;
    let end = header.table_end(layout);
    let table = block.edit(at..end);
    table.copy_within(ENTRY_SIZE.., 0);
    let last = table.len() - ENTRY_SIZE;
    table[last..].fill(0);
    block.edit(place..place + size).fill(0);
    let old_first = header.first_used;
    header.count -= 1;
    header.used -= size;
    if place == old_first {
        let places = entries(layout, block.bytes()).map(|entry| entry.place);
        header.first_used = places.take(header.count).min().unwrap_or(layout.block_size);
    }
    // The table still includes the removed entry here, which is zero.
    let first = header.first_used;
    let holes = join(header.maps.iter().filter(|map| map.0 >= old_first), (place, size));
    write_header(block, layout, &mut header, holes.iter().filter(|map| map.0 >= first));
}

/// Adds a free run to others, joined with adjacent ones.
fn join<'m>(
    maps: impl Iterator<Item = &'m (usize, usize)>,
    mut new: (usize, usize),
) -> [(usize, usize); MAPS + 1] {
    let mut holes = [(0, 0); MAPS + 1];
    let mut kept = 0;
    for &(first, size) in maps.filter(|map| map.1 != 0) {
        if first + size == new.0 {
            new = (first, size + new.1);
        } else if new.0 + new.1 == first {
            new.1 += size;
        } else {
            holes[kept] = (first, size);
            kept += 1;
        }
    }
    holes[kept] = new;
    holes
}

/// Writes the header. The first free run is the gap between table and names; the others are the largest of `holes`,
/// which must be above the start of the names.
fn write_header<'m>(
    block: &mut impl Edit,
    layout: AttrLayout,
    header: &mut AttrLeafHeader,
    holes: impl Iterator<Item = &'m (usize, usize)>,
) {
    let table_end = header.table_end(layout);
    let gap = header.first_used - table_end;
    let mut maps = [(0, 0); MAPS];
    if gap > 0 {
        maps[0] = (table_end, gap);
    }
    for &hole in holes {
        // Keep the two largest: a larger one replaces the smaller one.
        let smaller = if maps[1].1 <= maps[2].1 { 1 } else { 2 };
        if hole.1 > maps[smaller].1 {
            maps[smaller] = hole;
        }
    }
    header.maps = maps;
    // Without this flag, kernels put names into the gap regardless of its size.
    header.holes = gap != header.free(layout);
    let at = layout.info_size();
    let bytes = block.edit(at..at + 8 + MAPS * 4);
    put16(bytes, 0, header.count as u16);
    put16(bytes, 2, header.used as u16);
    // 65536 is stored as 0.
    put16(bytes, 4, header.first_used as u16);
    bytes[6] = header.holes.into();
    bytes[7] = 0;
    for (i, map) in maps.iter().enumerate() {
        put16(bytes, 8 + i * 4, map.0 as u16);
        put16(bytes, 10 + i * 4, map.1 as u16);
    }
}

/// Moves all names to the end of the block, without holes.
fn compact(block: &mut impl Edit, layout: AttrLayout) {
    let old = block.bytes().to_vec();
    let all = entries(layout, &old).map(|entry| NewEntry::from_stored(&entry));
    fill(block, layout, all);
}

/// Fills a leaf with these entries, which must be in order and fit. The common header is kept.
pub(crate) fn fill<'a>(
    block: &mut impl Edit,
    layout: AttrLayout,
    all: impl IntoIterator<Item = NewEntry<'a>>,
) {
    let bytes = block.edit(layout.info_size()..layout.block_size);
    let base = layout.info_size();
    bytes.fill(0);
    let (mut count, mut first_used) = (0, layout.block_size);
    for new in all {
        first_used -= new.size();
        new.write(&mut bytes[first_used - base..][..new.size()]);
        let at = layout.leaf_header() + count * ENTRY_SIZE - base;
        write_entry(&mut bytes[at..], new.hash, first_used, new.flags());
        count += 1;
    }
    let used = layout.block_size - first_used;
    debug_assert!(used.is_multiple_of(ALIGNMENT));
    let mut header = AttrLeafHeader { count, used, first_used, holes: false, maps: [(0, 0); MAPS] };
    write_header(block, layout, &mut header, [].iter());
}

/// Returns all entries of a leaf, to be stored in another.
pub(crate) fn stored(layout: AttrLayout, data: &[u8]) -> impl Iterator<Item = NewEntry<'_>> {
    entries(layout, data).map(|entry| NewEntry::from_stored(&entry))
}

/// Overwrites the value of entry `index`, which must be local and of the same length.
pub(crate) fn overwrite(block: &mut impl Edit, layout: AttrLayout, index: usize, value: &[u8]) {
    let Some(entry) = entry(layout, block.bytes(), index) else { return };
    let start = entry.place + LOCAL_SIZE + entry.name.len();
    block.edit(start..start + value.len()).copy_from_slice(value);
}

/// Returns where to split a leaf so that `new` fits at `index`: the number of entries, including `new`, that stay.
/// `None` if it does not fit with any split.
pub(crate) fn cut_for(
    layout: AttrLayout,
    data: &[u8],
    index: usize,
    new: &NewEntry<'_>,
) -> Option<usize> {
    let room = super::leaf::capacity(layout);
    let total = super::leaf::content_size(layout, data) + new.content_size();
    let (mut left, mut best) = (0, None);
    for at in 0..count(layout, data) {
        left += match at.cmp(&index) {
            std::cmp::Ordering::Less => stored_size(layout, data, at),
            std::cmp::Ordering::Equal => new.content_size(),
            std::cmp::Ordering::Greater => stored_size(layout, data, at - 1),
        };
        let larger = left.max(total.saturating_sub(left));
        if larger <= room && best.is_none_or(|(_, size)| larger < size) {
            best = Some((at + 1, larger));
        }
    }
    best.map(|(cut, _)| cut)
}

/// Returns where to split a leaf of at least two entries into halves of about the same size.
pub(crate) fn cut_in_half(layout: AttrLayout, data: &[u8]) -> usize {
    let half = super::leaf::content_size(layout, data) / 2;
    let count = count(layout, data);
    let (mut left, mut at) = (0, 0);
    while at < count && left < half {
        left += stored_size(layout, data, at);
        at += 1;
    }
    at.clamp(1, count.saturating_sub(1).max(1))
}

fn stored_size(layout: AttrLayout, data: &[u8], index: usize) -> usize {
    entry(layout, data, index).map_or(0, |entry| ENTRY_SIZE + entry.size())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::leaf::{self, verify};
    use super::super::remote;
    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert { hash: u32, name: Vec<u8>, value: Result<Vec<u8>, u32> },
        Remove(usize),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let name = prop::collection::vec(any::<u8>(), 1..60);
        let value = prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..90).prop_map(Ok),
            1 => (1_u32..65536).prop_map(Err),
        ];
        let insert = (0_u32..50, name, value).prop_map(|(hash, name, value)| Change::Insert {
            hash,
            name,
            value,
        });
        let remove = any::<usize>().prop_map(Change::Remove);
        prop::collection::vec(prop_oneof![3 => insert, 2 => remove], 1..120)
    }

    type Model = Vec<(u32, Vec<u8>, Result<Vec<u8>, u32>)>;

    fn new_entry((hash, name, value): &(u32, Vec<u8>, Result<Vec<u8>, u32>)) -> NewEntry<'_> {
        let value = match value {
            Ok(value) => Value::Local(value),
            Err(len) => Value::Remote(remote::ValueLocation { block: 5, len: *len }),
        };
        NewEntry { hash: *hash, namespace: flags::ROOT, name, value }
    }

    fn check(layout: AttrLayout, block: &[u8], model: &Model) {
        verify(layout, block).unwrap();
        let header = AttrLeafHeader::read(layout, block);
        let maps = header.maps.iter().filter(|map| map.1 != 0);
        // Free runs must not overlap names, table or each other.
        let mut bytes = vec![false; layout.block_size];
        bytes[..header.table_end(layout)].fill(true);
        for entry in entries(layout, block) {
            bytes[entry.place..entry.place + entry.size()].fill(true);
        }
        for map in maps {
            let range = &mut bytes[map.0..map.0 + map.1];
            assert!(range.iter().all(|taken| !taken));
            range.fill(true);
        }
        let found: Vec<_> = stored(layout, block).collect();
        let expected: Vec<_> = model.iter().map(new_entry).collect();
        assert_eq!(found, expected);
    }

    fn run(layout: AttrLayout, all: Vec<Change>) {
        let mut block = vec![0; layout.block_size];
        put16(&mut block, 8, layout.magic(super::super::BlockType::Leaf));
        fill(&mut block, layout, []);
        let mut model = Model::new();
        for change in all {
            match change {
                Change::Insert { hash, name, value } => {
                    let new = (hash, name, value);
                    let index = leaf::lower_bound(layout, &block, hash);
                    assert_eq!(index, model.partition_point(|entry| entry.0 < hash));
                    if has_room(layout, &block, &new_entry(&new)) {
                        insert(&mut block, layout, index, &new_entry(&new));
                        model.insert(index, new);
                    } else if let Some(cut) = cut_for(layout, &block, index, &new_entry(&new)) {
                        let sizes: Vec<usize> = model[..index]
                            .iter()
                            .chain([&new])
                            .chain(&model[index..])
                            .map(|entry| new_entry(entry).content_size())
                            .collect();
                        let (left, right) = sizes.split_at(cut);
                        assert!(!left.is_empty() && !right.is_empty());
                        assert!(left.iter().sum::<usize>() <= leaf::capacity(layout));
                        assert!(right.iter().sum::<usize>() <= leaf::capacity(layout));
                    }
                }
                Change::Remove(at) if !model.is_empty() => {
                    let at = at % model.len();
                    remove(&mut block, layout, at);
                    let _ = model.remove(at);
                }
                Change::Remove(_) => {}
            }
            check(layout, &block, &model);
        }
    }

    proptest! {
        #[test]
        fn leaves_hold_what_was_put_in(all in changes()) {
            run(AttrLayout { block_size: 1024, crc: true }, all.clone());
            run(AttrLayout { block_size: 512, crc: false }, all.clone());
            run(AttrLayout { block_size: 65536, crc: true }, all);
        }

        #[test]
        fn any_bytes_are_read_without_harm(
            mut block in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 512),
            count in 0_u16..30,
        ) {
            for crc in [true, false] {
                let layout = AttrLayout { block_size: 512, crc };
                put16(&mut block, layout.info_size(), count);
                let _ = verify(layout, &block);
                let _ = super::super::node::verify(layout, &block);
                let found = entries(layout, &block).filter(|entry| !entry.name.is_empty()).count();
                prop_assert!(found <= leaf::count(layout, &block));
                let _ = leaf::lower_bound(layout, &block, 7);
                let _ = super::super::node::find(layout, &block, 7);
            }
        }
    }
}
