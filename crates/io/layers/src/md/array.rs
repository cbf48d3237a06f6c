//! Arrays, assembled of their members.

use std::io;
use std::sync::Arc;

use disk::BlockDevice;

use super::layout::ParityLayout;
use super::superblock::{self, ASSEMBLE, SECTOR, SUPERBLOCK, Superblock};
use crate::mapped::{MappedDevice, Piece, Target};
use crate::{LayerError, Member, Result, raw};

/// Maximum number of members. The kernel supports fewer.
const MEMBERS_MAX: u32 = 1920;

/// Level of a concatenation.
const LINEAR: i32 = -1;

/// Reads the superblock of an array member, wherever it is. Returns `None` if there is none.
///
/// # Errors
/// If it is damaged or has unsupported features.
pub fn find_superblock(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    let len = device.len();
    // 1.0 is 8 to 12 KiB before the end, at a multiple of 4 KiB; 0.90 is 64 to 128 KiB before it.
    let at_end = (len / SECTOR).checked_sub(16).map(|sector| (sector & !7) * SECTOR);
    for at in [Some(0), Some(4096), at_end.filter(|at| *at > 4096)].into_iter().flatten() {
        let bytes = superblock::NEW_BYTES.min(len.saturating_sub(at));
        let bytes = raw::bytes(device, SUPERBLOCK, at, bytes, superblock::NEW_BYTES)?;
        if superblock::has_magic(&bytes) && bytes.get(4) == Some(&1) {
            return superblock::parse_new(&bytes, at, len).map(Some);
        }
    }
    let Some(at) = (len & !0xffff).checked_sub(0x1_0000) else { return Ok(None) };
    let bytes = raw::bytes(device, SUPERBLOCK, at, superblock::OLD_BYTES, superblock::OLD_BYTES)?;
    if superblock::has_magic(&bytes) {
        superblock::parse_old(&bytes, at).map(Some)
    } else {
        Ok(None)
    }
}

/// An array and its known members.
pub struct OpenArray {
    /// UUID.
    pub id: [u8; 16],
    members: Vec<(Member, Superblock)>,
}

/// Forms arrays of members.
pub fn arrays(members: Vec<(Member, Superblock)>) -> Vec<OpenArray> {
    let mut arrays: Vec<OpenArray> = Vec::new();
    for (member, found) in members {
        match arrays.iter_mut().find(|array| array.id == found.array) {
            Some(array) => array.members.push((member, found)),
            None => arrays.push(OpenArray { id: found.array, members: vec![(member, found)] }),
        }
    }
    arrays
}

/// Device of an array.
pub struct ArrayDevice {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Description of the array.
    pub what: String,
    /// The reason why it can only be read.
    pub read_only: Option<&'static str>,
}

fn level_name(level: i32) -> String {
    if level == LINEAR { "linear".into() } else { format!("RAID {level}") }
}

impl OpenArray {
    /// Describes the array.
    #[must_use]
    pub fn description(&self) -> String {
        let first = &self.newest().1;
        let name = if first.name.is_empty() { String::new() } else { format!(" {}", first.name) };
        format!(
            "md {} array{name} ({} of {} members)",
            level_name(first.level),
            self.in_use().len(),
            first.members
        )
    }

    /// Returns the member with the newest superblock.
    fn newest(&self) -> &(Member, Superblock) {
        let newest = self.members.iter().max_by_key(|(_, found)| found.events);
        newest.expect("arrays are made of members")
    }

    /// Returns the current members in the order of their places.
    fn in_use(&self) -> Vec<&(Member, Superblock)> {
        let newest = &self.newest().1;
        let is_current = |(_, found): &&(Member, Superblock)| {
            // A crash between two superblocks leaves a difference of one, which the kernel accepts.
            found.events.saturating_add(1) >= newest.events
                && found.role.is_some_and(|role| role < newest.members)
        };
        let mut current: Vec<_> = self.members.iter().filter(is_current).collect();
        current.sort_by_key(|(_, found)| found.role);
        current.dedup_by_key(|(_, found)| found.role);
        current
    }

