//! `diskwright mount` and `diskwright unmount` on hosts without FUSE: hidden from the help, and
//! rejected with the reason.

use std::ffi::OsString;

use clap::Args;
use diskwright::{Error, Outcome, Result};

/// Unparsed arguments.
#[derive(Debug, Args)]
#[command(hide = true, disable_help_flag = true)]
pub(crate) struct AnyArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Replaces the command of the same name.
pub(crate) mod mount {
    pub(crate) use super::AnyArgs as MountArgs;

    pub(crate) fn run(_: &MountArgs) -> super::Result<super::Outcome> {
        super::refuse("mount")
    }
}

/// Replaces the command of the same name.
pub(crate) mod unmount {
    pub(crate) use super::AnyArgs as UnmountArgs;

    pub(crate) fn run(_: &UnmountArgs) -> super::Result<super::Outcome> {
        super::refuse("unmount")
    }
}

fn refuse(command: &str) -> Result<Outcome> {
    Err(Error::Usage(format!(
        "{command} requires Linux; on this host, read an image with ls, cat, cp and extract, and \
         change it with cp, mkdir, rm and similar commands"
    )))
}
