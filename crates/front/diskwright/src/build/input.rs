//! Source of a build, with support for repeated reading.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use import::mtree::{Manifest, ManifestOptions};
use import::oci::ContainerImage;
use import::protofile::{Protofile, ProtofileOptions};
use import::{
    Entry, EntryKind, FileId, Options, Part, Progress, Source, SourceError, TarSource, Time,
};
use parking_lot::Mutex;

use super::image_source::ImageTree;
use super::mapped::Mapped;
use super::several::Several;
use super::{BuildError, Container, ManifestFile, PlacedSource, ProtofileSource};
use crate::host::{self, FileTypeExt};

/// Name of the archive on standard input in errors.
const STANDARD_INPUT: &str = "standard input";

/// Minimum size of a file for which free space is checked before spooling, in bytes.
const LARGE_BYTES: u64 = 1 << 30;

/// Prepared source.
pub(super) enum Input {
    /// Directory or archive file.
    Path(PathBuf),
    /// Directory with mapped names.
    Mapped(PathBuf),
    /// Archive that can be read only once and is spooled on the first reading.
    Copied(Copied),
    /// Archive on standard input or in a pipe that is read once.
    Once(PathBuf),
    /// Container image, already loaded.
    Container(ContainerImage),
    /// File system image.
    Image(ImageTree),
    /// Several sources.
    Several(Several<Input>),
    /// Manifest, already loaded.
    Manifest(Manifest),
    /// Prototype file, already loaded without contents.
    Protofile(Protofile),
}

/// Use of file contents in a pass over the source. If contents will be read, the first reading of a spooled archive
/// delivers them in the same form as later readings, so that the image is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentsUse {
    Unread,
    Read,
}

impl Input {
    /// Prepares a source. If an archive on standard input or in a pipe may be read again, the first reading spools it
    /// to an anonymous file next to the image. Nothing is spooled if it is not an archive.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn prepare(source: &Path, image: &Path, may_read_twice: bool) -> io::Result<Self> {
        let is_stream = source == Path::new("-")
            || std::fs::metadata(source).is_ok_and(|found| {
                found.file_type().is_fifo() || found.file_type().is_char_device()
            });
        if !is_stream {
            return Ok(Self::Path(source.to_owned()));
        }
        if !may_read_twice {
            return Ok(Self::Once(source.to_owned()));
        }
        let copy = tempfile::tempfile_in(beside(image))?;
        let state = Arc::new(Mutex::new(SpoolState::Untouched));
        Ok(Self::Copied(Copied { stream: source.to_owned(), copy: Arc::new(copy), state }))
    }

    /// Loads a container image. Temporary data is stored in an anonymous file in `beside`.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub(super) fn load(
        container: &Container,
        beside: &Path,
        threads: usize,
    ) -> Result<Self, SourceError> {
        let options = container.options(beside, threads);
        ContainerImage::load(&container.reference, &options).map(Self::Container)
    }

    /// Combines several prepared sources.
    pub(super) fn several(sources: &[PlacedSource], inputs: Vec<Self>) -> Self {
        let part = |(placed, input): (&PlacedSource, &Self)| Part {
            name: placed.source.to_string(),
            at: placed.at.clone(),
            mtime_only: input.is_directory(),
        };
        let parts = sources.iter().zip(&inputs).map(part).collect();
        Self::Several(Several::new(parts, inputs))
    }

    /// Loads a manifest and verifies the contents that it lists.
    ///
    /// # Errors
    /// If it cannot be read or parsed, or the contents differ.
    pub(super) fn list(
        manifest: &ManifestFile,
        threads: usize,
        time: Time,
    ) -> Result<Self, SourceError> {
        let options = ManifestOptions { threads, time };
        let root = manifest.root.as_deref();
        Manifest::load(&manifest.file, root, &options).map(Self::Manifest)
    }

    /// Loads a prototype file.
    ///
    /// # Errors
    /// If it cannot be read or parsed.
    pub(super) fn described(proto: &ProtofileSource, time: Time) -> Result<Self, SourceError> {
        let options = ProtofileOptions { slashes_are_spaces: proto.slashes_are_spaces, time };
        Protofile::load(&proto.file, options).map(Self::Protofile)
    }

    /// Returns the configuration of a container image.
    pub(super) fn config(&self) -> Option<&[u8]> {
        match self {
            Self::Container(image) => Some(image.config()),
            Self::Several(several) => several.inputs.iter().find_map(Self::config),
            _ => None,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Path(path) | Self::Mapped(path) if path.is_dir())
    }

    pub(super) fn can_be_read_again(&self) -> bool {
        !matches!(self, Self::Once(_))
    }

    /// Opens the source from the beginning. `images` are excluded if the source directory contains them.
    pub(super) fn open(
        &self,
        threads: usize,
        images: Vec<FileId>,
        contents: ContentsUse,
    ) -> Result<Box<dyn Source>, BuildError> {
        let options = Options { threads, exclude: images };
        Ok(match self {
            Self::Path(path) | Self::Once(path) => import::open(path, &options)?,
            Self::Mapped(path) => Box::new(Mapped::open(path, &options)?),
            Self::Copied(copied) => copied.open(contents)?,
            Self::Container(image) => Box::new(image.source()),
            Self::Image(image) => image.source(),
            Self::Several(several) => {
                let open = |input: &Self, how| input.open(threads, options.exclude.clone(), how);
                several
                    .open(|input| open(input, ContentsUse::Unread), |input| open(input, contents))?
            }
            Self::Manifest(manifest) => Box::new(manifest.source()),
            Self::Protofile(proto) => Box::new(proto.source()?),
        })
    }
}

