//! A simple unpacker of layers, by the rules of the image specification: a map from paths to files.

use std::collections::BTreeMap;

use import::Metadata;

use super::common::{Member, MemberKind};
use crate::common::{ItemKind, TreeItem};

/// A path as components, so that the map has the order of a walk.
type ComponentPath = Vec<Vec<u8>>;

#[derive(Clone)]
struct ModelFile {
    kind: MemberKind,
    metadata: (u16, u32, u32, i64),
    xattrs: Vec<(String, Vec<u8>)>,
}

/// A tree: numbers of files by path. Several paths with one number are hard links.
#[derive(Default)]
pub(super) struct TreeModel {
    files: Vec<ModelFile>,
    names: BTreeMap<ComponentPath, usize>,
}

fn components(path: &[u8]) -> ComponentPath {
    path.split(|&b| b == b'/')
        .filter(|name| !matches!(*name, [] | [b'.']))
        .map(<[u8]>::to_vec)
        .collect()
}

impl TreeModel {
    /// Unpacks layers; `None` if they are invalid.
    pub(super) fn of(layers: &[Vec<Member>]) -> Option<Self> {
        let mut model = Self::default();
        model.put(Vec::new(), implied());
        for layer in layers {
            let lower = model.names.clone();
            for member in layer {
                model.hide(&components(&member.path));
            }
            for member in layer {
                let path = components(&member.path);
                if !path.last().is_some_and(|name| name.starts_with(b".wh.")) {
                    model.add(path, member, &lower)?;
                }
            }
        }
        Some(model)
    }

    fn put(&mut self, path: ComponentPath, file: ModelFile) {
        self.files.push(file);
        self.names.insert(path, self.files.len() - 1);
    }

    fn is_directory(&self, path: &ComponentPath) -> bool {
        self.names.get(path).is_some_and(|&n| self.files[n].kind == MemberKind::Directory)
    }

    fn hide(&mut self, path: &ComponentPath) {
        let Some((name, parent)) = path.split_last() else { return };
        if name == b".wh..wh..opq" {
            self.names.retain(|path, _| path.len() <= parent.len() || !path.starts_with(parent));
        } else if let Some(name) = name.strip_prefix(b".wh.") {
            let hidden = [parent, &[name.to_vec()]].concat();
            self.names.retain(|path, _| !path.starts_with(&hidden));
        }
    }

    fn add(
        &mut self,
        path: ComponentPath,
        member: &Member,
        lower: &BTreeMap<ComponentPath, usize>,
    ) -> Option<()> {
        for len in 1..path.len() {
            let parent = path[..len].to_vec();
            if !self.names.contains_key(&parent) {
                self.put(parent, implied());
            } else if !self.is_directory(&parent) {
                return None;
            }
        }
        if let MemberKind::Hardlink(target) = &member.kind {
            let target = components(target);
            let &number = self.names.get(&target).or_else(|| lower.get(&target))?;
            if self.files[number].kind == MemberKind::Directory {
                return None;
            }
            self.names.retain(|other, _| !other.starts_with(&path));
            self.names.insert(path, number);
            return Some(());
        }
        let stays = member.kind == MemberKind::Directory && self.is_directory(&path);
        if !stays {
            self.names.retain(|other, _| !other.starts_with(&path));
        }
        let metadata = (member.mode, member.owner.0, member.owner.1, member.mtime);
        let mut xattrs = member.xattrs.clone();
        xattrs.sort();
        self.put(path, ModelFile { kind: member.kind.clone(), metadata, xattrs });
        Some(())
    }

    /// Returns the expected stream of this tree.
    pub(super) fn items(&self) -> Vec<String> {
        let mut first = BTreeMap::new();
        let line = |(path, &number): (&ComponentPath, &usize)| {
            let path = String::from_utf8_lossy(&path.join(&b'/')).into_owned();
            let file = &self.files[number];
            let leader = first.entry(number).or_insert_with(|| path.clone()).clone();
            if leader != path {
                return format!("{path}: link to {leader}");
            }
            let kind = match &file.kind {
                MemberKind::File(data) => format!("file {:?}", String::from_utf8_lossy(data)),
                MemberKind::Directory => "Directory".into(),
                MemberKind::Symlink(target) => format!("Symlink({target:?})"),
                MemberKind::Hardlink(_) => unreachable!("links are numbers"),
                MemberKind::Char(major, minor) => {
                    format!("CharDevice {{ major: {major}, minor: {minor} }}")
                }
                MemberKind::Fifo => "Fifo".into(),
            };
            let xattrs: Vec<_> =
                file.xattrs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value)).collect();
            format!("{path}: {kind} {:?} {xattrs:?}", file.metadata)
        };
        self.names.iter().map(line).collect()
    }
}

fn implied() -> ModelFile {
    ModelFile { kind: MemberKind::Directory, metadata: (0o755, 0, 0, 0), xattrs: Vec::new() }
}

/// Returns the same form of an actual stream.
pub(super) fn lines(items: &[TreeItem]) -> Vec<String> {
    let line = |item: &TreeItem| {
        let path = &item.path;
        let Metadata { permissions, uid, gid, mtime, .. } = item.metadata;
        let kind = match &item.kind {
            ItemKind::File { data, .. } => format!("file {:?}", String::from_utf8_lossy(data)),
            ItemKind::Other(other) => match other.strip_prefix("Hardlink(") {
                Some(target) => {
                    let bytes: Vec<u8> =
                        serde_json::from_str(target.trim_end_matches(')')).unwrap();
                    return format!("{path}: link to {}", String::from_utf8_lossy(&bytes));
                }
                None => other.clone(),
            },
        };
        let xattrs: Vec<_> =
            item.xattrs.iter().map(|xattr| (xattr.name.clone(), &xattr.value)).collect();
        format!("{path}: {kind} {:?} {xattrs:?}", (permissions, uid, gid, mtime.sec))
    };
    items.iter().map(line).collect()
}
