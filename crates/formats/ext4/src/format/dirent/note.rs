//! Data about a cached leaf, so that creating a file does not search all of it.
//!
//! The first words of a note are a Bloom filter of the names with two bits per name: if one bit is clear, the name is
//! not there. Removed names stay in the filter until it is rebuilt. The last word is the offset of a record: no record
//! before it has room for the smallest entry. A search for room starts there, so an entry goes to the same position with
//! and without a note.

use engine::Note;

use super::{Search, record_at, record_size, records};

/// Number of words of the filter.
const FILTER: usize = 16;

/// Minimum size of an entry.
const ENTRY_LEAST: usize = record_size(1);

/// Builds the note of a block.
pub(crate) fn note(block: &[u8]) -> Note {
    let mut note = [0; FILTER + 1];
    let mut first_room = None;
    for record in records(block) {
        if record.inode != 0 {
            add(&mut note, record.name);
        }
        if record.room() >= ENTRY_LEAST {
            first_room = first_room.or(Some(record.offset));
        }
    }
    note[FILTER] = first_room.unwrap_or(block.len()) as u64;
    note
}

/// Returns the word and bit of the two filter bits of a name. Names differ mostly at their ends.
fn bits(name: &[u8]) -> [(usize, u64); 2] {
    let word = |bytes: &mut dyn Iterator<Item = &u8>| {
        bytes.take(8).fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    let last = name.last_chunk().map_or_else(|| word(&mut name.iter()), |c| u64::from_le_bytes(*c));
    let first = name.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    let mixed =
        (last ^ first.rotate_left(32) ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed >> 54, mixed >> 44 & 0x3ff].map(|bit| (bit as usize / 64, 1 << (bit % 64)))
}

fn add(note: &mut Note, name: &[u8]) {
    for (word, bit) in bits(name) {
        note[word] |= bit;
    }
}

fn has(note: &Note, name: &[u8]) -> bool {
    bits(name).into_iter().all(|(word, bit)| note[word] & bit != 0)
}

/// Returns whether the filter excludes that the block contains a name. For lookups, where most names exist.
pub(crate) fn excludes(note: &Note, name: &[u8]) -> bool {
    !has(note, name)
}

/// Returns whether a block may contain a name. The filter of a full block has 10 % false positives, so the name is then
/// also searched for.
fn may_have(note: &Note, block: &[u8], name: &[u8]) -> bool {
    has(note, name) && has_end(block, name)
}

/// Returns whether the end of a name occurs anywhere in a block. Names start at multiples of four, so this need not
/// follow the chain of records, where each must be read before the next is known, and can compare many words at once.
fn has_end(block: &[u8], name: &[u8]) -> bool {
    let (words, _) = block.as_chunks::<4>();
    match name.as_chunks::<4>().0 {
        [] => true,
        [only] => words.iter().fold(false, |found, word| found | (word == only)),
        [.., before, last] => {
            let pairs = words.iter().zip(words.iter().skip(1));
            pairs.fold(false, |found, (a, b)| found | ((a == before) & (b == last)))
        }
    }
}

/// Returns the result of [`search`](super::search) if the note determines it, and the new offset for the note's last
/// word. The note never determines that the name exists.
pub(crate) fn search_noted<'b>(
    note: &Note,
    block: &'b [u8],
    name: &[u8],
) -> Option<(Search<'b>, u64)> {
    if may_have(note, block, name) {
        return None;
    }
    let needed = record_size(name.len());
    let mut offset = usize::try_from(note[FILTER]).ok()?;
    let mut first_room = None;
    while let Some(record) = record_at(block, offset) {
        let room = record.room();
        if room >= ENTRY_LEAST {
            first_room = first_room.or(Some(offset));
        }
        if room >= needed {
            let (used, rec_len) = (record.used(), record.rec_len);
            let found = Search::Room { offset, used, rec_len };
            return Some((found, first_room.unwrap_or(offset) as u64));
        }
        offset += record.rec_len;
    }
    Some((Search::Full, first_room.unwrap_or(offset) as u64))
}

/// Sets the last word of a note.
pub(crate) fn note_first_room(note: &mut Note, offset: u64) {
    note[FILTER] = offset;
}

