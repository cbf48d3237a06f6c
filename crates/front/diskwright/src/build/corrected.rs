//! Corrections of the source of a build.

use std::path::PathBuf;
use std::sync::Arc;

use import::correct::{Corrected, Corrections, Surroundings};
use import::{Source, SourceError, Time};

use super::{BuildOptions, BuildSource, Owner};

/// Loads the corrections of a build, if there are any.
///
/// # Errors
/// If a file named by the options cannot be read or parsed.
pub(super) fn load(options: &BuildOptions) -> Result<Option<Arc<Corrections>>, SourceError> {
    if options.corrections.is_empty() {
        return Ok(None);
    }
    let surroundings = Surroundings {
        owner: options.owner.map(|owner| (owner.uid, owner.gid)),
        names: names(&options.source),
        time: Time { sec: options.image_time().sec, nsec: 0 },
    };
    Corrections::load(&options.corrections, &surroundings).map(Some)
}

/// Returns the host directory whose `etc` maps user and group names. With several sources, the last one at the root
/// that has such a directory wins, because its `etc` is merged over the others.
fn names(source: &BuildSource) -> Option<PathBuf> {
    match source {
        BuildSource::Files(path) => path.is_dir().then(|| path.clone()),
        BuildSource::Manifest(manifest) => manifest.root.clone(),
        BuildSource::Several(sources) => {
            let at_root = sources.iter().rev().filter(|placed| placed.at.is_empty());
            at_root.filter_map(|placed| names(&placed.source)).next()
        }
        BuildSource::Container(_) | BuildSource::Image(_) | BuildSource::Protofile(_) => None,
    }
}

/// Wraps a source with the corrections of a build.
pub(super) fn wrap(
    source: Box<dyn Source>,
    corrections: Option<&Arc<Corrections>>,
) -> Box<dyn Source> {
    match corrections {
        Some(corrections) => Box::new(Corrected::new(source, Arc::clone(corrections))),
        None => source,
    }
}

/// Returns the owner to be set by the writer. With corrections it is `None`, because they set the owner.
pub(super) fn owner(options: &BuildOptions) -> Option<Owner> {
    options.owner.filter(|_| options.corrections.is_empty())
}