    /// Makes a device of the array.
    ///
    /// # Errors
    /// If members are missing or disagree, or its level is not supported.
    pub fn open(&self) -> Result<ArrayDevice> {
        let (what, first, members) = (self.description(), &self.newest().1, self.in_use());
        let bad = |problem: String| LayerError::damaged(SUPERBLOCK, first.data_start, problem);
        if first.members == 0 || first.members > MEMBERS_MAX {
            return Err(bad(format!("{} members", first.members)));
        }
        if let Some((member, found)) = members.iter().find(|(_, found)| {
            (found.level, found.layout, found.chunk_bytes, found.members)
                != (first.level, first.layout, first.chunk_bytes, first.members)
        }) {
            let level = level_name(found.level);
            return Err(bad(format!("{}: {level} with {} members", member.name, found.members)));
        }
        if first.level == 1 {
            return self.mirror(what, &members);
        }
        if !matches!(first.level, LINEAR | 0 | 4 | 5 | 6) {
            let what = format!("an md array of level {}", first.level);
            return Err(LayerError::unsupported(what, ASSEMBLE));
        }
        self.check_complete(&what, &members)?;
        let device: Arc<dyn BlockDevice> = match first.level {
            LINEAR => Arc::new(concatenated(&members)?),
            0 => Arc::new(striped(first, &members)?),
            _ => Arc::new(ParityArray::new(first, &members)?),
        };
        let read_only = (first.level > 0).then_some("writing would need new parity");
        Ok(ArrayDevice { device, what, read_only })
    }

