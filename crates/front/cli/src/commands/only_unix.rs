//! `diskwright mount`, `unmount` and `mounts` on hosts without mounts: hidden from the help, and rejected with the reason.

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

/// Replaces the command of the same name.
pub(crate) mod mounts {
    pub(crate) use super::AnyArgs as MountsArgs;

    pub(crate) fn run(_: &MountsArgs) -> super::Result<super::Outcome> {
        super::refuse("mounts")
    }
}

fn refuse(command: &str) -> Result<Outcome> {
    Err(Error::Usage(format!(
        "{command} requires Linux or macOS; on this host, read an image with ls, cat, cp and extract, change it \
         with cp, mkdir, rm and similar commands, or serve its files with serve --webdav"
    )))
}
