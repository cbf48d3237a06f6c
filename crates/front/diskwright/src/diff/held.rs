//! Walk of a tree in memory.

use std::collections::btree_map;

use import::{Body, ContentFile};
use vfs::InodeFlags;
use vfs::runs::Run;

use super::source_tree::{Held, HeldBody, SourceTree};
use super::tree::{ComparedTree, Data, Steps, VisitedFile, Xattrs};
use crate::list::join;
use crate::{Error, Result};

/// Names of a directory in order, with file indices.
type Names<'a> = btree_map::Iter<'a, Box<[u8]>, usize>;

struct SourceSteps<'a> {
    tree: &'a SourceTree,
    has_begun: bool,
    /// For each directory on the current path: its path length and the remaining names.
    levels: Vec<(usize, Names<'a>)>,
    path: Vec<u8>,
    /// Last returned directory, if it is not entered yet.
    enters: Option<usize>,
}

impl SourceSteps<'_> {
    fn come_to(&mut self, number: usize) -> VisitedFile {
        self.enters = Some(number);
        node(self.tree, self.path.clone(), number)
    }
}

impl Steps for SourceSteps<'_> {
    fn advance(&mut self) -> Result<Option<VisitedFile>> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Ok(Some(self.come_to(SourceTree::ROOT)));
        }
        if let Some(names) = self.enters.take().and_then(|number| self.tree.names(number)) {
            self.levels.push((self.path.len(), names.iter()));
        }
        while let Some((len, names)) = self.levels.last_mut() {
            self.path.truncate(*len);
            let Some((name, &number)) = names.next() else {
                self.levels.pop();
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            return Ok(Some(self.come_to(number)));
        }
        Ok(None)
    }

    fn skip_children(&mut self) {
        self.enters = None;
    }
}

fn node(tree: &SourceTree, path: Vec<u8>, number: usize) -> VisitedFile {
    VisitedFile { path, attributes: tree.file(number).attributes, device: 0 }
}

/// Returns the file of a node, which must come from this tree.
fn held<'a>(tree: &'a SourceTree, node: &VisitedFile) -> &'a Held {
    tree.file((node.attributes.ino.0 - 1) as usize)
}

struct SourceData {
    runs: Vec<Run>,
    /// `None` if there is no data.
    file: Option<ContentFile>,
}

impl Data for SourceData {
    fn runs(&self) -> Result<Vec<Run>> {
        Ok(self.runs.clone())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match &self.file {
            Some(file) => Ok(file.read_at(offset, buf)?),
            None => {
                buf.fill(0);
                Ok(())
            }
        }
    }
}

impl ComparedTree for &SourceTree {
    fn steps(&self) -> Box<dyn Steps + '_> {
        let (levels, path) = (Vec::new(), Vec::new());
        Box::new(SourceSteps { tree: self, has_begun: false, levels, path, enters: None })
    }

    fn find(&self, path: &[u8]) -> Result<VisitedFile> {
        let found = SourceTree::find(self, path);
        let number = found.ok_or_else(|| Error::file(&join(b"/", path), vfs::Error::NotFound))?;
        Ok(node(self, path.to_vec(), number))
    }

    fn count(&self, directory: &VisitedFile) -> Result<u64> {
        let HeldBody::Directory(names) = &held(self, directory).body else { return Ok(0) };
        Ok(names.len() as u64)
    }

    fn xattrs(&self, node: &VisitedFile) -> Result<Xattrs> {
        Ok(held(self, node).xattrs.clone())
    }

    fn target(&self, node: &VisitedFile) -> Result<Vec<u8>> {
        match &held(self, node).body {
            HeldBody::Symlink(target) => Ok(target.clone()),
            _ => Ok(Vec::new()),
        }
    }

    fn flags(&self, _: &VisitedFile) -> Result<Option<InodeFlags>> {
        Ok(None)
    }

    fn open(&self, node: &VisitedFile) -> Result<Box<dyn Data + '_>> {
        let HeldBody::Regular(content) = &held(self, node).body else {
            return Ok(Box::new(SourceData { runs: Vec::new(), file: None }));
        };
        let runs = content.runs().iter().map(|run| Run { offset: run.offset, len: run.len });
        let file = match content.body() {
            Body::Detached(detached) => Some(detached.open()?),
            // Archives are read in a way that leaves no streamed contents.
            Body::Empty | Body::Stream => None,
        };
        Ok(Box::new(SourceData { runs: runs.collect(), file }))
    }

    fn has_nanoseconds(&self) -> bool {
        SourceTree::has_nanoseconds(self)
    }

    fn knows(&self, node: &VisitedFile) -> bool {
        held(self, node).is_listed
    }

    fn format(&self) -> &str {
        "source"
    }
}
