//! Corrections of the source of a build.

use std::path::PathBuf;
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
    let surroundings = Surroundings {
        owner: options.owner.map(|owner| (owner.uid, owner.gid)),
        names: names(&options.source),
        time: Time { sec: options.image_time().sec, nsec: 0 },
    };
    Corrections::load(&options.corrections, &surroundings).map(Some)
}

/// The directory of the host whose `etc` tells the names of users and groups. Of several sources it is the last that
/// has one and lies at the root, as its `etc` lies over those of the others.
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