    /// Returns an error if a member is missing.
    fn check_complete(&self, what: &str, members: &[&(Member, Superblock)]) -> Result<()> {
        let first = &self.newest().1;
        let has = |role: u32| members.iter().any(|(_, found)| found.role == Some(role));
        let missing: Vec<u32> = (0..first.members).filter(|role| !has(*role)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let stale = |role: u32| {
            let is_stale = |(_, found): &&(Member, Superblock)| found.role == Some(role);
            self.members.iter().find(is_stale).map(|(member, _)| member.name.as_str())
        };
        let one = |role: &u32| match stale(*role) {
            Some(name) => format!("{role} ({name} is outdated)"),
            None => role.to_string(),
        };
        let missing: Vec<_> = missing.iter().map(one).collect();
        let missing = format!("its members number {}", missing.join(", "));
        Err(LayerError::Missing { what: format!("the {what}"), missing })
    }

    /// Makes a device of one leg of a mirror.
    fn mirror(&self, what: String, members: &[&(Member, Superblock)]) -> Result<ArrayDevice> {
        let Some((member, found)) = members.iter().max_by_key(|(_, found)| found.events) else {
            let missing = "an active member".into();
            return Err(LayerError::Missing { what: format!("the {what}"), missing });
        };
        let target = Target::Linear(Arc::clone(&member.device), found.data_start);
        let device = mapped(vec![Piece { len: found.used_bytes, target }])?;
        let read_only = Some(match found.data_start {
            0 => {
                "a mirror needs writes to all of its legs; if the array no longer exists, run: mdadm \
                 --zero-superblock"
            }
            _ => "a mirror needs writes to all of its legs",
        });
        Ok(ArrayDevice { device: Arc::new(device), what, read_only })
    }
}

fn mapped(pieces: Vec<Piece>) -> Result<MappedDevice> {
    MappedDevice::new(pieces).map_err(|error| LayerError::damaged("md array", 0, error.to_string()))
}

/// Rounds down to whole chunks.
fn whole(bytes: u64, chunk: u64) -> u64 {
    bytes.checked_div(chunk).map_or(bytes, |chunks| chunks * chunk)
}

fn concatenated(members: &[&(Member, Superblock)]) -> Result<MappedDevice> {
    let piece = |(member, found): &&(Member, Superblock)| Piece {
        len: whole(found.data_bytes, found.chunk_bytes),
        target: Target::Linear(Arc::clone(&member.device), found.data_start),
    };
    mapped(members.iter().map(piece).collect())
}

/// A zone of a RAID 0 uses the same range of all members that reach so far.
fn striped(first: &Superblock, members: &[&(Member, Superblock)]) -> Result<MappedDevice> {
    let chunk = first.chunk_bytes;
    if chunk == 0 {
        return Err(LayerError::damaged(SUPERBLOCK, 0, "a chunk size of 0"));
    }
    let sizes: Vec<u64> = members.iter().map(|(_, found)| whole(found.data_bytes, chunk)).collect();
    let mut ends = sizes.clone();
    ends.sort_unstable();
    ends.dedup();
    // The second layout numbers the chunks of each zone from 0. The first one does not.
    if ends.len() > 1 && !(first.has_raid0_layout && first.layout == 2) {
        let what =
            "a RAID 0 with members of different sizes and the layout of Linux before 3.14, or none";
        return Err(LayerError::unsupported(what, ASSEMBLE));
    }
    let (mut pieces, mut start) = (Vec::new(), 0);
    for end in ends {
        let legs: Vec<(Arc<dyn BlockDevice>, u64)> = members
            .iter()
            .zip(&sizes)
            .filter(|(_, size)| **size >= end)
            .map(|((member, found), _)| (Arc::clone(&member.device), found.data_start + start))
            .collect();
        let too_long = || LayerError::damaged(SUPERBLOCK, 0, "an array that is too long");
        let len = (end - start).checked_mul(legs.len() as u64).ok_or_else(too_long)?;
        pieces.push(Piece { len, target: Target::Striped(chunk, legs) });
        start = end;
    }
    mapped(pieces)
}

/// An array with parity, all of whose members are there.
struct ParityArray {
    layout: ParityLayout,
    chunk: u64,
    len: u64,
    members: Vec<(Arc<dyn BlockDevice>, u64)>,
}

impl ParityArray {
    fn new(first: &Superblock, members: &[&(Member, Superblock)]) -> Result<Self> {
        let unsupported = || {
            let what = format!(
                "RAID {} with {} members and layout {}",
                first.level, first.members, first.layout
            );
            LayerError::unsupported(what, ASSEMBLE)
        };
        let layout = ParityLayout::new(first.level, first.layout, first.members);
        let (layout, chunk) = (layout.ok_or_else(unsupported)?, first.chunk_bytes);
        let bad = |problem: String| LayerError::damaged(SUPERBLOCK, first.data_start, problem);
        if chunk == 0 {
            return Err(bad("a chunk size of 0".into()));
        }
        let used = whole(first.used_bytes, chunk);
        let len =
            used.checked_mul(layout.data()).ok_or_else(|| bad(format!("{used} bytes used")))?;
        for (member, found) in members {
            let end = found.data_start.checked_add(used);
            if end.is_none_or(|end| end > member.device.len()) {
                return Err(bad(format!("{} is too short for {used} bytes", member.name)));
            }
        }
        let members =
            members.iter().map(|(member, found)| (Arc::clone(&member.device), found.data_start));
        Ok(Self { layout, chunk, len, members: members.collect() })
    }
}

impl BlockDevice for ParityArray {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (index, within) = (at / self.chunk, at % self.chunk);
            let (row, column) = (index / self.layout.data(), index % self.layout.data());
            let (device, start) = &self.members[self.layout.member(row, column) as usize];
            let part = (self.chunk - within).min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at_mut(part);
            device.read_at(start + row * self.chunk + within, now)?;
            (at, rest) = (at + part as u64, later);
        }
        Ok(())
    }

    fn has_read_ahead(&self) -> bool {
        self.members.iter().any(|(member, _)| member.has_read_ahead())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
