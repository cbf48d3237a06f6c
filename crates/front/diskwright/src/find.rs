//! Search for files (`diskwright find`).
//!
//! ```no_run
//! use diskwright::find::{FindOptions, Style, find};
//! use diskwright::Image;
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::open("root.img")?;
//! let services = FindOptions::default().name("*.service").style(Style::Lines);
//! find(image.file_system()?.paths(), b"/etc", &services, &mut std::io::stdout())?;
//! # Ok(()) }
//! ```

use std::io::Write;

use vfs::path::{LastLink, Order, Visit};
use vfs::{FileSystem, FileType, Paths};

use crate::list::{absolute, join, write_name};
use crate::{Error, Record, Result, scout};

/// Output style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Path and newline, escaped for a terminal.
    #[default]
    Escaped,
    /// Raw path and newline.
    Lines,
    /// Raw path and NUL byte.
    Null,
    /// One JSON object per line.
    Json,
}

/// Conditions of a search; by default, all files match.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FindOptions {
    /// Pattern of the name: `*`, `?`, `[a-z]`, `[!a-z]`, `{a,b}`, and `\` to escape a character.
    pub name: Option<Vec<u8>>,
    /// Accepted types; empty accepts all.
    pub types: Vec<FileType>,
    /// Output style.
    pub style: Style,
}

setters!(FindOptions {
    name: impl Into<Vec<u8>> = Some(name.into()),
    types: Vec<FileType>,
    style: Style,
});

/// Writes the files at and below `path` that match all conditions, parents first, sorted by name.
///
/// # Errors
/// If a file cannot be read (the error names it), or the output cannot be written.
pub fn find(
    paths: Paths<'_>,
    path: &[u8],
    options: &FindOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let fs = paths.file_system();
    let top = absolute(path);
    let ino = paths.resolve(path, LastLink::Keep).map_err(|e| Error::file(path, e))?;
    let top_name = top.rsplit(|&b| b == b'/').next().unwrap_or_default();
    scout::ahead_of(fs, ino, |scouts| {
        let mut walk = paths.walk(ino, Order::Sorted);
        while let Some(visit) = walk.advance() {
            scouts.pass();
            let visit = visit.map_err(|e| Error::file(&join(&top, walk.path()), e))?;
            let name = if visit.depth == 0 { top_name } else { walk.name() };
            if options.matches(name, visit.attributes.file_type) {
                write_found(fs, &join(&top, walk.path()), &visit, options.style, out)?;
            }
        }
        Ok(())
    })
}

impl FindOptions {
    fn matches(&self, name: &[u8], file_type: FileType) -> bool {
        self.accepts(name, Some(file_type))
    }

    /// Returns whether a file matches. An unknown type matches each type.
    pub fn accepts(&self, name: &[u8], file_type: Option<FileType>) -> bool {
        let has_name = self.name.as_ref().is_none_or(|glob| fast_glob::glob_match(glob, name));
        let has_type = file_type.is_none_or(|file_type| self.types.contains(&file_type));
        has_name && (self.types.is_empty() || has_type)
    }
}

fn write_found(
    fs: &dyn FileSystem,
    found: &[u8],
    visit: &Visit,
    style: Style,
    out: &mut dyn Write,
) -> Result<()> {
    match style {
        Style::Escaped | Style::Lines => {
            write_name(out, found, style == Style::Escaped)?;
            out.write_all(b"\n").map_err(Error::Output)
        }
        Style::Null => {
            write_name(out, found, false)?;
            out.write_all(b"\0").map_err(Error::Output)
        }
        Style::Json => {
            let record = Record::new(fs, found, &visit.attributes);
            let record = record.map_err(|e| Error::file(found, e))?;
            out.write_all(record.json_line().as_bytes()).map_err(Error::Output)
        }
    }
}
