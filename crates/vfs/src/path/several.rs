//! One path for each of some inodes.

use std::collections::{HashMap, HashSet};

use super::listing::Listing;
use super::{NamedRef, Order, paths_of};
use crate::{FileSystem, FileType, Ino};

/// A path for each of some inodes, in their order, and how many directories could not be read. Where the format knows
/// parents, these are asked; otherwise directories are searched until all inodes are found, without looking at
/// other inodes. An inode that is not found has no name, or one in a directory that cannot be read.
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

/// Whether a format knows parents: the root is asked for its own.
fn knows_parents(fs: &dyn FileSystem) -> bool {
    fs.parents(fs.root(), &mut |_, _| {}).unwrap_or(false)
}

struct Search {
    wanted: HashSet<Ino>,
    found: HashMap<Ino, Vec<u8>>,
    errors: u64,
}

/// A directory that was found: where the one it lies in is among those found, its name there, and its inode.
struct Place {
    parent: usize,
    name: Vec<u8>,
    ino: Ino,
}

impl Search {
    /// Goes through directories, each of which is entered once, the last one found first.
    fn run(&mut self, fs: &dyn FileSystem) {
        let root = fs.root();
        if self.wanted.remove(&root) {
            self.found.insert(root, b"/".to_vec());
        }
        let mut entered = HashSet::from([root]);
        let mut places = vec![Place { parent: 0, name: Vec::new(), ino: root }];
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            if self.wanted.is_empty() {
                return;
            }
            let dir = places[at].ino;
            let mut listing = Listing::new(Order::Physical);
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
                        places.push(Place { parent: at, name, ino });
                    }
                }
            }
        }
    }
}

/// The path of a name in a directory.
fn path_of(places: &[Place], mut at: usize, name: &[u8]) -> Vec<u8> {
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

/// Whether an entry is a directory: as it says, or else its inode.
fn is_directory(fs: &dyn FileSystem, entry: &NamedRef<'_>) -> bool {
    let of_inode = || fs.attributes(entry.ino).ok().map(|attributes| attributes.file_type);
    entry.file_type.or_else(of_inode) == Some(FileType::Directory)
}
