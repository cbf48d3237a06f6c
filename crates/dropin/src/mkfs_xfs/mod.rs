//! `mkfs.xfs`.

mod wish;

use std::ffi::OsString;

use diskwright::build::{BuildOptions, BuildSource, Format};

use crate::failure::{Ended, Failure, STATUSES};
use crate::foreign;
use crate::invoked::Invoked;
use crate::making::{self, File, Sectors};
use wish::Wish;

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let wish = wish::read(arguments)?;
    if wish.only_version {
        return Ok(invoked.version());
    }
    let file = File::look(&wish.image, STATUSES)?;
    if !wish.is_forced && !wish.is_trial {
        refuse_to_overwrite(&wish)?;
    }
    let bytes = wish.bytes.or(file.bytes.filter(|bytes| *bytes > 0));
    let bytes = bytes.ok_or_else(|| {
        let image = wish.image.display();
        STATUSES.failed(format_args!("{image} has no size yet: say -d size="))
    })?;
    let options = options(&wish, &file, bytes)?;
    let made = if wish.is_trial {
        making::try_out(options, STATUSES)?
    } else {
        making::make(&options, &file, STATUSES)?
    };
    if !wish.is_quiet {
        crate::xfs_growfs::tell(&wish.image, &made);
    }
    Ok(0)
}

/// Refuses to overwrite old contents without `-f`.
fn refuse_to_overwrite(wish: &Wish) -> Result<(), Failure> {
    match foreign::find(&wish.image) {
        Some(old) => Err(STATUSES.failed(old.refused_by_xfs(&wish.image))),
        None => Ok(()),
    }
}

/// The size of a sector: the given one, which must not be smaller than the device's, or the device's own.
fn sector_size(wish: &Wish, file: &File) -> Result<Option<u32>, Failure> {
    let Some(Sectors { logical, physical }) = file.sectors else { return Ok(wish.sector_size) };
    match wish.sector_size {
        Some(given) if given < logical => Err(STATUSES.failed(format_args!(
            "illegal sector size {given}; hw sector is {logical}; leave -s size= out"
        ))),
        Some(given) => Ok(Some(given)),
        // A block cannot be smaller than a sector.
        None if wish.block_size.is_some_and(|block| block < physical) => Ok(Some(logical)),
        None => Ok(Some(physical)),
    }
}

fn options(wish: &Wish, file: &File, bytes: u64) -> Result<BuildOptions, Failure> {
    let source = wish.source.clone().unwrap_or(BuildSource::Several(Vec::new()));
    let mut options = BuildOptions::new(source, &wish.image, Format::Xfs);
    options.size = Some(bytes);
    options.force = true;
    options.in_place = true;
    options.label = wish.label.clone();
    options.features = wish.features.clone();
    options.block_size = wish.block_size;
    options.inode_size = wish.inode_size()?;
    options.dir_block_size = wish.dir_block_size;
    options.sector_size = sector_size(wish, file)?;
    options.inodes_percent = wish.inodes_percent;
    options.ag_count = wish.ag_count;
    options.ag_bytes = wish.ag_bytes()?;
    options.log_bytes = wish.log_bytes()?;
    making::set_times(&mut options, STATUSES)?;
    let is_random = !making::is_reproducible(&options);
    let random = || is_random.then(making::random_uuid);
    options.uuid = wish.uuid.or_else(random);
    Ok(options)
}
