//! Several merged sources.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use import::{Combination, Combined, Part, Source};

use super::{BuildError, BuildSource, PlacedSource};

/// Sources that are read in sequence.
pub(super) struct Several<I> {
    parts: Vec<Part>,
    pub(super) inputs: Vec<I>,
    /// Merge plan: the remaining entries of each source, once computed.
    plan: OnceLock<Arc<Combination>>,
}

impl<I> Several<I> {
    pub(super) fn new(parts: Vec<Part>, inputs: Vec<I>) -> Self {
        Self { parts, inputs, plan: OnceLock::new() }
    }

    /// Opens all sources from the beginning with `open`. The first call reads them with `look` to compute the plan.
    pub(super) fn open(
        &self,
        look: impl FnMut(&I) -> Result<Box<dyn Source>, BuildError>,
        open: impl FnMut(&I) -> Result<Box<dyn Source>, BuildError>,
    ) -> Result<Box<dyn Source>, BuildError> {
        let plan = match self.plan.get() {
            Some(plan) => plan,
            None => {
                let plan = Combination::plan(self.parts.clone(), self.inputs.iter().map(look))?;
                self.plan.get_or_init(|| Arc::new(plan))
            }
        };
        let sources = self.inputs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Box::new(Combined::new(plan, sources)))
    }
}

/// Rejects combinations that are invalid regardless of contents.
pub(super) fn check(sources: &[PlacedSource]) -> Result<(), BuildError> {
    let is_stream = |placed: &&PlacedSource| match &placed.source {
        BuildSource::Files(path) => path.as_os_str() == "-",
        BuildSource::Container(container) => container.reference.is_standard_input(),
        _ => false,
    };
    if sources.iter().filter(is_stream).count() > 1 {
        let problem = "only one source can be standard input; use files for the others";
        return Err(BuildError::usage(problem));
    }
    let mut seen = HashSet::new();
    for placed in sources {
        if !seen.insert((identity(&placed.source), &placed.at)) {
            let problem = format!("{} is given twice; leave one out", placed.source);
            return Err(BuildError::usage(problem));
        }
    }
    let containers = sources.iter().filter(|placed| match &placed.source {
        BuildSource::Container(container) => container.config.is_some(),
        _ => false,
    });
    if containers.count() > 1 {
        let problem = "--config requires a single container image, but there are several";
        return Err(BuildError::usage(problem));
    }
    Ok(())
}

/// Returns the canonical identity of a source.
fn identity(source: &BuildSource) -> (PathBuf, String) {
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match source {
        BuildSource::Files(path) => (whole(path), String::new()),
        BuildSource::Image(file) => {
            (whole(&file.path), format!("{:?} {}", file.partition, file.offset))
        }
        other => (PathBuf::new(), other.to_string()),
    }
}
