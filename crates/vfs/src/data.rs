//! Contents of files, as far as formats deal with them alike.

use smallvec::SmallVec;
use transaction::Engine;

use crate::{Error, ExtentPlace, Result};

/// Writes over bytes of a file that were written before, with no operation, as nothing but data changes.
/// Whether it could: nothing is written where some of the bytes were not. `bytes_at` says where the bytes
/// from an offset on are, and how many lie together. The caller has the file's lock exclusively, and `data`
/// ends within the file.
///
/// # Errors
/// What `bytes_at` brings; `Device` if writing fails, or failed before.
pub fn overwrite(
    engine: &Engine,
    offset: u64,
    data: &[u8],
    mut bytes_at: impl FnMut(u64) -> Result<(ExtentPlace, u64)>,
) -> Result<bool> {
    let end = offset + data.len() as u64;
    let mut runs: SmallVec<[(u64, usize); 4]> = SmallVec::new();
    let mut at = offset;
    while at < end {
        let (ExtentPlace::Device(place), len) = bytes_at(at)? else {
            return Ok(false);
        };
        let len = len.min(end - at);
        runs.push((place, len as usize));
        at += len;
    }
    engine.check_alive()?;
    let mut rest = data;
    for (place, len) in runs {
        let part;
        (part, rest) = rest.split_at(len);
        engine.device().write_at(place, part).map_err(Error::Device)?;
    }
    Ok(true)
}
