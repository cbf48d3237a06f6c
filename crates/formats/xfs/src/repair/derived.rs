//! Derives a superblock if the first is invalid and no valid copy is left: from the relations between its fields, and
//! from the group length in group headers.

use disk::BlockDevice;
use operations::repair::Staging;
use zerocopy::{FromBytes, IntoBytes};

use super::sealed::{SECTOR_SIZE_MAX, sealed};
use crate::format::ag::{AGF_MAGIC, AGF_SECTOR, AGI_MAGIC, AGI_SECTOR, RawAgf, RawAgi};
use crate::format::features::Version;
use crate::format::superblock::{MAGIC, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::open::superblock_copy::group_starts;

/// A function that derives some fields from others.
type Way = fn(&mut RawSuperblock, &Clues);

const WAYS: [Way; 7] = [magic, logs, sizes, length, groups, blocks, version];
/// The function that takes the group length from headers, as a bit in sets of functions.
const LENGTH: u32 = 1 << 3;

/// Minimum sector size in bytes.
const SECTOR_SIZE_MIN: u64 = 512;
/// Block sizes, as powers of two.
const BLOCK_LOGS: std::ops::RangeInclusive<u8> = 9..=16;
/// Byte ranges in which superblocks agree, in words: sizes and the UUID, logarithms, features.
const IN_COMMON: [std::ops::Range<usize>; 6] =
    [0..56, 80..108, 120..124, 180..184, 192..220, 228..232];
/// Size of a word in bytes.
const WORD: usize = 4;
/// Maximum number of words in which a damaged copy may differ.
const WORDS_MAX: usize = 3;
/// Maximum number of damaged copies used.
const COPIES_MAX: usize = 8;

/// Information other than superblocks.
struct Clues {
    device_len: u64,
    /// Number of blocks of the first group, from one of its headers.
    length: Option<u32>,
}

/// Returns a valid superblock derived from the first one or a damaged copy, with as few changed fields as possible.
pub(super) fn find(staging: &Staging, first: &RawSuperblock) -> Option<RawSuperblock> {
    let lengths = lengths(staging);
    let mut all = vec![first.clone()];
    all.extend(damaged_copies(staging, first, &lengths));
    if let Some(mixture) = mixtures(staging, first, &all[1..]).into_iter().find(has_checksums) {
        return Some(mixture);
    }
    of_fewest_changes(staging, &all, &lengths, |_| true).filter(has_checksums)
}

/// Returns alternatives to the first superblock, which may be valid itself: with words of damaged copies, and with
/// another group length from the headers of the first group.
pub(super) fn others(staging: &Staging, first: &RawSuperblock) -> Vec<RawSuperblock> {
    let mut lengths = lengths(staging);
    let copies = damaged_copies(staging, first, &lengths);
    let mut others = mixtures(staging, first, &copies);
    lengths.retain(|length| *length != first.agblocks.get());
    let all = std::slice::from_ref(first);
    others.extend(of_fewest_changes(staging, all, &lengths, |set| set & LENGTH != 0));
    others.retain(|other| has_checksums(other) == has_checksums(first));
    others
}

/// Returns valid combinations of the first superblock with a damaged copy: words of the copy replace some in which the
/// two differ. Combinations with few words come first.
fn mixtures(
    staging: &Staging,
    first: &RawSuperblock,
    copies: &[RawSuperblock],
) -> Vec<RawSuperblock> {
    let mut mixtures = Vec::new();
    for copy in copies.iter().filter(|copy| copy.uuid == first.uuid) {
        let (own, other) = (first.as_bytes(), copy.as_bytes());
        let words = IN_COMMON.into_iter().flat_map(|range| range.step_by(WORD));
        let differing: Vec<usize> =
            words.filter(|at| own[*at..at + WORD] != other[*at..at + WORD]).collect();
        if differing.len() > WORDS_MAX {
            continue;
        }
        for set in 1_u32..1 << differing.len() {
            let mut bytes = own.to_vec();
            for (_, at) in differing.iter().enumerate().filter(|(nth, _)| set >> nth & 1 == 1) {
                bytes[*at..at + WORD].copy_from_slice(&other[*at..at + WORD]);
            }
            let Ok(raw) = RawSuperblock::read_from_bytes(&bytes) else { continue };
            let clues = Clues { device_len: staging.len(), length: None };
            mixtures.extend(with(&raw, 0, &clues).map(|raw| (set.count_ones(), raw)));
        }
    }
    mixtures.sort_by_key(|(words, _)| *words);
    mixtures.into_iter().map(|(_, raw)| raw).collect()
}

/// Tries sets of functions, smallest first, and returns the first valid superblock.
fn of_fewest_changes(
    staging: &Staging,
    all: &[RawSuperblock],
    lengths: &[u32],
    is_wanted: impl Fn(u32) -> bool,
) -> Option<RawSuperblock> {
    let mut sets: Vec<u32> = (0..1 << WAYS.len()).filter(|set| is_wanted(*set)).collect();
    sets.sort_by_key(|set| set.count_ones());
    let device_len = staging.len();
    let of_set = |set: u32| {
        let lengths = lengths.iter().map(|length| Some(*length));
        // Without a length, the function that uses it has no effect.
        let lengths = lengths.chain((set & LENGTH == 0).then_some(None));
        let clues = lengths.map(|length| Clues { device_len, length }).collect::<Vec<_>>();
        clues.iter().find_map(|clues| all.iter().find_map(|raw| with(raw, set, clues)))
    };
    sets.into_iter().find_map(of_set)
}

/// Returns lengths of the first group from its AGF and AGI, for any sector size. The most frequent comes first.
fn lengths(staging: &Staging) -> Vec<u32> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut add = |length: u32| match found.iter_mut().find(|(known, _)| *known == length) {
        Some((_, count)) => *count += 1,
        None => found.push((length, 1)),
    };
    let mut sector_size = SECTOR_SIZE_MIN;
    while sector_size <= SECTOR_SIZE_MAX {
        let mut sector = [0; SECTOR_SIZE_MIN as usize];
        let mut read = |nth: u32| {
            let is_read = staging.read_at(u64::from(nth) * sector_size, &mut sector).is_ok();
            is_read.then_some(sector)
        };
        let agf = read(AGF_SECTOR).and_then(|s| Some(RawAgf::read_from_prefix(&s).ok()?.0));
        let agi = read(AGI_SECTOR).and_then(|s| Some(RawAgi::read_from_prefix(&s).ok()?.0));
        if let Some(agf) = agf.filter(|agf| agf.magicnum.get() == AGF_MAGIC && agf.seqno.get() == 0)
        {
            add(agf.length.get());
        }
        if let Some(agi) = agi.filter(|agi| agi.magicnum.get() == AGI_MAGIC && agi.seqno.get() == 0)
        {
            add(agi.length.get());
        }
        sector_size *= 2;
    }
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found.into_iter().map(|(length, _)| length).collect()
}

