//! Checks of a recovered tree, according to the rules in the parent module.

use vfs::{Attributes, FileSystem, FileType, Ino};

use crate::fs_tree::{FileContents, FsTree, GRANULE_BYTES, Inode, Rules};
use crate::operation::Session;

/// Size of a sector, which devices write atomically.
const SECTOR_BYTES: usize = super::SECTOR_BYTES as usize;

/// Properties that are compared exactly.
const METADATA: Rules = Rules { times: true, holes: true, contents: false };

/// State of the model after a step.
#[derive(Clone, Debug)]
pub(crate) struct ModelSnapshot {
    pub(super) tree: FsTree,
    /// Open files, which may have no name.
    pub(super) open: Vec<Inode>,
}

impl ModelSnapshot {
    /// Returns the state of a file system that `session` uses.
    ///
    /// # Errors
    /// Returns the errors of the tree.
    pub(crate) fn of(fs: &dyn FileSystem, session: &Session) -> Result<Self, String> {
        let open = session.slots().iter().flatten();
        let open = open.map(|&ino| Inode::of(fs, ino).map_err(|error| error.to_string()));
        Ok(Self { tree: FsTree::of(fs)?, open: open.collect::<Result<_, _>>()? })
    }

    /// Returns the same state without one path.
    pub(crate) fn without(&self, path: &[u8]) -> Self {
        Self { tree: self.tree.filter(|other| other != path), open: self.open.clone() }
    }

    /// Returns an inode by its number, with or without a name.
    pub(super) fn inode(&self, ino: Ino) -> Option<&Inode> {
        let open = || self.open.iter().find(|inode| inode.attributes.ino == ino);
        self.tree.by_ino(ino).or_else(open)
    }

    /// Returns whether an inode has the same attributes and names as in another state.
    pub(super) fn shows_same(&self, other: &Self, ino: Ino) -> bool {
        self.inode(ino) == other.inode(ino) && self.tree.paths_of(ino).eq(other.tree.paths_of(ino))
    }
}

/// Compares a tree with the states from the durable one to the last one started.
pub(crate) fn check(states: &[ModelSnapshot], found: &FsTree) -> Result<(), String> {
    // A state with equal metadata is a better match than one with few differences: then the contents are wrong.
    let mut nearest: Option<(usize, Vec<String>, bool)> = None;
    for (number, state) in states.iter().enumerate() {
        let mut differences = state.tree.differences(found, METADATA);
        let fits = differences.is_empty();
        if fits {
            differences = bad_sectors(&states[number..], found);
        }
        if differences.is_empty() {
            return Ok(());
        }
        let is_nearer = |(_, fewest, fitted): &(usize, Vec<String>, bool)| {
            (!fits, differences.len()) < (!fitted, fewest.len())
        };
        if nearest.as_ref().is_none_or(is_nearer) {
            nearest = Some((number, differences, fits));
        }
    }
    let (number, differences, _) = nearest.unwrap_or_default();
    Err(format!(
        "none of {} allowed states; the nearest is the durable one + {number}, which differs:\n{}",
        states.len(),
        differences.join("\n")
    ))
}

/// Returns the states, each without the files that are missing in `found` and may be lost. Directory times are those of
/// `found`, if one of the states has them.
pub(super) fn without_lost(states: &[ModelSnapshot], found: &FsTree) -> Vec<ModelSnapshot> {
    let each = states.iter().enumerate().map(|(number, state)| {
        let is_lost =
            |path: &[u8]| found.get(path).is_none() && may_be_lost(&states[..=number], path);
        let mut tree = state.tree.filter(|path| !is_lost(path));
        let directories = tree.paths.iter().filter(|(path, _)| found.get(path).is_some());
        for (path, &place) in directories {
            let (expected, shown) = (&mut tree.inodes[place].attributes, found.get(path));
            let Some(shown) = shown.map(|inode| &inode.attributes) else { continue };
            let times = |a: &Attributes| (a.mtime, a.ctime);
            let had =
                |state: &ModelSnapshot| state.tree.get(path).map(|inode| times(&inode.attributes));
            if expected.file_type == FileType::Directory
                && states.iter().any(|state| had(state) == Some(times(shown)))
            {
                (expected.mtime, expected.ctime) = times(shown);
            }
        }
        ModelSnapshot { tree, open: state.open.clone() }
    });
    each.collect()
}

/// Returns whether a path leads, in the last state, to a regular file that was created after the first state and not
/// changed since.
fn may_be_lost(states: &[ModelSnapshot], path: &[u8]) -> bool {
    let now = states.last().and_then(|state| state.tree.get(path));
    let Some(now) = now.filter(|now| now.attributes.file_type == FileType::Regular) else {
        return false;
    };
    let ino = now.attributes.ino;
    let with_it = states.iter().skip_while(|state| state.tree.by_ino(ino).is_none());
    let is_new = states.first().is_some_and(|state| state.inode(ino).is_none());
    let is_same = |state: &ModelSnapshot| {
        state.tree.by_ino(ino) == Some(now) && state.tree.paths_of(ino).eq([path])
    };
    is_new && now.attributes.size == 0 && with_it.into_iter().all(is_same)
}

/// Returns the sectors of a tree with the metadata of the first state that match none of the states.
fn bad_sectors(states: &[ModelSnapshot], found: &FsTree) -> Vec<String> {
    let mut bad = Vec::new();
    for (path, &place) in &states[0].tree.paths {
        let expected = &states[0].tree.inodes[place];
        let Some(actual) = found.get(path) else { continue };
        let (old, new) = (&expected.contents, &actual.contents);
        let granules = old.granules.keys().chain(new.granules.keys());
        for &granule in granules.filter(|g| old.granules.get(g) != new.granules.get(g)) {
            let size = expected.attributes.size;
            let later = states.iter().filter_map(|state| state.inode(expected.attributes.ino));
            let later: Vec<&FileContents> = later.map(|inode| &inode.contents).collect();
            if let Some(sector) = bad_sector(&later, new, granule, size) {
                let path = path.escape_ascii();
                bad.push(format!("{path}: sector {sector} of granule {granule} is of no state"));
            }
        }
    }
    bad
}

