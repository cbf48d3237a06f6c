//! Manifests of mtree(5): as a source, with contents from a directory of the host, and as a correction of another one.
//!
//! Read are the form with names relative to the directory of the line before and `..`, that with whole paths, `/set`,
//! `/unset`, continued lines and the escapes of vis(3), as BSD's mtree, libarchive and Go's mtree write them.

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

use crate::correct::lines::RuleFile;
use crate::correct::names::Names;
use crate::{Entry, Progress, Source, SourceError, Time};
use node::Node;
use tree::Tree;

/// What a manifest does not say.
#[derive(Clone, Copy, Debug)]
pub struct ManifestOptions {
    /// Threads that verify contents.
    pub threads: usize,
    /// Time of files that have none in the manifest or on the host.
    pub time: Time,
}

/// A manifest with the contents that it is about.
#[derive(Clone, Debug)]
pub struct Manifest(Arc<[Node]>);

impl Manifest {
    /// Reads a manifest. Contents are at the paths of its files below `root`, or below the directory of the
    /// manifest itself, or where `contents=` says (from the same directory on). Sizes and digests are verified.
    /// What it does not say of owners, permissions and times is taken from the file on the host, if there is one
    /// of the same type. Extended attributes are those that it names.
    ///
    /// # Errors
    /// If it cannot be read or followed, or contents are not there or others.
    pub fn load(
        file: &Path,
        root: Option<&Path>,
        options: &ManifestOptions,
    ) -> Result<Self, SourceError> {
        let lines = RuleFile::read(file)?;
        let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = root.or(beside).unwrap_or(Path::new("."));
        let listed = parse::parse(&lines, &Names::of_root(Some(root))?)?.listed;
        let tree = Tree::of(&lines, listed, root, options.time)?;
        verify::verify(&lines, &tree.nodes, options.threads)?;
        Ok(Self(tree.nodes.into()))
    }

    /// Its files: sorted, every path once, no directory absent.
    pub fn source(&self) -> ManifestSource {
        ManifestSource { nodes: self.0.clone(), done: 0 }
    }
}

/// The files of a manifest. Contents can be read at any time and from any thread.
#[derive(Debug)]
pub struct ManifestSource {
    nodes: Arc<[Node]>,
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
