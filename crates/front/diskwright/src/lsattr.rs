//! Listing of flags (`diskwright lsattr`).
//!
//! ```no_run
//! use diskwright::lsattr::{FlagOptions, FlagStyle, list_flags};
//! use diskwright::Image;
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::open("root.img")?;
//! let how = FlagOptions::default().style(FlagStyle::Names).recursive(true);
//! list_flags(image.file_system()?.paths(), b"/etc", &how, &mut std::io::stdout())?;
//! # Ok(()) }
//! ```

use std::io::Write;

use serde::Serialize;
use vfs::path::{LastLink, Order};
use vfs::{FileAttributes, FileType, Ino, InodeFlags, Paths};

use crate::list::{absolute, join, write_name};
use crate::{Error, Result, text};

/// Letters of chattr(1), in the order of lsattr(1).
pub(crate) const LETTERS: [(InodeFlags, char); 22] = [
    (InodeFlags::SECURE_DELETE, 's'),
    (InodeFlags::UNDELETE, 'u'),
    (InodeFlags::SYNC, 'S'),
    (InodeFlags::DIRSYNC, 'D'),
    (InodeFlags::IMMUTABLE, 'i'),
    (InodeFlags::APPEND, 'a'),
    (InodeFlags::NODUMP, 'd'),
    (InodeFlags::NOATIME, 'A'),
    (InodeFlags::COMPRESS, 'c'),
    (InodeFlags::ENCRYPTED, 'E'),
    (InodeFlags::JOURNAL_DATA, 'j'),
    (InodeFlags::INDEXED, 'I'),
    (InodeFlags::NOTAIL, 't'),
    (InodeFlags::TOPDIR, 'T'),
    (InodeFlags::EXTENTS, 'e'),
    (InodeFlags::NOCOW, 'C'),
    (InodeFlags::DAX, 'x'),
    (InodeFlags::CASEFOLD, 'F'),
    (InodeFlags::INLINE_DATA, 'N'),
    (InodeFlags::PROJINHERIT, 'P'),
    (InodeFlags::VERITY, 'V'),
    (InodeFlags::NOCOMPRESS, 'm'),
];

/// Names of all flags, starting with those that have letters. `chattr` accepts the changeable ones.
pub(crate) const NAMES: [(InodeFlags, &str); 32] = [
    (InodeFlags::SECURE_DELETE, "secure_delete"),
    (InodeFlags::UNDELETE, "undelete"),
    (InodeFlags::SYNC, "sync"),
    (InodeFlags::DIRSYNC, "dirsync"),
    (InodeFlags::IMMUTABLE, "immutable"),
    (InodeFlags::APPEND, "append"),
    (InodeFlags::NODUMP, "nodump"),
    (InodeFlags::NOATIME, "noatime"),
    (InodeFlags::COMPRESS, "compress"),
    (InodeFlags::ENCRYPTED, "encrypted"),
    (InodeFlags::JOURNAL_DATA, "journal_data"),
    (InodeFlags::INDEXED, "indexed"),
    (InodeFlags::NOTAIL, "notail"),
    (InodeFlags::TOPDIR, "topdir"),
    (InodeFlags::EXTENTS, "extents"),
    (InodeFlags::NOCOW, "nocow"),
    (InodeFlags::DAX, "dax"),
    (InodeFlags::CASEFOLD, "casefold"),
    (InodeFlags::INLINE_DATA, "inline_data"),
    (InodeFlags::PROJINHERIT, "projinherit"),
    (InodeFlags::VERITY, "verity"),
    (InodeFlags::NOCOMPRESS, "nocompress"),
    (InodeFlags::REALTIME, "realtime"),
    (InodeFlags::PREALLOCATED, "preallocated"),
    (InodeFlags::RTINHERIT, "rtinherit"),
    (InodeFlags::NOSYMLINKS, "nosymlinks"),
    (InodeFlags::EXTSIZE, "extsize"),
    (InodeFlags::EXTSZINHERIT, "extszinherit"),
    (InodeFlags::NODEFRAG, "nodefrag"),
    (InodeFlags::FILESTREAM, "filestream"),
    (InodeFlags::COWEXTSIZE, "cowextsize"),
    (InodeFlags::HASATTR, "hasattr"),
];

