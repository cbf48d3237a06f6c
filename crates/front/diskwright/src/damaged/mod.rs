//! Files that cannot be read completely.
//!
//! With a mapfile of GNU ddrescue, the extent maps determine the files on bad areas, and contents are not read. Without
//! one, all contents are read. Metadata is read in both cases. The search continues behind each error.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::damaged::{SearchOptions, search};
//!
//! # fn main() -> diskwright::Result<()> {
//! let options = SearchOptions::default().path("/home");
//! let found = search("root.img".as_ref(), &ImageOptions::new(), &options, &mut |file| {
//!     println!("{} bytes lost of {}", file.lost.bytes, String::from_utf8_lossy(&file.path));
//!     Ok(())
//! })?;
//! assert!(found.is_complete());
//! # Ok(()) }
//! ```

mod examine;
mod lost;

use std::path::Path;

use serde::{Serialize, Serializer};
use vfs::path::{LastLink, Order, Visit};
use vfs::{FileType, Ino, Paths};

pub use lost::{LostRange, LostRanges};

use crate::fs::{absolute, join};
use crate::text::{escaped, lossy, not_utf8, type_word};
use crate::{Error, ImageOptions, Outcome, Result};
use examine::{Contents, Examination, is_damage};

/// Maximum number of problems that are kept for a file.
const PROBLEMS_MAX: usize = 20;

/// Condition of a name and a type. A file whose type cannot be read has none.
pub type FileFilter<'m> = &'m dyn Fn(&[u8], Option<FileType>) -> bool;

/// Conditions of a search; by default, all files are examined.
#[derive(Default)]
#[non_exhaustive]
pub struct SearchOptions<'m> {
    /// Directory or file to begin at.
    pub path: Vec<u8>,
    /// Files to examine.
    pub matches: Option<FileFilter<'m>>,
}

impl<'m> SearchOptions<'m> {
    /// Sets the field `path`.
    #[must_use]
    pub fn path(mut self, path: impl Into<Vec<u8>>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the field `matches`.
    #[must_use]
    pub fn matches(mut self, matches: FileFilter<'m>) -> Self {
        self.matches = Some(matches);
        self
    }
}

/// A file that cannot be read completely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedFile {
    /// Absolute path.
    pub path: Vec<u8>,
    /// Its inode, if it is readable.
    pub ino: Option<Ino>,
    /// Its type, if the inode is readable.
    pub file_type: Option<FileType>,
    /// Length in bytes.
    pub size: u64,
    /// Unreadable bytes of its contents.
    pub lost: LostRanges,
    /// Messages about unreadable metadata: the inode, names, attributes, the extent map. At most 20.
    pub problems: Vec<String>,
    /// True if a device error is among the causes.
    pub is_device_error: bool,
}

impl DamagedFile {
    /// Returns whether nothing is damaged.
    fn is_sound(&self) -> bool {
        self.lost.bytes == 0 && self.problems.is_empty()
    }

    fn problem(&mut self, error: &vfs::Error) {
        self.is_device_error |= matches!(error, vfs::Error::Device(_));
        let text = error.to_string();
        if self.problems.len() < PROBLEMS_MAX && !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }

    /// Returns the damage as one line: the path, lost ranges and problems.
    pub fn line(&self) -> String {
        let mut parts = Vec::new();
        if self.lost.bytes > 0 {
            parts.push(format!("{} of {} bytes lost: {}", self.lost.bytes, self.size, self.lost));
        }
        parts.extend(self.problems.iter().map(|text| escaped(text.as_bytes()).to_string()));
        format!("{}: {}", escaped(&self.path), parts.join("; "))
    }

    /// Returns the damage as one line of JSON, with a newline.
    pub fn json_line(&self) -> String {
        // Serialisation cannot fail, because records contain only strings and numbers under fixed keys.
        disk::address::safe_json(serde_json::to_string(self).unwrap_or_default()) + "\n"
    }
}

impl Serialize for DamagedFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct FileRecord<'f> {
            path: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            path_bytes: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            inode: Option<u64>,
            #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
            file_type: Option<&'static str>,
            size: u64,
            #[serde(flatten)]
            lost: &'f LostRanges,
            problems: &'f [String],
        }
        let record = FileRecord {
            path: lossy(&self.path),
            path_bytes: not_utf8(&self.path),
            inode: self.ino.map(|ino| ino.0),
            file_type: self.file_type.map(type_word),
            size: self.size,
            lost: &self.lost,
            problems: &self.problems,
        };
        record.serialize(serializer)
    }
}

/// Result of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchReport {
    /// Number of files that were examined.
    pub examined: u64,
    /// Number of damaged files among them.
    pub damaged: u64,
    /// Number of directories and inodes that could not be read, below which there may be further files.
    pub unlisted: u64,
    /// Number of them with device errors.
    pub unlisted_by_device: u64,
    /// Number of files whose contents cannot be read for other reasons than damage, such as encryption.
    pub not_read: u64,
}

impl SearchReport {
    /// Returns whether all files were found.
    pub fn is_complete(&self) -> bool {
        self.unlisted == 0
    }

    /// Returns the exit status: `No` if there are damaged files, and `Image` or `Io` if the list may be incomplete.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self { unlisted_by_device: 1.., .. } => Outcome::Io,
            Self { unlisted: 1.., .. } => Outcome::Image,
            Self { damaged: 1.., .. } => Outcome::No,
            _ => Outcome::Done,
        }
    }
}

