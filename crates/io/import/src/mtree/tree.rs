//! The tree of a manifest, with the contents of its files on the host.

use std::collections::HashMap;
use std::path::Path;

use super::find::Finder;
use super::node::ManifestNode;
use super::parse::ManifestFile;
use crate::rule_file::fault::{RuleFault, shown_path};
use crate::rule_file::lines::RuleFile;
use crate::{EntryKind, FileId, Metadata, SourceError, Time};

/// All files, in the order of a directory source.
pub(super) struct ManifestTree {
    pub(super) nodes: Vec<ManifestNode>,
}

impl ManifestTree {
    pub(super) fn of(
        file: &RuleFile,
        mut listed: Vec<ManifestFile>,
        root: &Path,
        time: Time,
    ) -> Result<Self, SourceError> {
        // By components, so that the entries of a directory follow it.
        listed.sort_by(|a, b| {
            let [a, b] = [a, b].map(|listed| listed.path.split(|&byte| byte == b'/'));
            a.cmp(b)
        });
        let mut finder = Finder::new(file, root, time)?;
        let mut nodes: Vec<ManifestNode> = Vec::with_capacity(listed.len() + 1);
        let mut stack: Vec<Vec<u8>> = Vec::new();
        let mut first_names: HashMap<FileId, usize> = HashMap::new();
        for listed in listed {
            let Some(mut node) = finder.node(&listed)? else { continue };
            if !node.path.is_empty() {
                let implied = imply(&node.path, time, &mut nodes, &mut stack);
                implied.map_err(|fault| file.fault(listed.line, fault))?;
            }
            if matches!(node.kind, EntryKind::Directory) {
                stack.push(node.path.clone());
            }
            if let Some(id) = node.linked {
                match first_names.get(&id).map(|index| &nodes[*index]) {
                    // Names with different attributes in the manifest are different files.
                    Some(first) if first.is_like(&node) => {
                        node.kind = EntryKind::Hardlink(first.path.clone());
                    }
                    Some(_) => {}
                    None => {
                        first_names.insert(id, nodes.len());
                    }
                }
            }
            nodes.push(node);
        }
        Ok(Self { nodes })
    }
}

/// Adds directories on the way to `path` that the manifest does not list.
fn imply(
    path: &[u8],
    time: Time,
    nodes: &mut Vec<ManifestNode>,
    stack: &mut Vec<Vec<u8>>,
) -> Result<(), RuleFault> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let ancestors: Vec<&[u8]> = std::iter::once(0).chain(ends).map(|end| &path[..end]).collect();
    let known = stack.iter().zip(&ancestors).take_while(|(have, want)| have == *want).count();
    stack.truncate(known);
    for ancestor in &ancestors[known..] {
        // In sorted order, an existing entry with this path can only be the last one.
        if let Some(last) = nodes.last().filter(|last| last.path == *ancestor) {
            return Err(RuleFault::OtherType {
                path: shown_path(ancestor),
                expected: "directory",
                found: last.kind.name(),
            });
        }
        let metadata =
            Metadata { permissions: 0o755, uid: 0, gid: 0, mtime: time, atime: None, ctime: None };
        let path = ancestor.to_vec();
        stack.push(path.clone());
        let (kind, digests, xattrs) = (EntryKind::Directory, Vec::new(), Vec::new());
        nodes.push(ManifestNode { path, kind, digests, line: 0, metadata, xattrs, linked: None });
    }
    Ok(())
}
