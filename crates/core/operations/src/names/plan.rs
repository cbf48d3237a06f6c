//! Look-ups and checks of a rename before it changes anything.
//!
//! Only a directory that gets another parent changes the hierarchy of directories. Such a move holds the lock of moves,
//! before any inode lock, so that the ancestors it checks do not change: `..` of a directory changes only under that
//! lock, and a directory with entries cannot be removed.

use std::borrow::Cow;

use engine::locks::MutexGuard;
use smallvec::SmallVec;
use vfs::names::check_name;
use vfs::{Error, Ino, RenameMode, Result};

use super::{Directories, Name, find_named, load_named};
use crate::inode::{InodeHandle, load_dir};

/// Result of the look-ups of a rename, with both directories locked.
pub(super) struct RenamePlan<'n, F: Directories> {
    /// The source directory, and the old name as it is stored.
    pub(super) from: (Ino, Cow<'n, [u8]>),
    /// The target directory, and the new name; as it is stored if it exists.
    pub(super) to: (Ino, Cow<'n, [u8]>),
    /// Behaviour if the new name exists.
    pub(super) mode: RenameMode,
    /// The directories; the second one only if it differs from the first.
    pub(super) dirs: SmallVec<[F::Inode; 2]>,
    /// The entry of the old name.
    pub(super) source: F::Found,
    /// The entry of the new name, unless it is the entry that moves.
    pub(super) target: Option<F::Found>,
    /// True if both names are spellings of one entry, which gets the new spelling.
    pub(super) is_respelling: bool,
}

/// The inodes of a rename, locked and about to be changed.
pub(super) struct Moved<I> {
    /// The inode of the old name.
    pub(super) source: I,
    /// The inode of the new name.
    pub(super) target: Option<I>,
}

/// The subject of a check of ancestors. The result stays valid while these are unchanged.
#[derive(PartialEq, Eq)]
struct Ancestry {
    source: Ino,
    target: Option<Ino>,
    generations: SmallVec<[u32; 2]>,
}

impl<F: Directories> RenamePlan<'_, F> {
    /// Returns the directory of the new name.
    pub(super) fn to_dir(&self) -> &F::Inode {
        &self.dirs[self.dirs.len() - 1]
    }

    /// Returns the old name as a link to the moved inode.
    pub(super) fn old_link(&self) -> (&F::Inode, &[u8]) {
        (&self.dirs[0], &self.from.1)
    }

    /// Returns the new name as a link.
    pub(super) fn new_link(&self) -> (&F::Inode, &[u8]) {
        (self.to_dir(), &self.to.1)
    }

    /// Returns whether the names are in different directories.
    pub(super) fn is_across(&self) -> bool {
        self.dirs.len() > 1
    }

    fn inodes(&self) -> SmallVec<[Ino; 4]> {
        let target = self.target.as_ref().map(F::ino_of);
        [self.from.0, self.to.0, F::ino_of(&self.source)].into_iter().chain(target).collect()
    }

    fn ancestry(&self) -> Ancestry {
        Ancestry {
            source: F::ino_of(&self.source),
            target: self.target.as_ref().map(F::ino_of),
            generations: self.dirs.iter().map(F::Inode::generation).collect(),
        }
    }

    /// Returns whether there is nothing to do, because both names lead to the same inode.
    fn is_idle(&self) -> bool {
        self.target.as_ref().is_some_and(|target| F::ino_of(target) == F::ino_of(&self.source))
    }
}

fn check_rename(from: &[u8], to: &[u8], mode: RenameMode) -> Result<()> {
    const DOTS: Error = Error::Invalid("'.' and '..' cannot be renamed");
    if matches!(from, b"." | b"..") {
        return Err(DOTS);
    }
    match check_name(to) {
        Err(Error::Exists) if mode != RenameMode::NoReplace => Err(DOTS),
        other => other,
    }
}