/// Searches an image for files that cannot be read completely. Calls `each` with every such file, in the order of a walk.
///
/// # Errors
/// If the image cannot be opened, its root or `path` cannot be found; those of `each`.
pub fn search(
    image: &Path,
    open: &ImageOptions,
    options: &SearchOptions<'_>,
    each: &mut dyn FnMut(&DamagedFile) -> Result<()>,
) -> Result<SearchReport> {
    let (image, device) = open.open_with_device(image)?;
    let fs = image.file_system()?;
    // Behind layers, the areas of the mapfile are known only by reading.
    let has_areas = open.mapfile.is_some() && !open.has_layers();
    let contents = if has_areas { Contents::Mapped(&*device) } else { Contents::Read };
    search_in(fs.paths(), contents, options, each)
}

fn search_in(
    paths: Paths<'_>,
    contents: Contents<'_>,
    options: &SearchOptions<'_>,
    each: &mut dyn FnMut(&DamagedFile) -> Result<()>,
) -> Result<SearchReport> {
    let top = absolute(&options.path);
    let ino = paths
        .resolve(&options.path, LastLink::Keep)
        .map_err(|error| Error::file(&options.path, error))?;
    let top_name = top.rsplit(|&b| b == b'/').next().unwrap_or_default().to_vec();
    let mut examination = Examination::new(paths.file_system(), contents);
    let mut search = RunningSearch { each, report: SearchReport::default(), pending: None };
    let mut walk = paths.walk(ino, Order::Sorted);
    while let Some(visit) = walk.advance() {
        let path = join(&top, walk.path());
        let name = if walk.path().is_empty() { &top_name } else { walk.name() };
        let matches = |file_type| options.matches.is_none_or(|matches| matches(name, file_type));
        match visit {
            Ok(Visit { attributes, .. }) => {
                search.flush()?;
                if matches(Some(attributes.file_type)) {
                    search.report.examined += 1;
                    let file = examination.file(path, &attributes, &mut search.report.not_read);
                    search.pending = Some((file, true));
                } else {
                    let file_type = Some(attributes.file_type);
                    let ino = Some(attributes.ino);
                    let file = DamagedFile { path, ino, file_type, ..DamagedFile::default() };
                    search.pending = Some((file, false));
                }
            }
            Err(error) if is_damage(&error) => search.unreadable(path, &error, matches(None))?,
            Err(error) => return Err(Error::file(&path, error)),
        }
    }
    search.flush()?;
    Ok(search.report)
}

/// State of a search.
struct RunningSearch<'s> {
    each: &'s mut dyn FnMut(&DamagedFile) -> Result<()>,
    report: SearchReport,
    /// Last file visited, and whether it matches. The next error may concern its entries.
    pending: Option<(DamagedFile, bool)>,
}

impl RunningSearch<'_> {
    /// Reports the pending file, if it is damaged.
    fn flush(&mut self) -> Result<()> {
        match self.pending.take() {
            Some((file, true)) if !file.is_sound() => {
                self.report.damaged += 1;
                (self.each)(&file)
            }
            _ => Ok(()),
        }
    }

    /// Records a directory that cannot be listed, or a file whose inode cannot be read.
    fn unreadable(&mut self, path: Vec<u8>, error: &vfs::Error, matches: bool) -> Result<()> {
        self.report.unlisted += 1;
        self.report.unlisted_by_device += u64::from(matches!(error, vfs::Error::Device(_)));
        let is_listing = self.pending.as_ref().is_some_and(|(file, _)| file.path == path);
        if !is_listing {
            self.flush()?;
            self.report.examined += u64::from(matches);
            self.pending = Some((DamagedFile { path, ..DamagedFile::default() }, matches));
        }
        if let Some((file, _)) = &mut self.pending {
            file.problem(error);
        }
        if is_listing { Ok(()) } else { self.flush() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_one_line_of_text_or_json() {
        let mut file =
            DamagedFile { path: b"/d\n\xff".to_vec(), size: 9000, ..DamagedFile::default() };
        assert!(file.is_sound());
        (file.ino, file.file_type) = (Some(Ino(12)), Some(FileType::Regular));
        file.lost.add(4096..8192);
        file.problem(&vfs::Error::Corrupt(vfs::Corruption::new("extent map", "gone")));
        let line = file.line();
        assert!(line.starts_with("/d\\n\\xff: 4096 of 9000 bytes lost: 4096+4096; "), "{line}");
        let json: serde_json::Value = serde_json::from_str(&file.json_line()).unwrap();
        assert_eq!((&json["inode"], &json["type"]), (&12.into(), &"file".into()));
        assert_eq!(json["lost"], serde_json::json!([{ "offset": 4096, "bytes": 4096 }]));
        assert_eq!((&json["lost_bytes"], &json["path_bytes"]), (&4096.into(), &"2f640aff".into()));
    }

    #[test]
    fn the_status_says_whether_the_list_is_complete() {
        let of = |damaged, unlisted, unlisted_by_device| {
            SearchReport { damaged, unlisted, unlisted_by_device, ..SearchReport::default() }
                .outcome()
        };
        assert_eq!(
            [of(0, 0, 0), of(1, 0, 0), of(1, 1, 0), of(1, 2, 1)],
            [Outcome::Done, Outcome::No, Outcome::Image, Outcome::Io]
        );
    }
}
