//! Creation of a volume with an empty file system.

use ext4::mkfs as ext4_mkfs;
use remote::volume::{NewVolume, Options};
use xfs::mkfs as xfs_mkfs;

use super::{at, whole};
use crate::{Error, Format, Result};

/// Options of the file system of a new volume.
#[derive(Clone, Debug)]
pub struct NewFileSystem {
    /// ext4 or XFS.
    pub format: Format,
    /// Size of the volume in bytes. Unused space needs no storage.
    pub size: u64,
    /// Label.
    pub label: Vec<u8>,
}

/// Planned layout.
enum VolumePlan {
    Ext4(Box<ext4_mkfs::Layout>),
    Xfs(Box<xfs_mkfs::Layout>),
}

/// Creates a volume with an empty file system.
///
/// # Errors
/// If the options are invalid, the address is in use, or the bucket is not accessible. Objects written before remain;
/// `delete` removes them.
pub fn create(address: &str, what: &NewFileSystem) -> Result<()> {
    let location = whole(address)?;
    // Check the options before anything is written to the bucket.
    plan(what, [0; 16])?;
    let new = NewVolume::create(&location, what.size, &Options::default()).map_err(at(address))?;
    let made = match plan(what, new.uuid())? {
        VolumePlan::Ext4(layout) => {
            ext4_mkfs::format(&new, &layout, ext4_mkfs::PreviousContents::Zeros)
        }
        VolumePlan::Xfs(layout) => {
            xfs_mkfs::format(&new, &layout, xfs_mkfs::PreviousContents::Zeros)
        }
    };
    made.map_err(|source| Error::Image { image: crate::text::public(address.as_ref()), source })?;
    new.finish().map_err(at(address))
}

fn plan(what: &NewFileSystem, uuid: [u8; 16]) -> Result<VolumePlan> {
    let planned = match what.format {
        Format::Ext4 => {
            let mut hash_seed = uuid;
            hash_seed.reverse();
            ext4_mkfs::plan(&ext4_mkfs::Options {
                block_size: Some(4096),
                label: what.label.clone(),
                uuid,
                hash_seed,
                time: now(),
                ..ext4_mkfs::Options::new(what.size)
            })
            .map(|layout| VolumePlan::Ext4(Box::new(layout)))
        }
        Format::Xfs => xfs_mkfs::plan(&xfs_mkfs::Options {
            label: what.label.clone(),
            uuid,
            // Sector size equal to the block size of the volume, so that only whole blocks are written.
            sector_size: 4096,
            time: now(),
            ..xfs_mkfs::Options::new(what.size)
        })
        .map(|layout| VolumePlan::Xfs(Box::new(layout))),
    };
    planned.map_err(|error| Error::Usage(format!("no such {}: {error}", what.format.name())))
}

/// Returns the current time.
fn now() -> vfs::Timestamp {
    std::time::SystemTime::now().into()
}
