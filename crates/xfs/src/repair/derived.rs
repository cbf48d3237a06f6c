//! A superblock that cannot be right, and of which no sound copy is left: what its numbers say of each other.

use ::repair::Staging;
use blockdev::BlockDevice;
use zerocopy::FromBytes;

use super::sealed::sealed;
use crate::format::features::Version;
use crate::format::superblock::{MAGIC, RawSuperblock, SUPERBLOCK_SIZE, Superblock};

/// A way to set a number right by others.
type Way = fn(&mut RawSuperblock, u64);

const WAYS: [Way; 6] = [magic, logs, sizes, groups, blocks, version];

/// A superblock like the first one, or like its copy in the next group, that can be right: with as few numbers changed
/// as it takes.
pub(super) fn find(staging: &Staging, first: &RawSuperblock) -> Option<RawSuperblock> {
    let next = u64::from(first.agblocks.get()).checked_shl(first.blocklog.into());
    let copy = next.filter(|byte| *byte > 0).and_then(|byte| {
        let mut sector = vec![0; SUPERBLOCK_SIZE];
        staging.read_at(byte, &mut sector).ok()?;
        Some(RawSuperblock::read_from_prefix(&sector).ok()?.0)
    });
    let copy = copy.filter(|copy| copy.magicnum.get() == MAGIC);
    let all: Vec<RawSuperblock> = std::iter::once(first.clone()).chain(copy).collect();
    // Sets of ways, those of few first.
    let mut sets: Vec<u32> = (0..1 << WAYS.len()).collect();
    sets.sort_by_key(|set| set.count_ones());
    sets.into_iter().find_map(|set| all.iter().find_map(|raw| with(raw, set, staging.len())))
}

/// A superblock with some ways taken, if it can be right then.
fn with(raw: &RawSuperblock, set: u32, device_len: u64) -> Option<RawSuperblock> {
    let mut raw = raw.clone();
    raw.inprogress = 0;
    for (_, way) in WAYS.iter().enumerate().filter(|(nth, _)| set >> nth & 1 == 1) {
        way(&mut raw, device_len);
    }
    let sector = sealed(&raw, &vec![0; SUPERBLOCK_SIZE])?;
    let is_crc = raw.features().crc();
    Superblock::parse(&sector, device_len).is_ok().then_some(raw).filter(|_| is_crc)
}

fn magic(raw: &mut RawSuperblock, _: u64) {
    raw.magicnum = MAGIC.into();
}

/// Logarithms, by what they are of.
fn logs(raw: &mut RawSuperblock, _: u64) {
    let log = |size: u32| size.max(1).trailing_zeros() as u8;
    raw.blocklog = log(raw.blocksize.get());
    raw.sectlog = log(raw.sectsize.get().into());
    raw.inodelog = log(raw.inodesize.get().into());
    raw.inopblog = raw.blocklog.saturating_sub(raw.inodelog);
    raw.inopblock = 1_u16.checked_shl(raw.inopblog.into()).unwrap_or(0).into();
    raw.agblklog = raw.agblocks.get().checked_next_power_of_two().map_or(0, log);
}

/// The other way round.
fn sizes(raw: &mut RawSuperblock, _: u64) {
    let size = |log: u8| 1_u32.checked_shl(log.into()).unwrap_or(0);
    raw.blocksize = size(raw.blocklog).into();
    raw.sectsize = (size(raw.sectlog) as u16).into();
    raw.inodesize = (size(raw.inodelog) as u16).into();
}

fn groups(raw: &mut RawSuperblock, _: u64) {
    let count = raw.dblocks.get().div_ceil(u64::from(raw.agblocks.get()).max(1));
    raw.agcount = u32::try_from(count).unwrap_or(0).into();
}

/// As many blocks as groups can have, and the device has.
fn blocks(raw: &mut RawSuperblock, device_len: u64) {
    let of_device = device_len.checked_shr(raw.blocklog.into()).unwrap_or(0);
    let of_groups = u64::from(raw.agblocks.get()) * u64::from(raw.agcount.get());
    raw.dblocks = of_groups.min(of_device).into();
}

/// What all images of version 5 have.
fn version(raw: &mut RawSuperblock, _: u64) {
    let all = Version::NLINK
        | Version::ALIGN
        | Version::LOGV2
        | Version::EXTFLG
        | Version::DIRV2
        | Version::MOREBITS;
    raw.versionnum = (all.bits() | 5).into();
}