/// Returns the first sector of a granule, below `size`, that matches none of `later`.
fn bad_sector(
    later: &[&FileContents],
    found: &FileContents,
    granule: u64,
    size: u64,
) -> Option<usize> {
    let len = size.saturating_sub(granule * GRANULE_BYTES).min(GRANULE_BYTES) as usize;
    let found = found.granule(granule);
    let later: Vec<_> = later.iter().map(|contents| contents.granule(granule)).collect();
    let sectors = (0..len).step_by(SECTOR_BYTES);
    let bytes = |start: usize| start..(start + SECTOR_BYTES).min(len);
    let is_known = |start: usize| later.iter().any(|old| old[bytes(start)] == found[bytes(start)]);
    sectors
        .map(|start| (start, is_known(start)))
        .find(|(_, known)| !known)
        .map(|(s, _)| s / SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use vfs::NewInode;

    fn state(fs: &Model, open: &[Ino]) -> ModelSnapshot {
        let open = open.iter().map(|&ino| Inode::of(fs, ino).unwrap()).collect();
        ModelSnapshot { tree: FsTree::of(fs).unwrap(), open }
    }

    /// Returns states in which a file of 1,500 bytes is created, overwritten and truncated.
    fn states() -> (Model, Ino, Vec<ModelSnapshot>) {
        let fs = Model::new();
        let ino = fs.create(fs.root(), b"f", &NewInode::default()).unwrap();
        fs.open(ino).unwrap();
        fs.write(ino, 0, &[1; 1500], None).unwrap();
        let mut states = vec![state(&fs, &[ino])];
        fs.write(ino, 0, &[2; 1500], None).unwrap();
        states.push(state(&fs, &[ino]));
        fs.truncate(ino, 600, None).unwrap();
        states.push(state(&fs, &[ino]));
        fs.unlink(fs.root(), b"f", None).unwrap();
        fs.write(ino, 0, &[3; 10], None).unwrap();
        states.push(state(&fs, &[ino]));
        (fs, ino, states)
    }

    fn with_bytes(state: &ModelSnapshot, change: impl FnOnce(&mut [u8])) -> FsTree {
        let mut tree = state.tree.clone();
        let place = tree.paths[&b"f"[..]];
        change(tree.inodes[place].contents.granules.get_mut(&0).unwrap());
        tree
    }

    #[test]
    fn every_state_is_allowed_and_no_other() {
        let (fs, ino, states) = states();
        for state in &states {
            check(&states, &state.tree).unwrap();
        }
        check(&states[1..], &states[0].tree).unwrap_err();
        fs.link(ino, fs.root(), b"g", None).unwrap();
        check(&states, &FsTree::of(&fs).unwrap()).unwrap_err();
    }

    #[test]
    fn a_file_that_waits_may_be_lost_as_long_as_nothing_is_done_to_it() {
        let fs = Model::new();
        let time = |sec| Some(vfs::Timestamp { sec, nsec: 0 });
        let mut states = vec![state(&fs, &[])];
        let new = |sec| NewInode { parent_time: time(sec), ..NewInode::default() };
        let ino = fs.create(fs.root(), b"f", &new(1)).unwrap();
        states.push(state(&fs, &[]));
        fs.create(fs.root(), b"g", &new(2)).unwrap();
        states.push(state(&fs, &[]));
        let lost = states[2].without(b"f").tree;
        check(&states, &lost).unwrap_err();
        check(&without_lost(&states, &lost), &lost).unwrap();
        check(&without_lost(&states[1..], &lost), &lost).unwrap_err();
        fs.link(ino, fs.root(), b"h", time(3)).unwrap();
        states.push(state(&fs, &[]));
        let lost = states[3].without(b"f").tree;
        check(&without_lost(&states, &lost), &lost).unwrap_err();
        // With its second name, the state is the one before that name: the directory never had its time.
        let both = states[2].without(b"f").tree;
        check(&without_lost(&states, &both), &both).unwrap();
        check(&without_lost(&states[2..], &both), &both).unwrap_err();
    }

    #[test]
    fn sectors_may_be_newer_than_the_metadata_and_never_older() {
        let (_, _, states) = states();
        let torn = with_bytes(&states[0], |bytes| bytes[512..1024].fill(2));
        check(&states, &torn).unwrap();
        check(&states[..1], &torn).unwrap_err();
        let cut = with_bytes(&states[0], |bytes| bytes[1024..].fill(0));
        check(&states, &cut).unwrap();
        let half_cut = with_bytes(&states[0], |bytes| bytes[1100..].fill(0));
        check(&states, &half_cut).unwrap_err();
        let foreign = with_bytes(&states[0], |bytes| bytes[0] = 9);
        check(&states, &foreign).unwrap_err();
        let mut newest = [3; 512];
        newest[10..].fill(2);
        let unnamed = with_bytes(&states[0], |bytes| bytes[..512].copy_from_slice(&newest));
        check(&states, &unnamed).unwrap();
        check(&states[..3], &unnamed).unwrap_err();
        let older = with_bytes(&states[1], |bytes| bytes[..512].fill(1));
        check(&states, &older).expect("it is the first state, partly overwritten");
        check(&states[1..], &older).unwrap_err();
    }
}
