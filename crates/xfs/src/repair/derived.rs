//! A superblock that cannot be right, and of which no sound copy is left: what its numbers say of each other, and what
//! headers of groups say of their length.

use ::repair::Staging;
use blockdev::BlockDevice;
use zerocopy::{FromBytes, IntoBytes};

use super::sealed::{SECTOR_SIZE_MAX, sealed};
use crate::format::ag::{AGF_MAGIC, AGF_SECTOR, AGI_MAGIC, AGI_SECTOR, RawAgf, RawAgi};
use crate::format::features::Version;
use crate::format::superblock::{MAGIC, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::open::superblock_copy::group_starts;

/// A way to set a number right by others.
type Way = fn(&mut RawSuperblock, &Clues);

const WAYS: [Way; 7] = [magic, logs, sizes, length, groups, blocks, version];
/// The way that takes the length of a group from its headers, as a bit of a set of ways.
const LENGTH: u32 = 1 << 3;

/// Smallest sector in bytes.
const SECTOR_SIZE_MIN: u64 = 512;
/// Block sizes, as powers of two.
const BLOCK_LOGS: std::ops::RangeInclusive<u8> = 9..=16;
/// Bytes in which superblocks agree, in words: sizes and the uuid, logarithms, features.
const IN_COMMON: [std::ops::Range<usize>; 6] =
    [0..56, 80..108, 120..124, 180..184, 192..220, 228..232];
/// Bytes of a word.
const WORD: usize = 4;
/// Most words in which a damaged copy may differ.
const WORDS_MAX: usize = 3;
/// Most damaged copies that are looked at.
const COPIES_MAX: usize = 8;

/// What there is beside superblocks.
struct Clues {
    device_len: u64,
    /// Blocks of the first group, as one of its headers says.
    length: Option<u32>,
}

/// A superblock like the first one, or like a damaged copy, that can be right: with as few numbers changed as it takes.
pub(super) fn find(staging: &Staging, first: &RawSuperblock) -> Option<RawSuperblock> {
    let lengths = lengths(staging);
    let mut all = vec![first.clone()];
    all.extend(damaged_copies(staging, first, &lengths));
    if let Some(mixture) = mixtures(staging, first, &all[1..]).into_iter().next() {
        return Some(mixture);
    }
    of_fewest_changes(staging, &all, &lengths, |_| true)
}

/// Superblocks that can be right, like the first one, which can be so, too: what damaged copies say otherwise, and with
/// another length of groups, if headers of the first one say so.
pub(super) fn others(staging: &Staging, first: &RawSuperblock) -> Vec<RawSuperblock> {
    let mut lengths = lengths(staging);
    let copies = damaged_copies(staging, first, &lengths);
    let mut others = mixtures(staging, first, &copies);
    lengths.retain(|length| *length != first.agblocks.get());
    let all = std::slice::from_ref(first);
    others.extend(of_fewest_changes(staging, all, &lengths, |set| set & LENGTH != 0));
    others
}

/// What there can be of the first superblock and a damaged copy: words of the copy in place of some in which the two
/// differ. Few words first.
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

/// The first that can be right, of sets of ways with few ways first.
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
        // Without a length the way that takes it does nothing.
        let lengths = lengths.chain((set & LENGTH == 0).then_some(None));
        let clues = lengths.map(|length| Clues { device_len, length }).collect::<Vec<_>>();
        clues.iter().find_map(|clues| all.iter().find_map(|raw| with(raw, set, clues)))
    };
    sets.into_iter().find_map(of_set)
}

/// How long the first group is, as its AGF and AGI say, whatever size sectors have. In the order of how many say so.
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

/// What is at the starts of other groups, as superblocks, headers and the habits of mkfs have it, and says that it is a
/// superblock.
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

/// A superblock with some ways taken, if it can be right then.
fn with(raw: &RawSuperblock, set: u32, clues: &Clues) -> Option<RawSuperblock> {
    let mut raw = raw.clone();
    raw.inprogress = 0;
    for (_, way) in WAYS.iter().enumerate().filter(|(nth, _)| set >> nth & 1 == 1) {
        way(&mut raw, clues);
    }
    let sector = sealed(&raw, &vec![0; SUPERBLOCK_SIZE])?;
    let is_crc = raw.features().crc();
    Superblock::parse(&sector, clues.device_len).is_ok().then_some(raw).filter(|_| is_crc)
}

fn magic(raw: &mut RawSuperblock, _: &Clues) {
    raw.magicnum = MAGIC.into();
}

/// Logarithms, by what they are of.
fn logs(raw: &mut RawSuperblock, _: &Clues) {
    let log = |size: u32| size.max(1).trailing_zeros() as u8;
    raw.blocklog = log(raw.blocksize.get());
    raw.sectlog = log(raw.sectsize.get().into());
    raw.inodelog = log(raw.inodesize.get().into());
    raw.inopblog = raw.blocklog.saturating_sub(raw.inodelog);
    raw.inopblock = 1_u16.checked_shl(raw.inopblog.into()).unwrap_or(0).into();
    raw.agblklog = raw.agblocks.get().checked_next_power_of_two().map_or(0, log);
}

/// The other way round.
fn sizes(raw: &mut RawSuperblock, _: &Clues) {
    let size = |log: u8| 1_u32.checked_shl(log.into()).unwrap_or(0);
    raw.blocksize = size(raw.blocklog).into();
    raw.sectsize = (size(raw.sectlog) as u16).into();
    raw.inodesize = (size(raw.inodelog) as u16).into();
}

/// The size of groups, as headers of the first one say.
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

/// As many blocks as groups can have, and the device has.
fn blocks(raw: &mut RawSuperblock, clues: &Clues) {
    let of_device = clues.device_len.checked_shr(raw.blocklog.into()).unwrap_or(0);
    let of_groups = u64::from(raw.agblocks.get()) * u64::from(raw.agcount.get());
    raw.dblocks = of_groups.min(of_device).into();
}

/// What all images of version 5 have.
fn version(raw: &mut RawSuperblock, _: &Clues) {
    raw.versionnum = (Version::OF_VERSION_5.bits() | 5).into();
}
