//! Joins inodes with names, and judges how much can be read.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use vfs::deleted::{DeletedData, DeletedInode, DeletedName, InodeState};
use vfs::{FileSystem, FileType, Ino, Timestamp};

use super::blocks::BlockCounter;
use super::collect::Collected;
use super::paths::DirectoryPaths;
use super::{BlockStates, Certainty, DeletedFile, NameOfDeleted};

/// Maximum number of names of one inode. Each further one is a separate entry.
const NAMES_MAX: usize = 64;

/// Returns the deleted files of an image.
pub(super) fn join(
    fs: &dyn FileSystem,
    collected: Collected,
    blocks: u64,
    remarks: &mut Vec<String>,
) -> Vec<DeletedFile> {
    let Collected { mut inodes, names, free, .. } = collected;
    inodes.sort_by_key(|inode| (inode.ino, Reverse(last_use(inode))));
    let states = count(&inodes, &BlockCounterInput { free: &free, blocks }, remarks);
    let paths = directory_paths(fs, &names);
    let mut by_inode: HashMap<Ino, Vec<DeletedName>> = HashMap::new();
    let mut rest = Vec::new();
    let has_inode: HashSet<Ino> = inodes.iter().map(|inode| inode.ino).collect();
    for name in names {
        match name.ino.filter(|ino| has_inode.contains(ino)) {
            Some(ino) => {
                let known = by_inode.entry(ino).or_default();
                if known.len() < NAMES_MAX { known.push(name) } else { rest.push(name) }
            }
            None => rest.push(name),
        }
    }
    let mut files = Vec::with_capacity(inodes.len() + rest.len());
    for (inode, states) in inodes.into_iter().zip(states) {
        let known = by_inode.get(&inode.ino).map_or(&[][..], Vec::as_slice);
        let fits = |name: &&DeletedName| {
            name.file_type.zip(inode.file_type).is_none_or(|(named, own)| named == own)
        };
        let names: Vec<_> = known.iter().filter(fits).map(|name| with_path(name, &paths)).collect();
        let (certainty, reason) = judge(&inode, &states);
        files.push(DeletedFile { inode: Some(inode), names, blocks: states, certainty, reason });
    }
    rest.sort_by(|a, b| (a.ino, &a.name).cmp(&(b.ino, &b.name)));
    for name in rest {
        let reason = reason_of_name(fs, &name);
        files.push(DeletedFile {
            inode: None,
            names: vec![with_path(&name, &paths)],
            blocks: BlockStates::default(),
            certainty: Certainty::NameOnly,
            reason,
        });
    }
    files
}

fn with_path(name: &DeletedName, paths: &DirectoryPaths) -> NameOfDeleted {
    NameOfDeleted { entry: name.clone(), path: paths.path(name.dir, &name.name) }
}

/// Returns the time at which a deleted inode was last known to be a file.
fn last_use(inode: &DeletedInode) -> Timestamp {
    inode.dtime.unwrap_or_default().max(inode.ctime)
}

struct BlockCounterInput<'f> {
    free: &'f vfs::check::BitSet,
    blocks: u64,
}

/// Returns the states of the blocks of each inode. Of two files with the same block, the later one has it.
fn count(
    inodes: &[DeletedInode],
    input: &BlockCounterInput<'_>,
    remarks: &mut Vec<String>,
) -> Vec<BlockStates> {
    let mut order: Vec<usize> = (0..inodes.len()).collect();
    order.sort_by_key(|&at| Reverse(last_use(&inodes[at])));
    let mut counter = BlockCounter::new(input.free, input.blocks);
    let mut states = vec![BlockStates::default(); inodes.len()];
    for at in order {
        let inode = &inodes[at];
        let counted = counter.count(inode.data.runs(), inode.state == InodeState::Orphan);
        let lost_maps = match inode.data {
            DeletedData::Mapped { lost, .. } => lost,
            DeletedData::Lost | DeletedData::Inline(_) => 0,
        };
        states[at] = BlockStates { lost_maps, ..counted };
    }
    if states.iter().any(|states| states.is_uncounted) {
        remarks.push("too many deleted files have the same blocks; some were not counted".into());
    }
    states
}

