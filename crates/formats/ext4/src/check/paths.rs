//! Paths of files with findings. The directories are read again, but only if there are findings.

use std::collections::HashMap;
use std::ops::ControlFlow;

use vfs::check::Parent;

use super::context::Context;
use super::directories::Directories;
use super::survey::ROOT;

/// Maximum number of directories above a file.
const DEPTH_MAX: usize = 1000;
/// Maximum length of a path in bytes.
const PATH_MAX: usize = 16 << 10;

impl Context<'_> {
    /// Reports all findings that wait for a path.
    pub(super) fn release(&self, directories: &Directories) {
        let mut buffer = Vec::new();
        if !self.observer.is_cancelled() {
            let naming = self.waiting().naming();
            for directory in &directories.all {
                if naming.is_done() {
                    break;
                }
                directories.for_each_entry(self, directory, &mut buffer, &mut |entry| {
                    if !matches!(entry.name, b"." | b"..") {
                        let (ino, parent) = (entry.inode.into(), directory.ino.into());
                        naming.name(ino, parent, entry.name);
                    }
                    ControlFlow::Continue(())
                });
            }
        }
        let mut paths = Paths { context: self, directories, known: HashMap::new(), buffer };
        self.waiting().release(self.observer, |ino, parent| paths.of(ino, parent));
    }
}

struct Paths<'p, 'c> {
    context: &'p Context<'c>,
    directories: &'p Directories,
    known: HashMap<u32, Option<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl Paths<'_, '_> {
    fn of(&mut self, ino: u64, parent: Option<&Parent>) -> Option<Vec<u8>> {
        if ino == u64::from(ROOT) {
            return Some(b"/".to_vec());
        }
        let parent = parent?;
        let above = self.directory(u32::try_from(parent.directory).ok()?)?;
        Some(join(&above, &parent.name))
    }

    /// Returns the path of a directory. The names on the way up are each searched for once.
    fn directory(&mut self, ino: u32) -> Option<Vec<u8>> {
        let mut way = Vec::new();
        let mut at = ino;
        let mut path = loop {
            if at == ROOT {
                break Some(b"/".to_vec());
            }
            if let Some(known) = self.known.get(&at) {
                break known.clone();
            }
            let parent =
                self.directories.find(at).map_or(0, super::directories::CheckedDirectory::parent);
            if parent == 0 || way.len() >= DEPTH_MAX {
                break None;
            }
            way.push((at, parent));
            at = parent;
        };
        while let Some((child, parent)) = way.pop() {
            let name = path.as_ref().and_then(|_| self.name(child, parent));
            path = path
                .zip(name)
                .map(|(path, name)| join(&path, &name))
                .filter(|p| p.len() < PATH_MAX);
            self.known.insert(child, path.clone());
        }
        path
    }

    /// Returns the name of an inode in a directory.
    fn name(&mut self, child: u32, parent: u32) -> Option<Vec<u8>> {
        let directory = self.directories.find(parent)?;
        let mut found = None;
        self.directories.for_each_entry(self.context, directory, &mut self.buffer, &mut |entry| {
            if entry.inode != child || matches!(entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            found = Some(entry.name.to_vec());
            ControlFlow::Break(())
        });
        found
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, separator, name].concat()
}
