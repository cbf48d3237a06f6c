//! One file per command.

pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod extract;
pub(crate) mod find;
pub(crate) mod info;
pub(crate) mod ls;

use diskwright::{Outcome, Result};

use crate::cli::{Cli, Command};

/// Runs the command that was asked for.
pub(crate) fn run(cli: &Cli) -> Result<Outcome> {
    match &cli.command {
        Command::Build(args) => build::run(args),
        Command::Info(args) => info::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Find(args) => find::run(args),
        Command::Extract(args) => extract::run(args),
    }
}
