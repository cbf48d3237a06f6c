//! Output file for the configuration of a container image.

use std::io::Write;
use std::path::PathBuf;

use super::target::refusal;
use super::{BuildError, BuildOptions, BuildSource};
use crate::Error;
use crate::replace::{Replace, Replacement};

/// File that is renamed into place together with the image.
pub(super) struct ConfigFile {
    path: PathBuf,
    file: Replacement,
}

impl ConfigFile {
    /// Creates the file, if requested. The rules for replacing an existing file are those for an image.
    pub(super) fn create(options: &BuildOptions) -> Result<Option<Self>, BuildError> {
        let Some(path) = asked_for(&options.source) else { return Ok(None) };
        let replace = if options.force { Replace::Anything } else { Replace::Empty };
        match Replacement::create(&path, replace) {
            Ok(file) => Ok(Some(Self { path, file })),
            Err(refused) => Err(refusal(refused, &path)),
        }
    }

    /// Writes the configuration.
    pub(super) fn write(self, config: &[u8]) -> Result<Self, BuildError> {
        let written = self.file.file().write_all(config);
        match written {
            Ok(()) => Ok(self),
            Err(e) => Err(BuildError::Image(Box::new(Error::host("write", &self.path, e)))),
        }
    }

    /// Renames the file into place.
    pub(super) fn keep(self) -> Result<(), BuildError> {
        let path = self.path;
        self.file.keep().map_err(|refused| refusal(refused, &path))
    }
}

/// Returns the requested file.
fn asked_for(source: &BuildSource) -> Option<PathBuf> {
    match source {
        BuildSource::Container(container) => container.config.clone(),
        BuildSource::Several(sources) => {
            sources.iter().find_map(|placed| asked_for(&placed.source))
        }
        BuildSource::Files(_)
        | BuildSource::Image(_)
        | BuildSource::Manifest(_)
        | BuildSource::Protofile(_) => None,
    }
}
