//! Options for remote images, common to all commands.

use std::path::PathBuf;

use clap::Args;
use diskwright::anywhere::{Reading, set_reading};
use diskwright::{Error, Result};

/// Environment variable with the chunk cache directory, used if the option does not name one.
const CACHE_VARIABLE: &str = "DISKWRIGHT_CACHE";

/// Options for remote images and images in other files.
#[derive(Debug, Args)]
pub struct PlacesArgs {
    /// Cache data of remote images in DIR, shared between commands. Setting DISKWRIGHT_CACHE to a directory enables the
    /// cache too [default DIR: $DISKWRIGHT_CACHE, or $XDG_CACHE_HOME/diskwright]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Remote images and data files"
    )]
    cache: Option<Option<PathBuf>>,

    /// Limit the size of the cache [default: 10G]
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        value_parser = diskwright::text::parse_size,
        help_heading = "Remote images and data files"
    )]
    cache_size: Option<u64>,

    /// Disable read-ahead from remote images, for measurements
    #[arg(long, global = true, help_heading = "Remote images and data files")]
    no_read_ahead: bool,

    /// Do not use the metadata bundles of remote images
    #[arg(long, global = true, help_heading = "Remote images and data files")]
    no_bundle: bool,

    /// Allow qcow2 images with an external data file and VMDK images with extents in other directories. Use it only with
    /// trusted images, which can name any file of this machine
    #[arg(long, global = true, help_heading = "Remote images and data files")]
    allow_data_files: bool,
}

impl PlacesArgs {
    /// Applies these options to all reads of remote images.
    ///
    /// # Errors
    /// If the directory for the cache is unknown.
    pub fn set(&self) -> Result<()> {
        let mut reading =
            Reading::default().cache(self.directory()?).read_ahead(!self.no_read_ahead);
        reading.bundles = !self.no_bundle;
        reading.allow_data_files = self.allow_data_files;
        reading.cache_bytes = self.cache_size.unwrap_or(reading.cache_bytes);
        set_reading(&reading)
    }

    fn directory(&self) -> Result<Option<PathBuf>> {
        let of_environment = path_of(CACHE_VARIABLE);
        match &self.cache {
            Some(Some(directory)) => Ok(Some(directory.clone())),
            None => Ok(of_environment),
            Some(None) => {
                // The XDG base directory specification requires relative paths to be ignored.
                let of_user = || {
                    let home = path_of("XDG_CACHE_HOME").filter(|home| home.is_absolute())?;
                    Some(home.join("diskwright"))
                };
                let of_home = || Some(path_of("HOME")?.join(".cache/diskwright"));
                let problem = "no cache directory found: choose one with --cache=DIR";
                let found = of_environment.or_else(of_user).or_else(of_home);
                found.map(Some).ok_or_else(|| Error::Usage(problem.into()))
            }
        }
    }
}

fn path_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