/// Output style of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlagStyle {
    /// Letters, as in lsattr(1).
    #[default]
    Letters,
    /// Names.
    Names,
    /// One JSON object per line, with all properties.
    Json,
}

/// Options of a listing of flags.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FlagOptions {
    /// Output style.
    pub style: FlagStyle,
    /// List directories recursively.
    pub recursive: bool,
    /// Include names that start with a dot.
    pub all: bool,
    /// List directories themselves instead of their contents.
    pub directories: bool,
    /// Include project IDs.
    pub projects: bool,
    /// Escape names for a terminal instead of writing raw bytes.
    pub escape: bool,
}

setters!(FlagOptions {
    style: FlagStyle,
    recursive: bool,
    all: bool,
    directories: bool,
    projects: bool,
    escape: bool,
});

/// One line of JSON.
#[derive(Serialize)]
struct Line {
    path: String,
    flags: Vec<&'static str>,
    project: u32,
    extent_size: u32,
    cow_extent_size: u32,
}

/// Lists the flags of the file at `path`, or of the contents of a directory in on-disk order. Files in a directory that
/// are neither regular files nor directories are skipped.
///
/// # Errors
/// If a file cannot be read (the error names it), or the output cannot be written.
pub fn list_flags(
    paths: Paths<'_>,
    path: &[u8],
    options: &FlagOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let at = |source| Error::file(path, source);
    let top = paths.resolve(path, LastLink::Follow).map_err(at)?;
    let attributes = paths.file_system().attributes(top).map_err(at)?;
    let mut lister = Lister { paths, options, out };
    let path = absolute(path);
    if options.directories || attributes.file_type != FileType::Directory {
        return lister.line(&path, top);
    }
    let mut walk = paths.walk(top, Order::Physical);
    while let Some(walked) = walk.next() {
        let walked = walked.map_err(|e| Error::file(&join(&path, &e.path), e.error))?;
        let is_top = walked.path.is_empty();
        let is_hidden = !options.all && !is_top && walked.name().starts_with(b".");
        let is_dir = walked.attributes.file_type == FileType::Directory;
        if is_dir && !is_top && (is_hidden || !options.recursive) {
            walk.skip_children();
        }
        if !is_top && !is_hidden && (is_dir || walked.attributes.file_type == FileType::Regular) {
            lister.line(&join(&path, &walked.path), walked.attributes.ino)?;
        }
    }
    Ok(())
}

struct Lister<'a> {
    paths: Paths<'a>,
    options: &'a FlagOptions,
    out: &'a mut dyn Write,
}

impl Lister<'_> {
    fn line(&mut self, path: &[u8], ino: Ino) -> Result<()> {
        let found = self.paths.file_system().file_attributes(ino);
        let found = found.map_err(|source| Error::file(path, source))?;
        match self.options.style {
            FlagStyle::Letters => {
                self.project(&found)?;
                self.text(&letters(found.flags))?;
                self.text(" ")?;
                write_name(self.out, path, self.options.escape)?;
            }
            FlagStyle::Names => {
                self.project(&found)?;
                write_name(self.out, path, self.options.escape)?;
                self.text("\t")?;
                self.text(&names(found.flags).join(", "))?;
            }
            FlagStyle::Json => {
                let line = Line {
                    path: text::escaped(path).to_string(),
                    flags: names(found.flags),
                    project: found.project_id,
                    extent_size: found.extent_size_bytes,
                    cow_extent_size: found.cow_extent_size_bytes,
                };
                self.text(&disk::address::safe_json(
                    serde_json::to_string(&line).unwrap_or_default(),
                ))?;
            }
        }
        self.text("\n")
    }

    fn project(&mut self, found: &FileAttributes) -> Result<()> {
        if self.options.projects { self.text(&format!("{:>5} ", found.project_id)) } else { Ok(()) }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes()).map_err(Error::Output)
    }
}

fn letters(flags: InodeFlags) -> String {
    LETTERS.iter().map(|&(flag, letter)| if flags.contains(flag) { letter } else { '-' }).collect()
}

fn names(flags: InodeFlags) -> Vec<&'static str> {
    NAMES.iter().filter(|(flag, _)| flags.contains(*flag)).map(|&(_, name)| name).collect()
}