/// Returns the directory of a file.
pub(super) fn beside(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Archive that is spooled during the first reading.
pub(super) struct Copied {
    stream: PathBuf,
    copy: Arc<File>,
    state: Arc<Mutex<SpoolState>>,
}

enum SpoolState {
    Untouched,
    /// First reading, which may have been abandoned.
    First(Box<TarSource>),
    /// The copy is complete.
    Whole,
}

impl Copied {
    fn name(&self) -> &Path {
        if self.stream == Path::new("-") { Path::new(STANDARD_INPUT) } else { &self.stream }
    }

    fn open(&self, contents: ContentsUse) -> Result<Box<dyn Source>, SourceError> {
        let mut state = self.state.lock();
        if matches!(*state, SpoolState::Untouched) {
            let first = self.start()?;
            // Compressed archives deliver contents in the same form as their copy.
            let is_alike = contents == ContentsUse::Unread || first.is_compressed();
            *state = SpoolState::First(Box::new(first));
            if is_alike {
                return Ok(Box::new(self.first()));
            }
        }
        if matches!(*state, SpoolState::First(_)) {
            drop(state);
            let mut first = self.first();
            while first.next_entry()?.is_some() {}
            state = self.state.lock();
            *state = SpoolState::Whole;
        }
        Ok(Box::new(TarSource::from_copy(&self.copy, self.name())?))
    }

    fn start(&self) -> Result<TarSource, SourceError> {
        if self.stream == Path::new("-") {
            return TarSource::copying(io::stdin(), self.name(), &self.copy);
        }
        let failed =
            |source| SourceError::Io { operation: "open", path: self.stream.clone(), source };
        let stream = File::open(&self.stream).map_err(failed)?;
        TarSource::copying(stream, self.name(), &self.copy)
    }

    fn first(&self) -> First {
        let (name, copy) = (self.name().to_owned(), Arc::clone(&self.copy));
        First { name, copy, state: Arc::clone(&self.state) }
    }
}

/// First reading of a spooled archive.
struct First {
    name: PathBuf,
    copy: Arc<File>,
    state: Arc<Mutex<SpoolState>>,
}

impl First {
    /// Calls `act` on the spooling source, unless it was abandoned.
    fn with<T: Default>(
        &self,
        act: impl FnOnce(&mut TarSource) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        match &mut *self.state.lock() {
            SpoolState::First(source) => act(source),
            SpoolState::Untouched | SpoolState::Whole => Ok(T::default()),
        }
    }

    /// Rejects a file that the spool has no space for, before the space is exhausted.
    fn check_room(&self, entry: &Entry, is_compressed: bool) -> Result<(), SourceError> {
        let EntryKind::File(content) = &entry.kind else { return Ok(()) };
        if is_compressed || content.data_len() < LARGE_BYTES {
            return Ok(());
        }
        let full = |source| SourceError::Copy { archive: self.name.clone(), source };
        let free = host::free_bytes(&self.copy).map_err(full)?;
        if free.is_some_and(|free| free < content.data_len()) {
            return Err(full(io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }
}

impl Source for First {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let next =
            self.with(|source| Ok(source.next_entry()?.map(|e| (e, source.is_compressed()))));
        let Some((entry, is_compressed)) = next? else { return Ok(None) };
        self.check_room(&entry, is_compressed)?;
        Ok(Some(entry))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        self.with(|source| source.read(buf))
    }

    fn progress(&self) -> Progress {
        match &*self.state.lock() {
            SpoolState::First(source) => source.progress(),
            SpoolState::Untouched | SpoolState::Whole => Progress { done: 0, total: None },
        }
    }
}