/// Looks up both names of a rename, locks the directories and the inodes of the names, checks that no directory moves
/// into itself or below itself, and calls `carry_out` with the plan and the inodes. Does nothing if both names lead to
/// the same inode.
///
/// # Errors
/// `NotFound`, `Exists`, `Invalid` as [`vfs::FileSystem::rename`] specifies; read errors, and those of `carry_out`.
pub(super) fn plan_and_do<F: Directories>(
    fs: &F,
    from: Name<'_>,
    to: Name<'_>,
    mode: RenameMode,
    carry_out: impl FnOnce(&RenamePlan<'_, F>, &Moved<F::Inode>) -> Result<()>,
) -> Result<()> {
    check_rename(from.1, to.1, mode)?;
    let mut moves: Option<MutexGuard<'_, ()>> = None;
    let mut checked = None;
    let mut wanted: SmallVec<[Ino; 4]> = SmallVec::from_slice(&[from.0, to.0]);
    loop {
        let mut locked = fs.locks().exclusive(&wanted);
        let plan = plan(fs, from, to, mode)?;
        if plan.is_idle() {
            return Ok(());
        }
        wanted = plan.inodes();
        if !wanted.iter().all(|&ino| locked.add(ino)) {
            continue;
        }
        let moved = load_moved(fs, &plan)?;
        if !moves_directory(&plan, &moved) || checked.as_ref() == Some(&plan.ancestry()) {
            return carry_out(&plan, &moved);
        }
        drop(locked);
        moves.get_or_insert_with(|| fs.locks().moves());
        check_ancestors(fs, &plan)?;
        checked = Some(plan.ancestry());
    }
}

/// Looks up both names.
fn plan<'n, F: Directories>(
    fs: &F,
    from: Name<'n>,
    to: Name<'n>,
    mode: RenameMode,
) -> Result<RenamePlan<'n, F>> {
    let mut dirs = SmallVec::new();
    dirs.push(load_dir(fs, from.0)?);
    if to.0 != from.0 {
        dirs.push(load_dir(fs, to.0)?);
    }
    let source = find_named(fs, &dirs[0], from.1)?.ok_or(Error::NotFound)?;
    let target = find_named(fs, &dirs[dirs.len() - 1], to.1)?;
    dirs.iter().try_for_each(|dir| fs.admit_move(dir))?;
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        _ => {
            let to_dir = &dirs[dirs.len() - 1];
            let stored = fs.stored_name(&dirs[0], from.1, &source)?;
            let mut new = match &target {
                Some(target) => fs.stored_name(to_dir, to.1, target)?,
                None => Cow::Borrowed(to.1),
            };
            // A directory cannot have two entries with one stored name.
            let is_one_entry = target.is_some() && to.0 == from.0 && new == stored;
            let is_respelling = is_one_entry && mode == RenameMode::Replace && *to.1 != *stored;
            let target = target.filter(|_| !is_respelling);
            if is_respelling {
                new = Cow::Borrowed(to.1);
            }
            let (from, to) = ((from.0, stored), (to.0, new));
            Ok(RenamePlan { from, to, mode, dirs, source, target, is_respelling })
        }
    }
}

/// Loads the inodes of both names.
fn load_moved<F: Directories>(fs: &F, plan: &RenamePlan<'_, F>) -> Result<Moved<F::Inode>> {
    let source = load_named(fs, &plan.dirs[0], &plan.source)?;
    let target = match &plan.target {
        Some(found) => Some(load_named(fs, plan.to_dir(), found)?),
        None => None,
    };
    Ok(Moved { source, target })
}

/// Returns whether a directory gets another parent.
fn moves_directory<F: Directories>(plan: &RenamePlan<'_, F>, moved: &Moved<F::Inode>) -> bool {
    let exchanged = moved.target.as_ref().filter(|_| plan.mode == RenameMode::Exchange);
    plan.is_across() && (moved.source.is_dir() || exchanged.is_some_and(InodeHandle::is_dir))
}

/// `Invalid` if a directory would move into itself or below itself. The caller holds the lock of moves and no inode
/// lock.
fn check_ancestors<F: Directories>(fs: &F, plan: &RenamePlan<'_, F>) -> Result<()> {
    check_not_below(fs, plan.to.0, F::ino_of(&plan.source))?;
    match &plan.target {
        Some(target) if plan.mode == RenameMode::Exchange => {
            check_not_below(fs, plan.from.0, F::ino_of(target))
        }
        _ => Ok(()),
    }
}

/// `Invalid` if `dir` is `top` or below it.
fn check_not_below<F: Directories>(fs: &F, dir: Ino, top: Ino) -> Result<()> {
    // Detects a cycle by a return to `mark`, which is set at exponentially growing intervals.
    let (mut at, mut mark, mut steps, mut next_mark) = (dir, None, 0_u64, 1);
    loop {
        if at == top {
            return Err(Error::Invalid("a directory cannot move into itself"));
        }
        if at == fs.root_directory() {
            return Ok(());
        }
        let (handle, parent) = {
            let _lock = fs.locks().shared(at);
            let handle = load_dir(fs, at)?;
            let parent = fs.parent_of(&handle)?;
            (handle, parent)
        };
        if parent.is_none() || mark == parent {
            return Err(
                handle.corrupt("directory", "'..' does not refer to the parent up to the root")
            );
        }
        steps += 1;
        if steps == next_mark {
            (mark, next_mark) = (Some(at), next_mark * 2);
        }
        at = parent.unwrap_or(at);
    }
}
