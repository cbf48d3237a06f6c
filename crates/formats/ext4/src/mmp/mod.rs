//! Multiple mount protection: prevents two hosts from changing one file system on shared storage.
//!
//! A host that changes the file system writes a new sequence number to the MMP block at each update interval. A host
//! that wants to change it waits until a number in use must have changed. INVARIANT: the block is written to the device
//! directly, never through the journal or the cache.
//!
//! `claim` takes the file system. All changes then go through [`MmpDevice`], which updates the block and refuses
//! writes if another host has taken the file system. Opening for changes claims the image itself. Programs that change a
//! device directly (repair, resize, tune) claim it first. Claims can be nested, because the device shows an unused
//! block.

mod block;
mod device;
mod options;

use std::sync::Arc;

use disk::BlockDevice;
use vfs::{Error, Result};

use crate::format::features::Incompat;
use crate::format::mmp::{RawMmp, SEQUENCE_CHECK, SEQUENCE_CLEAN, SEQUENCE_MAX};
use crate::format::superblock::Superblock;
use crate::params::read_superblock;
use block::MmpBlock;
pub use device::MmpDevice;
pub use options::{MmpOptions, OnWait, Purpose};

/// Claims a file system with the feature `mmp`. Returns `None` for file systems without it.
///
/// If the block says that a host uses the file system, this waits for at least 11 seconds.
///
/// # Errors
/// `Unsupported` if another host uses or checks the file system; `Corrupt` for a damaged block. `Device` if the device
/// fails.
pub(crate) fn claim(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    options: &MmpOptions,
    purpose: Purpose,
) -> Result<Option<Arc<MmpDevice>>> {
    if !sb.features.incompat(Incompat::MMP) {
        return Ok(None);
    }
    let block = MmpBlock::of(device.clone(), sb)?;
    let found = block.read()?;
    let seq = found.seq.get();
    let wait = if seq == SEQUENCE_CLEAN {
        None
    } else if seq == SEQUENCE_CHECK {
        return Err(is_checked(&found));
    } else if seq > SEQUENCE_MAX {
        return Err(block.damage("sequence number", format!("{seq:#010x}")));
    } else {
        Some(options.second * found.wait_seconds(sb.raw.mmp_interval.get()) as u32)
    };
    if let Some(wait) = wait {
        if let Some(report) = options.on_wait {
            let (host, seconds) = (options::owner(&found), 2 * wait.as_secs());
            report(&format!(
                "waiting {seconds} seconds, because another host may use the image ({host})"
            ));
        }
        options.sleep(wait).map_err(|()| is_used(&found))?;
        let again = block.read()?;
        if again.seq != found.seq {
            return Err(is_used(&again));
        }
    }
    let mut own = options.sign(&found, sb);
    own.seq = first_sequence().into();
    block.write(&mut own).map_err(Error::Device)?;
    // Another host may have found the same block.
    if let Some(wait) = wait {
        options.sleep(wait).map_err(|()| is_used(&found))?;
    }
    let again = block.read()?;
    if again != own {
        return Err(is_used(&again));
    }
    if purpose == Purpose::Check {
        own.seq = SEQUENCE_CHECK.into();
        block.write(&mut own).map_err(Error::Device)?;
    }
    Ok(Some(Arc::new(MmpDevice::new(block, found, own, options, sb))))
}

/// Claims a file system for a repair, and releases it when the device is dropped. Returns `None` without the feature
/// `mmp`, and if superblock or MMP block are damaged, because the repair rewrites them.
///
/// # Errors
/// Like `claim`, except for damage.
pub fn claim_for_repair(
    device: &Arc<dyn BlockDevice>,
    options: &MmpOptions,
) -> Result<Option<Arc<MmpDevice>>> {
    let Ok(sb) = read_superblock(&**device) else { return Ok(None) };
    match claim(device, &sb, options, Purpose::Check) {
        Ok(claimed) => Ok(claimed.inspect(|device| device.release_when_dropped(true))),
        Err(Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Start of the messages about file systems in use.
const OF_ANOTHER_HOST: &str = "changing an image that another host";

fn is_used(found: &RawMmp) -> Error {
    let host = options::owner(found);
    Error::unsupported(
        format!("{OF_ANOTHER_HOST} uses, according to its MMP block ({host})"),
        "unmount it there first",
    )
}

fn is_checked(found: &RawMmp) -> Error {
    let host = options::owner(found);
    Error::unsupported(
        format!("{OF_ANOTHER_HOST} is checking, according to its MMP block ({host})"),
        "wait for the check to end; if it was interrupted, run tune2fs -f -E clear_mmp",
    )
}

/// Returns an arbitrary sequence number of a host that uses the file system.
fn first_sequence() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    let now = vfs::clock::now().unwrap_or_default();
    hasher.write_i64(now.sec);
    hasher.write_u32(now.nsec);
    1 + (hasher.finish() as u32) % SEQUENCE_MAX
}
