//! The file that gets the configuration of a container image.

use std::io::Write;
use std::path::PathBuf;

use super::target::refusal;
use super::{BuildError, BuildOptions, BuildSource};
use crate::Error;
use crate::replace::{Replace, Replacement};

/// A file that gets its name together with the image.
pub(super) struct ConfigFile {
    path: PathBuf,
    file: Replacement,
}

impl ConfigFile {
    /// Begins the file, if one was asked for. What is there already is replaced under the same condition as an image.
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

    /// Gives the file its name.
    pub(super) fn keep(self) -> Result<(), BuildError> {
        let path = self.path;
        self.file.keep().map_err(|refused| refusal(refused, &path))
    }
}

/// The file that was asked for.
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