fn directory_paths(fs: &dyn FileSystem, names: &[DeletedName]) -> DirectoryPaths {
    let wanted: HashSet<Ino> = names.iter().filter_map(|name| name.dir).collect();
    let mut deleted = HashMap::new();
    for name in names {
        if let Some(ino) = name.ino.filter(|ino| wanted.contains(ino))
            && name.file_type.is_none_or(|found| found == FileType::Directory)
        {
            deleted.entry(ino).or_insert_with(|| (name.dir, name.name.clone()));
        }
    }
    DirectoryPaths::find(fs, &wanted, deleted)
}

/// Returns the certainty of an inode and the reason for it.
fn judge(inode: &DeletedInode, states: &BlockStates) -> (Certainty, String) {
    let (certainty, mut reason) = judge_contents(inode, states);
    match inode.state {
        InodeState::Free => {}
        InodeState::Orphan => reason.push_str("; the inode is not freed yet"),
        InodeState::Reused => reason.push_str("; another file has the inode number"),
    }
    (certainty, reason)
}

fn judge_contents(inode: &DeletedInode, states: &BlockStates) -> (Certainty, String) {
    let BlockStates { free, in_use, reused, lost_maps, is_uncounted } = *states;
    let taken = in_use + reused;
    match &inode.data {
        DeletedData::Inline(_) => (Certainty::Intact, "the contents are in the inode".into()),
        DeletedData::Lost => judge_without_map(inode),
        DeletedData::Mapped { .. } if is_uncounted => {
            (Certainty::Incomplete, "its blocks were not counted".into())
        }
        DeletedData::Mapped { .. } if taken > 0 && free == 0 => {
            let reason = format!("all {taken} known blocks {}", users(in_use, reused));
            (Certainty::Overwritten, reason)
        }
        DeletedData::Mapped { .. } if taken > 0 => {
            let all = taken + free;
            let reason = format!("{taken} of {all} known blocks {}", users(in_use, reused));
            (Certainty::PartlyOverwritten, reason)
        }
        DeletedData::Mapped { .. } if lost_maps > 0 => {
            let reason = format!("{lost_maps} blocks of its map cannot be read");
            (Certainty::Incomplete, reason)
        }
        DeletedData::Mapped { .. } => match (inode.size, inode.state) {
            (None, _) => {
                (Certainty::Probable, format!("all {free} blocks are free; the size is unknown"))
            }
            (Some(_), InodeState::Orphan) => {
                (Certainty::Intact, format!("all {free} blocks still belong to it"))
            }
            (Some(_), _) => (Certainty::Intact, format!("all {free} blocks are free")),
        },
    }
}

fn users(in_use: u64, reused: u64) -> &'static str {
    match (in_use > 0, reused > 0) {
        (true, true) => "are in use, or belong to files deleted later",
        (true, false) => "are in use",
        _ => "belong to files deleted later",
    }
}

fn judge_without_map(inode: &DeletedInode) -> (Certainty, String) {
    match (inode.file_type, inode.size) {
        (Some(FileType::Regular | FileType::Symlink), Some(0)) => {
            (Certainty::Intact, "the file was empty".into())
        }
        (
            Some(FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket),
            _,
        ) => (Certainty::Intact, "a file of this type has no contents".into()),
        (_, None) => (Certainty::MetadataOnly, "its size and block map were cleared".into()),
        (_, Some(_)) => (Certainty::MetadataOnly, "no block map was found".into()),
    }
}

fn reason_of_name(fs: &dyn FileSystem, name: &DeletedName) -> String {
    match name.ino {
        None => "the inode number was overwritten".into(),
        Some(ino) if fs.attributes(ino).is_ok() => {
            "the inode is in use: it was renamed, or the number was reused".into()
        }
        Some(_) => "nothing of the inode was found".into(),
    }
}
