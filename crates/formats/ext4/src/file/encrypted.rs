//! Reading encrypted contents and link targets with their key.

use operations::data::{LogicalBlock, Mapping, ReadFiles, note_reading};
use smallvec::SmallVec;
use vfs::{Error, Result};

use crate::Ext4Core;
use crate::format::inode::flags;
use crate::fscrypt::InodeKey;
use crate::inode::{Handle, encryption};

/// A data unit that is wanted in part. Blocks of the usual size need no heap allocation.
type Unit = SmallVec<[u8; 4096]>;

/// Reads from an encrypted regular file into `buf`. Returns fewer bytes only at the end of the file.
///
/// Whole data units are decrypted in `buf`. Holes and unwritten blocks are zeros, which are not encrypted. The last unit
/// is stored whole.
pub(super) fn read(fs: &Ext4Core, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let key = encryption::required(fs, handle)?;
    if handle.has_flag(flags::INLINE_DATA) {
        return Err(handle.corrupt("inode", "it is encrypted, but its data are inline"));
    }
    let left = handle.inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let (log, unit_size) = (fs.block_size_log(), 1_usize << key.unit_log());
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = at & ((1 << log) - 1);
        let run = fs.find_run(handle, LogicalBlock(at >> log))?;
        let available = run.len.saturating_mul(1 << log) - within;
        let wanted = usize::try_from(available).unwrap_or(usize::MAX).min(len - done);
        let part = &mut buf[done..done + wanted];
        let Mapping::Written(start) = run.place else {
            part.fill(0);
            done += wanted;
            continue;
        };
        let place = fs.byte_of(start) + within;
        let before = at as usize & (unit_size - 1);
        if before == 0 && wanted >= unit_size {
            let whole = &mut part[..wanted & !(unit_size - 1)];
            note_reading(&fs.engine, at, place, whole.len() as u64, available.min(left));
            fs.device().read_at(place, whole).map_err(Error::Device)?;
            for (unit, index) in whole.chunks_mut(unit_size).zip(at >> key.unit_log()..) {
                key.decrypt_unit(index, unit);
            }
            done += whole.len();
        } else {
            let unit = read_unit(fs, &key, at, place - before as u64)?;
            let count = wanted.min(unit_size - before);
            part[..count].copy_from_slice(&unit[before..before + count]);
            done += count;
        }
    }
    Ok(len)
}

/// Reads and decrypts the data unit at `place` of the device, which contains the byte `at` of the file.
fn read_unit(fs: &Ext4Core, key: &InodeKey, at: u64, place: u64) -> Result<Unit> {
    let mut unit = Unit::from_elem(0, 1 << key.unit_log());
    fs.device().read_at(place, &mut unit).map_err(Error::Device)?;
    key.decrypt_unit(at >> key.unit_log(), &mut unit);
    Ok(unit)
}

/// Returns the target of an encrypted symbolic link: the length of the encrypted target in 2 bytes, and the target,
/// encrypted as a name.
pub(super) fn target(
    fs: &Ext4Core,
    handle: &Handle,
    stored: impl FnOnce(&Ext4Core, &Handle) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let key = encryption::required(fs, handle)?;
    let stored = stored(fs, handle)?;
    let encrypted = stored.split_first_chunk().and_then(|(len, rest)| {
        let len = usize::from(u16::from_le_bytes(*len));
        rest.get(..len)
    });
    let mut target = Vec::new();
    match encrypted {
        Some(encrypted) if key.decrypt_name(encrypted, &mut target) && !target.is_empty() => {
            Ok(target)
        }
        _ => Err(handle.corrupt("symbolic link", "its encrypted target has an invalid length")),
    }
}
