//! `mkfs.xfs`.

mod wish;

use std::ffi::OsString;

use diskwright::build::{BuildOptions, BuildSource, Format};
use diskwright::{Image, OpenImage};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::Invoked;
use crate::making::{self, File};
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
    let options = options(&wish, bytes)?;
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

/// What is there already is kept unless `-f` says otherwise.
fn refuse_to_overwrite(wish: &Wish) -> Result<(), Failure> {
    let Ok(image) = Image::open_rootless(&wish.image, &OpenImage::default()) else { return Ok(()) };
    Err(STATUSES.failed(format_args!(
        "{} holds a file system already ({}): -f overwrites it",
        wish.image.display(),
        image.info().format
    )))
}

fn options(wish: &Wish, bytes: u64) -> Result<BuildOptions, Failure> {
    let source = wish.source.clone().unwrap_or(BuildSource::Several(Vec::new()));
    let mut options = BuildOptions::new(source, &wish.image, Format::Xfs);
    options.size = Some(bytes);
    options.force = true;
    options.label = wish.label.clone();
    options.features = wish.features.clone();
    options.block_size = wish.block_size;
    options.inode_size = wish.inode_size()?;
    options.dir_block_size = wish.dir_block_size;
    options.sector_size = wish.sector_size;
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
