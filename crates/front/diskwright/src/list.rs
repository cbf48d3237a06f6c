//! Listing of directories (`diskwright ls`).
//!
//! ```no_run
//! use diskwright::list::{ListOptions, Style, list};
//! use diskwright::Image;
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::open("root.img")?;
//! list(image.file_system()?.paths(), b"/", &ListOptions::default().style(Style::Long), &mut std::io::stdout())?;
//! # Ok(()) }
//! ```

use std::io::Write;

use vfs::path::{DirectoryGuard, LastLink, NamedEntry};
use vfs::{Attributes, FileType, Ino, Paths};

pub(crate) use crate::fs::{absolute, join};
use crate::{Error, Record, Result, text};

/// Number of lines aligned together in a long listing, which limits the memory for large directories.
const ALIGNED_LINES: usize = 4096;

/// Placeholder for the target of an encrypted link in a long listing.
const ENCRYPTED_TARGET: &[u8] = b"(encrypted)";

/// Output style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Names.
    #[default]
    Names,
    /// Like `ls -l`, with numeric owners, and times in UTC.
    Long,
    /// One JSON object per line.
    Json,
}

/// Options of a listing.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ListOptions {
    /// Output style.
    pub style: Style,
    /// List directories recursively.
    pub recursive: bool,
    /// Escape names for a terminal instead of writing raw bytes.
    pub escape: bool,
}

setters!(ListOptions { style: Style, recursive: bool, escape: bool });

/// Lists the file at `path`, or the contents of a directory sorted by name.
///
/// # Errors
/// If a file cannot be read (the error names it), or the output cannot be written.
pub fn list(
    paths: Paths<'_>,
    path: &[u8],
    options: &ListOptions,
    out: &mut dyn Write,
) -> Result<()> {
    let fs = paths.file_system();
    let at = |source| Error::file(path, source);
    // As in ls, a link to a directory is followed, except in styles that describe the link itself.
    let last = if options.style == Style::Names { LastLink::Follow } else { LastLink::Keep };
    let ino = match paths.resolve(path, last) {
        Err(vfs::Error::NotFound) => paths.resolve(path, LastLink::Keep),
        found => found,
    };
    let attributes = ino.and_then(|ino| fs.attributes(ino)).map_err(at)?;
    let mut lister = Lister { paths, options, out, rows: Vec::new(), widths: [0; 4] };
    if attributes.file_type == FileType::Directory {
        lister.tree(&absolute(path), attributes)
    } else {
        lister.file(&absolute(path), path, &attributes)?;
        lister.flush()
    }
}

/// Writes a name, raw or escaped for a terminal.
pub(crate) fn write_name(out: &mut dyn Write, name: &[u8], escape: bool) -> Result<()> {
    let written = if escape { write!(out, "{}", text::escaped(name)) } else { out.write_all(name) };
    written.map_err(Error::Output)
}

struct Lister<'a> {
    paths: Paths<'a>,
    options: &'a ListOptions,
    out: &'a mut dyn Write,
    rows: Vec<Row>,
    /// Current column widths.
    widths: [usize; 4],
}

struct Row {
    mode: String,
    /// Links, owner, group, and size or device number.
    columns: [String; 4],
    time: String,
    name: Vec<u8>,
    target: Option<Vec<u8>>,
}