/// Returns damaged copies at the likely starts of other groups: according to superblocks, headers and the defaults of
/// mkfs. They must have the magic number.
fn damaged_copies(staging: &Staging, first: &RawSuperblock, lengths: &[u32]) -> Vec<RawSuperblock> {
    let own = u64::from(first.agblocks.get()).checked_shl(first.blocklog.into());
    let of_headers =
        lengths.iter().flat_map(|length| BLOCK_LOGS.map(|log| u64::from(*length) << log));
    let starts = own.into_iter().chain(of_headers).chain(group_starts(staging.len()));
    let mut copies = Vec::new();
    let mut seen = Vec::new();
    for byte in starts.filter(|byte| *byte > 0) {
        let mut sector = [0; SUPERBLOCK_SIZE];
        let is_there = byte.checked_add(SUPERBLOCK_SIZE as u64).is_some_and(|e| e <= staging.len());
        if seen.contains(&byte) || !is_there || staging.read_at(byte, &mut sector).is_err() {
            continue;
        }
        seen.push(byte);
        let raw = RawSuperblock::read_from_bytes(&sector).ok();
        copies.extend(raw.filter(|raw| raw.magicnum.get() == MAGIC));
        if copies.len() == COPIES_MAX {
            break;
        }
    }
    copies
}

/// Applies a set of functions to a superblock. Returns `None` if the result is invalid.
fn with(raw: &RawSuperblock, set: u32, clues: &Clues) -> Option<RawSuperblock> {
    let mut raw = raw.clone();
    raw.inprogress = 0;
    for (_, way) in WAYS.iter().enumerate().filter(|(nth, _)| set >> nth & 1 == 1) {
        way(&mut raw, clues);
    }
    let sector = sealed(&raw, &vec![0; SUPERBLOCK_SIZE])?;
    Superblock::parse(&sector, clues.device_len).is_ok().then_some(raw)
}

/// Returns whether a superblock has a checksum, so that a derived one without other evidence can be trusted.
fn has_checksums(raw: &RawSuperblock) -> bool {
    raw.features().crc()
}

fn magic(raw: &mut RawSuperblock, _: &Clues) {
    raw.magicnum = MAGIC.into();
}

/// Derives logarithms from sizes.
fn logs(raw: &mut RawSuperblock, _: &Clues) {
    let log = |size: u32| size.max(1).trailing_zeros() as u8;
    raw.blocklog = log(raw.blocksize.get());
    raw.sectlog = log(raw.sectsize.get().into());
    raw.inodelog = log(raw.inodesize.get().into());
    raw.inopblog = raw.blocklog.saturating_sub(raw.inodelog);
    raw.inopblock = 1_u16.checked_shl(raw.inopblog.into()).unwrap_or(0).into();
    raw.agblklog = raw.agblocks.get().checked_next_power_of_two().map_or(0, log);
}

/// Derives sizes from logarithms.
fn sizes(raw: &mut RawSuperblock, _: &Clues) {
    let size = |log: u8| 1_u32.checked_shl(log.into()).unwrap_or(0);
    raw.blocksize = size(raw.blocklog).into();
    raw.sectsize = (size(raw.sectlog) as u16).into();
    raw.inodesize = (size(raw.inodelog) as u16).into();
}

/// Sets the length of groups from headers of the first group.
fn length(raw: &mut RawSuperblock, clues: &Clues) {
    let Some(length) = clues.length else { return };
    raw.agblocks = length.into();
    let log = length.checked_next_power_of_two().map_or(0, u32::trailing_zeros);
    raw.agblklog = log as u8;
}

fn groups(raw: &mut RawSuperblock, _: &Clues) {
    let count = raw.dblocks.get().div_ceil(u64::from(raw.agblocks.get()).max(1));
    raw.agcount = u32::try_from(count).unwrap_or(0).into();
}

/// Sets the number of blocks to the maximum for the groups and the device.
fn blocks(raw: &mut RawSuperblock, clues: &Clues) {
    let of_device = clues.device_len.checked_shr(raw.blocklog.into()).unwrap_or(0);
    let of_groups = u64::from(raw.agblocks.get()) * u64::from(raw.agcount.get());
    raw.dblocks = of_groups.min(of_device).into();
}

/// Sets the version bits that all images of version 5 have.
fn version(raw: &mut RawSuperblock, _: &Clues) {
    raw.versionnum = (Version::OF_VERSION_5.bits() | 5).into();
}