/// Updates a note for an entry that is written after the `used` bytes of the record at `offset`.
pub(crate) fn note_entry(note: &mut Note, name: &[u8], (offset, used): (usize, usize)) {
    add(note, name);
    // The record before the new one has no room any more.
    if note[FILTER] == offset as u64 {
        note[FILTER] = (offset + used) as u64;
    }
}

/// Updates a note for an entry whose bytes are added to the record at `offset`.
pub(crate) fn note_removal(note: &mut Note, offset: usize) {
    note[FILTER] = note[FILTER].min(offset as u64);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::dirent::{
        TAIL_SIZE, locate, search, write_rec_len, write_record, write_tail,
    };

    /// Inserts a name at `room` and updates the note.
    fn insert(block: &mut [u8], note: &mut Option<Note>, name: &[u8], room: (usize, usize, usize)) {
        let (offset, used, rec_len) = room;
        if let Some(note) = note {
            note_entry(note, name, (offset, used));
        }
        if used > 0 {
            write_rec_len(&mut block[offset + 4..offset + 6], used);
        }
        write_record(&mut block[offset + used..], rec_len - used, 7, 1, name);
    }

    fn remove(block: &mut [u8], note: &mut Option<Note>, name: &[u8]) {
        let Some((record, before)) = locate(block, name) else { return };
        let (offset, rec_len) = (record.offset, record.rec_len);
        if let Some(note) = note {
            note_removal(note, before.unwrap_or(offset));
        }
        match before {
            None => block[..4].fill(0),
            Some(before) => {
                write_rec_len(&mut block[before + 4..before + 6], offset + rec_len - before);
            }
        }
    }

    proptest! {
        #[test]
        fn a_note_tells_what_a_search_would(
            steps in proptest::collection::vec((any::<bool>(), 0_u8..60, 1_usize..30), 1..200)
        ) {
            let mut block = vec![0; 1024];
            write_record(&mut block, 1024 - TAIL_SIZE, 0, 0, &[]);
            write_tail(&mut block);
            let mut kept: Option<Note> = None;
            for (is_insert, letter, len) in steps {
                let name = vec![letter + 1; len];
                let found = search(&block, &name);
                if let Some(note) = &mut kept {
                    let fresh = super::note(&block);
                    prop_assert!(note[FILTER] <= fresh[FILTER]);
                    prop_assert!(
                        records(&block).any(|record| record.offset as u64 == note[FILTER])
                            || note[FILTER] == block.len() as u64
                    );
                    prop_assert!((0..FILTER).all(|word| note[word] & fresh[word] == fresh[word]));
                    prop_assert!(!excludes(note, &name) || !matches!(found, Search::Found(_)));
                    if let Some((told, first_room)) = search_noted(note, &block, &name) {
                        prop_assert_eq!(&told, &found);
                        prop_assert!(first_room <= fresh[FILTER]);
                        note_first_room(note, first_room);
                    }
                }
                kept = kept.or_else(|| Some(super::note(&block)));
                match found {
                    Search::Room { offset, used, rec_len } if is_insert => {
                        insert(&mut block, &mut kept, &name, (offset, used, rec_len));
                    }
                    Search::Found(_) if !is_insert => remove(&mut block, &mut kept, &name),
                    _ => {}
                }
            }
        }

        #[test]
        fn any_block_is_noted_without_harm(block in proptest::collection::vec(any::<u8>(), 1024)) {
            let note = note(&block);
            let _ = search_noted(&note, &block, b"abc");
        }
    }

    #[test]
    fn missing_names_are_rarely_reported_as_possible() {
        let mut note = [0; FILTER + 1];
        let name = |number: u32| format!("{number:08x}~~~~~~~~{:016}", number.wrapping_mul(77));
        (0..60).for_each(|number| add(&mut note, name(number).as_bytes()));
        assert!((0..60).all(|number| has(&note, name(number).as_bytes())));
        let wrong = (60..10_060).filter(|&number| has(&note, name(number).as_bytes())).count();
        assert!(wrong < 500, "{wrong} of 10,000");
    }
}
