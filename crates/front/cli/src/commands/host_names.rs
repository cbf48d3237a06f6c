//! Options for the names of extracted files on the host.

use clap::Args;

/// Treatment of names that Windows does not allow. Part of commands that copy files out of an image.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NameArgs {
    /// Replace characters that Windows does not allow in names by characters from U+F000 on, on any host. cp into an image
    /// and build restore the names with this option. Without it, such files are reported and skipped on Windows
    #[arg(long)]
    pub(crate) map_names: bool,
}
