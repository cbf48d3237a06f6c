//! `diskwright links`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::{Error, Outcome, Result};
use dropin::Program;

use crate::terminal;

const NOTES: &str = "\
Example:
  diskwright links ~/.local/lib/diskwright && PATH=~/.local/lib/diskwright:$PATH make

Existing links to this program are kept. Any other existing file is kept too, and a message names it. Put the directory \
before the system directories in PATH to use the links. blkid is created only on request, because the blkid of the \
system recognises more formats.";

/// Create links that run this program as mke2fs, mkfs.xfs, e2fsck and others
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct LinksArgs {
    /// Directory for the links, created if missing
    directory: PathBuf,
    /// Create links only for these programs, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Create links for these programs too, which have none by default: blkid
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "only")]
    with: Vec<String>,
}

/// Programs that get a link only on request.
const ON_REQUEST: [&str; 1] = ["blkid"];

impl LinksArgs {
    fn check(&self) -> Result<()> {
        for name in self.only.iter().chain(&self.with) {
            if !Program::all().any(|program| program.name() == name) {
                let problem =
                    format!("{name} is not a supported program; list them with diskwright as list");
                return Err(Error::Usage(problem));
            }
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        let is_in = |names: &[String]| names.iter().any(|one| one == name);
        if !self.only.is_empty() {
            return is_in(&self.only);
        }
        !ON_REQUEST.contains(&name) || is_in(&self.with)
    }
}

pub(crate) fn run(args: &LinksArgs) -> Result<Outcome> {
    args.check()?;
    let directory = &*args.directory;
    let failed =
        |operation, path: &Path, source| Error::Host { operation, path: path.to_owned(), source };
    let program =
        std::env::current_exe().map_err(|e| failed("find", Path::new("diskwright"), e))?;
    if directory.to_str().is_some_and(|name| name.contains("://")) {
        let problem = io::Error::new(io::ErrorKind::InvalidInput, "links need a local directory");
        return Err(failed("make", directory, problem));
    }
    fs::create_dir_all(directory).map_err(|e| failed("make", directory, e))?;
    let mut outcome = Outcome::Done;
    for name in Program::all().map(Program::name).filter(|name| args.wants(name)) {
        let link = directory.join(name);
        match make(&program, &link) {
            Ok(true) => {}
            Ok(false) => {
                terminal::message(&format_args!("{}: another file has this name", link.display()));
                outcome = Outcome::No;
            }
            Err(e) => return Err(failed("make", &link, e)),
        }
    }
    Ok(outcome)
}

/// Creates a link. Returns whether it exists afterwards.
fn make(program: &Path, link: &Path) -> io::Result<bool> {
    match symlink(program, link) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Ok(fs::read_link(link).is_ok_and(|target| target == program))
        }
        other => other.map(|()| true),
    }
}

#[cfg(unix)]
fn symlink(program: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(program, link)
}

/// Copies the program instead: few users have the privilege to create links on these systems.
#[cfg(not(unix))]
fn symlink(program: &Path, link: &Path) -> io::Result<()> {
    let copy = link.with_extension("exe");
    match copy.exists() {
        true => Err(io::ErrorKind::AlreadyExists.into()),
        false => fs::copy(program, copy).map(drop),
    }
}
