//! `diskwright cat`.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;

use clap::Args;
use diskwright::{Error, Outcome, Result};
use vfs::path::LastLink;

use crate::commands::arguments::{ImageArgs, bytes};
use crate::terminal;

/// Write files of an image to standard output
///
/// Symbolic links are followed within the image.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Files in the image
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &CatArgs) -> Result<Outcome> {
    let image = args.image.open()?;
    let fs = image.file_system()?;
    let paths = fs.paths();
    terminal::with_output(|out| {
        for path in &args.paths {
            let path = bytes(path);
            let mut written = Ok(());
            let read = paths.resolve(path, LastLink::Follow).and_then(|ino| {
                paths.read_inode(ino, &mut |piece| {
                    written = out.write_all(piece);
                    if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })
            });
            read.map_err(|e| Error::file(path, e))?;
            written.map_err(Error::Output)?;
        }
        Ok(Outcome::Done)
    })
}
