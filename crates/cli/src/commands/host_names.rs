//! Options for the names of extracted files on the host.

use clap::Args;

/// What becomes of names that not every host can have. Part of every command that copies files out of an image.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NameArgs {
    /// Give what has a name that Windows cannot have another one, on any host: characters from U+F000 on stand for
    /// those that cannot be, and cp with this option gives files their names back when it copies them into an image.
    /// Without it, such files are named and left out on Windows
    #[arg(long)]
    pub(crate) map_names: bool,
}
