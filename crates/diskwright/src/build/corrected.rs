//! Corrections of the source of a build.

use std::sync::Arc;

use source::correct::{Corrected, Corrections, Surroundings};
use source::{Source, SourceError, Time};

use super::{BuildOptions, BuildSource, Owner};

/// Reads the corrections that a build has, if it has some.
///
/// # Errors
/// If a file that they name cannot be read or followed.
pub(super) fn load(options: &BuildOptions) -> Result<Option<Arc<Corrections>>, SourceError> {
    if options.corrections.is_empty() {
        return Ok(None);
    }
    let names = match &options.source {
        BuildSource::Files(path) => path.is_dir().then(|| path.clone()),
        BuildSource::Manifest(manifest) => manifest.root.clone(),
        BuildSource::Container(_) => None,
    };
    let surroundings = Surroundings {
        owner: options.owner.map(|owner| (owner.uid, owner.gid)),
        names,
        time: Time { sec: options.image_time().sec, nsec: 0 },
    };
    Corrections::load(&options.corrections, &surroundings).map(Some)
}

/// A source with the corrections of a build.
pub(super) fn wrap(
    source: Box<dyn Source>,
    corrections: Option<&Arc<Corrections>>,
) -> Box<dyn Source> {
    match corrections {
        Some(corrections) => Box::new(Corrected::new(source, Arc::clone(corrections))),
        None => source,
    }
}

/// The owner of everything that the writer gives: with corrections, they give it, and rules may give another one.
pub(super) fn owner(options: &BuildOptions) -> Option<Owner> {
    options.owner.filter(|_| options.corrections.is_empty())
}
