//! `diskwright clone`.

use std::path::PathBuf;

use clap::Args;
use diskwright::text::parse_size;
use diskwright::{Outcome, Result};

const NOTES: &str = "\
Examples:
  diskwright clone root.img web1 web2 web3
  diskwright cp hostname web1:/etc/hostname
  diskwright mount web2 /mnt
  diskwright clone s3://images/fleet/names/web web1 --size 20G && diskwright grow web1

A clone is a small file with the changes of its base image, and is used as an image by all commands. The base may be at
any place. It must stay and must not change as long as there are clones. diskwright snapshot keeps states of a clone,
reset goes back to them, and commit creates a separate image.";

/// Create writable clones of an image in no time
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct CloneArgs {
    /// Image to clone, which is not changed: a file, a place, or a snapshot
    base: PathBuf,

    /// Clones to create
    #[arg(required = true)]
    names: Vec<PathBuf>,

    /// Length of the clones, at least that of the base
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
}

pub(crate) fn run(args: &CloneArgs) -> Result<Outcome> {
    diskwright::clean_up_on_signals()?;
    diskwright::clones::clone(&args.base, &args.names, args.size)?;
    Ok(Outcome::Done)
}
