//! One file per command.

pub(crate) mod apply;
mod arguments;
pub(crate) mod as_program;
pub(crate) mod build;
mod build_corrections;
mod build_dedupe;
mod build_output;
#[cfg(feature = "anywhere")]
pub(crate) mod bundle;
pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod clone;
pub(crate) mod commit;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod cp;
pub(crate) mod dedupe;
pub(crate) mod deleted;
pub(crate) mod devices;
pub(crate) mod diff;
mod diff_sides;
pub(crate) mod dump;
pub(crate) mod extract;
pub(crate) mod find;
#[cfg(feature = "anywhere")]
pub(crate) mod gc;
pub(crate) mod grow;
mod host_names;
pub(crate) mod info;
mod keys;
mod layers;
pub(crate) mod links;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod lsattr;
mod making;
pub(crate) mod map;
pub(crate) mod mkdir;
#[cfg(unix)]
pub(crate) mod mount;
#[cfg(unix)]
pub(crate) mod mounts;
pub(crate) mod mv;
#[cfg(not(unix))]
mod only_unix;
mod other_devices;
pub(crate) mod paths;
#[cfg_attr(not(feature = "anywhere"), path = "no_places.rs")]
pub(crate) mod places;
#[cfg(feature = "anywhere")]
pub(crate) mod publish;
pub(crate) mod quota;
pub(crate) mod recover;
pub(crate) mod repair;
pub(crate) mod reset;
pub(crate) mod rm;
pub(crate) mod rmdir;
pub(crate) mod serve;
mod session;
pub(crate) mod setfattr;
pub(crate) mod shrink;
pub(crate) mod snapshot;
mod sources;
pub(crate) mod timeline;
pub(crate) mod trim;
pub(crate) mod truncate;
#[cfg(unix)]
pub(crate) mod unmount;
#[cfg(feature = "anywhere")]
pub(crate) mod volume;
pub(crate) mod workload;

use diskwright::{Outcome, Result};
#[cfg(not(unix))]
pub(crate) use only_unix::{mount, mounts, unmount};

use crate::cli::{Cli, Command};

/// Runs the requested command.
pub(crate) fn run(cli: &Cli) -> Result<Outcome> {
    cli.places.set()?;
    match &cli.command {
        Command::Build(args) => build::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Copy(args) => copy::run(args),
        Command::Info(args) => info::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Find(args) => find::run(args),
        Command::Extract(args) => extract::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Paths(args) => paths::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Unmount(args) => unmount::run(args),
        Command::Mounts(args) => mounts::run(args),
        Command::Serve(args) => serve::run(args),
        #[cfg(feature = "anywhere")]
        Command::Volume(args) => volume::run(args),
        Command::Apply(args) => apply::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Mkdir(args) => mkdir::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Rmdir(args) => rmdir::run(args),
        Command::Mv(args) => mv::run(args),
        Command::Ln(args) => ln::run(args),
        Command::Chmod(args) => chmod::run(args),
        Command::Chattr(args) => chattr::run(args),
        Command::Lsattr(args) => lsattr::run(args),
        Command::Chown(args) => chown::run(args),
        Command::Setfattr(args) => setfattr::run(args),
        Command::Truncate(args) => truncate::run(args),
        Command::Trim(args) => trim::run(args),
        Command::Quota(args) => quota::run(args),
        Command::Dedupe(args) => dedupe::run(args),
        Command::Recover(args) => recover::run(args),
        Command::Check(args) => check::run(args),
        Command::Clone(args) => clone::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Reset(args) => reset::run(args),
        Command::Commit(args) => commit::run(args),
        Command::Repair(args) => repair::run(args),
        Command::Grow(args) => grow::run(args),
        Command::Shrink(args) => shrink::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Map(args) => map::run(args),
        Command::Deleted(args) => deleted::run(args),
        Command::Timeline(args) => timeline::run(args),
        #[cfg(feature = "anywhere")]
        Command::Bundle(args) => bundle::run(args),
        #[cfg(feature = "anywhere")]
        Command::Publish(args) => publish::run(args),
        #[cfg(feature = "anywhere")]
        Command::Gc(args) => gc::run(args),
        Command::Workload(args) => workload::run(args),
        Command::As(args) => as_program::run(args),
        Command::Links(args) => links::run(args),
    }
}
