//! Blocks of the orphan file: inode numbers of files that are unlinked but open, or being truncated. Each block ends
//! with a tail.

use vfs::{Corruption, Ino};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address::Block;
use super::checksum;

/// `ob_magic`.
pub(crate) const MAGIC: u32 = 0x0b10_ca04;

/// Tail of an orphan block. Field names as in the format document, without `ob_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Tail {
    magic: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<Tail>() == 8);

/// Returns the number of slots of a block of `block_size` bytes.
#[must_use]
pub const fn slots_per_block(block_size: usize) -> usize {
    (block_size - size_of::<Tail>()) / size_of::<U32>()
}

/// Returns the slots of a block: inode numbers, 0 if free.
///
/// # Errors
/// A wrong magic number; with `inode_seed` (for `metadata_csum`), a wrong checksum.
pub(crate) fn parse(
    block: &[u8],
    place: Block,
    inode_seed: Option<u32>,
) -> Result<&[U32], Corruption> {
    let damage = |problem| Corruption::new("orphan file", problem).at_block(place.0);
    let Ok((slots, tail)) = Tail::read_from_suffix(block) else {
        return Err(damage("truncated block"));
    };
    if tail.magic != MAGIC {
        let found = format!("{:#010x}", tail.magic.get());
        return Err(damage("magic number").mismatch(format!("{MAGIC:#010x}"), found));
    }
    if let Some(seed) = inode_seed {
        let computed = checksum_of(slots, place, seed);
        if tail.checksum != computed {
            let damage = Corruption::checksum("orphan file", computed, tail.checksum.get());
            return Err(damage.at_block(place.0));
        }
    }
    <[U32]>::ref_from_bytes(slots).map_err(|_| damage("block size"))
}

/// Verifies a block before it is sealed and written: its magic number, and that inode numbers in its slots are at most
/// `inodes`.
///
/// # Errors
/// The first fault.
pub(crate) fn verify_structure(block: &[u8], place: Block, inodes: u32) -> Result<(), Corruption> {
    match parse(block, place, None)?.iter().find(|slot| slot.get() > inodes) {
        Some(slot) => Err(Corruption::new("orphan file", "an inode past the last one")
            .mismatch(format!("at most {inodes}"), slot.get())),
        None => Ok(()),
    }
}

/// Writes the tail of a block whose slots are filled in. `inode_seed` as in `parse`.
pub fn seal(block: &mut [u8], place: Block, inode_seed: Option<u32>) {
    let Some(at) = block.len().checked_sub(size_of::<Tail>()) else { return };
    let (slots, end) = block.split_at_mut(at);
    let checksum = inode_seed.map_or(0, |seed| checksum_of(slots, place, seed));
    let tail = Tail { magic: MAGIC.into(), checksum: checksum.into() };
    end.copy_from_slice(tail.as_bytes());
}

/// Iterates over the inodes in a block's slots.
pub(crate) fn orphans(slots: &[U32]) -> impl Iterator<Item = Ino> + '_ {
    slots.iter().filter(|slot| **slot != 0).map(|slot| Ino(u64::from(slot.get())))
}

fn checksum_of(slots: &[u8], place: Block, inode_seed: u32) -> u32 {
    let seed = checksum::crc32c(inode_seed, U64::new(place.0).as_bytes());
    checksum::crc32c(seed, slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_block_parses_only_in_its_place() {
        let mut block = [0; 1024];
        block[8] = 13;
        seal(&mut block, Block(77), Some(5));
        let slots = parse(&block, Block(77), Some(5)).unwrap();
        assert_eq!(slots.len(), slots_per_block(1024));
        assert_eq!(orphans(slots).collect::<Vec<_>>(), [Ino(13)]);
        assert!(parse(&block, Block(78), Some(5)).is_err());
        assert!(parse(&block, Block(78), None).is_ok());
        assert!(verify_structure(&block, Block(77), 13).is_ok());
        assert!(verify_structure(&block, Block(77), 12).is_err());
        block[1016] ^= 1;
        assert!(verify_structure(&block, Block(77), 13).is_err());
        assert!(parse(&block, Block(77), None).is_err());
    }
}