impl Lister<'_> {
    /// Lists a directory, with `recursive` also those below it, each separately like `ls -R`.
    fn tree(&mut self, top: &[u8], attributes: Attributes) -> Result<()> {
        let mut guard = DirectoryGuard::default();
        // For each directory on the current path, its subdirectories that are still to be listed, the next one last.
        // Only names are stored, so a deep tree needs no more memory than a flat one.
        let mut levels: Vec<(usize, Vec<NamedEntry>)> = Vec::new();
        let (mut path, mut next) = (top.to_vec(), Some(attributes.ino));
        loop {
            if let Some(dir) = next.take() {
                guard.enter(dir).map_err(|e| Error::file(&path, e))?;
                if self.options.recursive && self.options.style != Style::Json {
                    self.heading(&path, levels.is_empty())?;
                }
                levels.push((path.len(), self.directory(&path, dir)?));
            }
            let Some((path_len, below)) = levels.last_mut() else { return Ok(()) };
            path.truncate(*path_len);
            match below.pop() {
                None => drop(levels.pop()),
                Some(NamedEntry { name, ino, .. }) => {
                    if !path.ends_with(b"/") {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&name);
                    next = Some(ino);
                }
            }
        }
    }

    /// Lists a directory. If recursive, returns its subdirectories in reverse order.
    fn directory(&mut self, path: &[u8], dir: Ino) -> Result<Vec<NamedEntry>> {
        let entries = self.paths.read_dir_inode(dir).map_err(|e| Error::file(path, e))?;
        let mut below = Vec::new();
        for entry in entries {
            if self.entry(path, &entry)? && self.options.recursive {
                below.push(entry);
            }
        }
        self.flush()?;
        below.reverse();
        Ok(below)
    }

    fn heading(&mut self, path: &[u8], is_first: bool) -> Result<()> {
        self.text(if is_first { "" } else { "\n" })?;
        write_name(self.out, path, self.options.escape)?;
        self.text(":\n")
    }

    /// Lists one entry. Returns whether it is a directory.
    fn entry(&mut self, dir: &[u8], entry: &NamedEntry) -> Result<bool> {
        let needs_attributes = self.options.style != Style::Names;
        if let (false, Some(file_type)) = (needs_attributes, entry.file_type) {
            self.name_line(&entry.name)?;
            return Ok(file_type == FileType::Directory);
        }
        let path = || join(dir, &entry.name);
        if !needs_attributes && !self.options.recursive {
            self.name_line(&entry.name)?;
            return Ok(false);
        }
        let attributes = self.paths.file_system().attributes(entry.ino);
        let attributes = attributes.map_err(|e| Error::file(&path(), e))?;
        self.file(&path(), &entry.name, &attributes)?;
        Ok(attributes.file_type == FileType::Directory)
    }

    fn file(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> Result<()> {
        let fs = self.paths.file_system();
        match self.options.style {
            Style::Names => self.name_line(name),
            Style::Json => {
                let record = Record::new(fs, path, attributes).map_err(|e| Error::file(path, e))?;
                self.text(&record.json_line())
            }
            Style::Long => {
                let target = match attributes.file_type {
                    FileType::Symlink => Some(fs.readlink(attributes.ino)),
                    _ => None,
                };
                let target = match target {
                    // The target cannot be read without the key.
                    Some(Err(vfs::Error::Encrypted(_))) => Some(ENCRYPTED_TARGET.to_vec()),
                    target => target.transpose().map_err(|e| Error::file(path, e))?,
                };
                self.row(Row::new(name, attributes, target))
            }
        }
    }

    fn row(&mut self, row: Row) -> Result<()> {
        for (width, column) in self.widths.iter_mut().zip(&row.columns) {
            *width = (*width).max(column.len());
        }
        self.rows.push(row);
        if self.rows.len() < ALIGNED_LINES { Ok(()) } else { self.flush() }
    }

    /// Writes the buffered rows.
    fn flush(&mut self) -> Result<()> {
        let [links, uid, gid, size] = self.widths;
        for row in std::mem::take(&mut self.rows) {
            let Row { mode, columns: [a, b, c, d], time, .. } = &row;
            self.text(&format!("{mode} {a:>links$} {b:<uid$} {c:<gid$} {d:>size$} {time} "))?;
            write_name(self.out, &row.name, self.options.escape)?;
            if let Some(target) = &row.target {
                self.text(" -> ")?;
                write_name(self.out, target, self.options.escape)?;
            }
            self.text("\n")?;
        }
        Ok(())
    }

    fn name_line(&mut self, name: &[u8]) -> Result<()> {
        write_name(self.out, name, self.options.escape)?;
        self.text("\n")
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes()).map_err(Error::Output)
    }
}

impl Row {
    fn new(name: &[u8], attributes: &Attributes, target: Option<Vec<u8>>) -> Self {
        let size = match attributes.file_type {
            FileType::CharDevice | FileType::BlockDevice => {
                format!("{}, {}", attributes.device.major, attributes.device.minor)
            }
            _ => attributes.size.to_string(),
        };
        let [links, uid, gid] =
            [attributes.links, attributes.uid, attributes.gid].map(|number| number.to_string());
        Self {
            mode: text::mode(attributes),
            columns: [links, uid, gid, size],
            time: text::minute(attributes.mtime),
            name: name.to_vec(),
            target,
        }
    }
}
