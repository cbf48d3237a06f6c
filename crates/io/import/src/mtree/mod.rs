//! mtree(5) manifests: as a source, with contents from a host directory, and as a correction of another source.
//!
//! Supports names relative to the directory of the preceding line and `..`, full paths, `/set`, `/unset`, continued
//! lines and the escapes of vis(3), as written by BSD's mtree, libarchive and Go's mtree.

mod correction;
mod digest;
mod find;
mod keywords;
mod node;
mod parse;
mod tree;
mod verify;
mod vis;

use std::path::Path;
use std::sync::Arc;

pub use correction::ManifestCorrection;

use crate::rule_file::lines::RuleFile;
use crate::rule_file::names::IdNames;
use crate::{Entry, Progress, Source, SourceError, Time};
use node::ManifestNode;
use tree::ManifestTree;

/// Defaults for a manifest.
#[derive(Clone, Copy, Debug)]
pub struct ManifestOptions {
    /// Number of threads that verify contents.
    pub threads: usize,
    /// Time of files without one in the manifest or on the host.
    pub time: Time,
}

/// A manifest with its contents.
#[derive(Clone, Debug)]
pub struct Manifest(Arc<[ManifestNode]>);

impl Manifest {
    /// Reads a manifest. Contents are at the paths of its files below `root`, or below the directory of the manifest,
    /// or at `contents=` (relative to the same directory). Sizes and digests are verified. Missing owners, permissions
    /// and times are taken from the host file, if there is one of the same type. Extended attributes are those in the
    /// manifest.
    ///
    /// # Errors
    /// If it cannot be read or is invalid, or contents are missing or differ.
    pub fn load(
        file: &Path,
        root: Option<&Path>,
        options: &ManifestOptions,
    ) -> Result<Self, SourceError> {
        let lines = RuleFile::read(file)?;
        let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = root.or(beside).unwrap_or(Path::new("."));
        let listed = parse::parse(&lines, &IdNames::of_root(Some(root))?)?.listed;
        let tree = ManifestTree::of(&lines, listed, root, options.time)?;
        verify::verify(&lines, &tree.nodes, options.threads)?;
        Ok(Self(tree.nodes.into()))
    }

    /// Returns its files: sorted, every path once, without missing directories.
    pub fn source(&self) -> ManifestSource {
        ManifestSource { nodes: self.0.clone(), done: 0 }
    }
}

/// The files of a manifest. Contents can be read at any time and from any thread.
#[derive(Debug)]
pub struct ManifestSource {
    nodes: Arc<[ManifestNode]>,
    done: usize,
}

impl Source for ManifestSource {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some(node) = self.nodes.get(self.done) else { return Ok(None) };
        self.done += 1;
        Ok(Some(node.entry()))
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn entries_min(&mut self) -> u64 {
        self.nodes.len() as u64
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done as u64, total: Some(self.nodes.len() as u64) }
    }
}
