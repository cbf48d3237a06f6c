//! One path for each inode of a list.

use std::collections::{HashMap, HashSet};

use super::listing::NameBuffer;
use super::{NamedRef, Order, paths_of};
use crate::{FileSystem, FileType, Ino};

/// Returns a path for each inode, in the given order, and the number of unreadable directories. Uses parent pointers if
/// the format has them. Otherwise searches directories until all inodes are found, without reading other inodes. An
/// inode that is not found has no name, or one in an unreadable directory.
pub fn first_paths(fs: &dyn FileSystem, inos: &[Ino]) -> (Vec<Option<Vec<u8>>>, u64) {
    let mut found = HashMap::new();
    if knows_parents(fs) {
        for ino in inos {
            let first = paths_of(fs, *ino).map(|found| found.paths.into_iter().next());
            found.extend(first.ok().flatten().map(|path| (*ino, path)));
        }
        return (inos.iter().map(|ino| found.get(ino).cloned()).collect(), 0);
    }
    let mut search = Search { wanted: inos.iter().copied().collect(), found, errors: 0 };
    search.run(fs);
    (inos.iter().map(|ino| search.found.get(ino).cloned()).collect(), search.errors)
}

/// Returns whether the format has parent pointers, by a query of the root.
fn knows_parents(fs: &dyn FileSystem) -> bool {
    fs.parents(fs.root(), &mut |_, _| {}).unwrap_or(false)
}

struct Search {
    wanted: HashSet<Ino>,
    found: HashMap<Ino, Vec<u8>>,
    errors: u64,
}

/// A directory found by the search: the index of its parent among those found, its name there, and its inode.
struct FoundDirectory {
    parent: usize,
    name: Vec<u8>,
    ino: Ino,
}

impl Search {
    /// Searches directories, each once, the last one found first.
    fn run(&mut self, fs: &dyn FileSystem) {
        let root = fs.root();
        if self.wanted.remove(&root) {
            self.found.insert(root, b"/".to_vec());
        }
        let mut entered = HashSet::from([root]);
        let mut places = vec![FoundDirectory { parent: 0, name: Vec::new(), ino: root }];
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            if self.wanted.is_empty() {
                return;
            }
            let dir = places[at].ino;
            let mut listing = NameBuffer::new(Order::Physical);
            while listing.has_more() {
                self.errors += u64::from(listing.fill(fs, dir).is_err());
                while let Some(entry) = listing.next() {
                    let Ok(entry) = entry.sound(dir) else { continue };
                    if self.wanted.remove(&entry.ino) {
                        self.found.insert(entry.ino, path_of(&places, at, entry.name));
                    }
                    if is_directory(fs, &entry) && entered.insert(entry.ino) {
                        waiting.push(places.len());
                        let (name, ino) = (entry.name.to_vec(), entry.ino);
                        places.push(FoundDirectory { parent: at, name, ino });
                    }
                }
            }
        }
    }
}

/// Returns the path of a name in a directory.
fn path_of(places: &[FoundDirectory], mut at: usize, name: &[u8]) -> Vec<u8> {
    let mut names = vec![name];
    while at != 0 {
        names.push(&places[at].name);
        at = places[at].parent;
    }
    let mut path = Vec::new();
    for name in names.into_iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// Returns whether an entry is a directory, according to the entry or, if it has no type, the inode.
fn is_directory(fs: &dyn FileSystem, entry: &NamedRef<'_>) -> bool {
    let of_inode = || fs.attributes(entry.ino).ok().map(|attributes| attributes.file_type);
    entry.file_type.or_else(of_inode) == Some(FileType::Directory)
}
