//! What operations on names have in common in every format: which names there can be, locking an
//! entry together with the inode it leads to, and what a rename must know before it changes anything.
//!
//! Which inode a name stands for is known only once its directory is locked and searched. The
//! inode's lock is then taken as well; where that is not possible in order, both are let go, taken
//! in order, and the name is looked up again.
//!
//! Only a directory that gets another parent changes who is below whom. Such a move holds a lock of
//! its own, before any inode's, so that the ancestors it looks at stay what they are: `..` of a
//! directory changes only under that lock, and a directory with something in it cannot go.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use crate::locks::{InodeLocks, Locked};
use crate::{Error, Ino, NAME_LEN_MAX, NewInode, RenameMode, Result};

/// A name in a directory.
pub type Name<'n> = (Ino, &'n [u8]);

/// Checks a name that is to be made: `Exists` for `.` and `..`.
///
/// # Errors
/// Why no entry can have the name.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name must not be empty or contain '/' or NUL"));
    }
    Ok(())
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

/// Checks that a rename that is to leave a whiteout leaves a place for it.
///
/// # Errors
/// `Invalid` if the names change places.
pub fn check_whiteout(mode: RenameMode, whiteout: Option<&NewInode>) -> Result<()> {
    if whiteout.is_some() && mode == RenameMode::Exchange {
        return Err(Error::Invalid("an exchange leaves no place for a whiteout"));
    }
    Ok(())
}

/// Checks a label that a file system is to get, which has room for `len_max` bytes.
///
/// # Errors
/// `Invalid` if it does not fit or has a NUL.
pub fn check_label(label: &[u8], len_max: usize) -> Result<()> {
    if label.len() > len_max || label.contains(&0) {
        return Err(Error::Invalid("a label fits into its place and has no NUL"));
    }
    Ok(())
}

/// A format's directories, as far as names are concerned.
pub trait Directories {
    /// The file system.
    type Fs;
    /// A directory as it was read.
    type Dir: Clone;
    /// What a name leads to.
    type Found: Copy;

    /// The locks of all inodes.
    fn locks(fs: &Self::Fs) -> &InodeLocks;

    /// The root directory.
    fn root_directory(fs: &Self::Fs) -> Ino;

    /// Reads a directory whose names are to be changed. `NotFound` if it was removed and is only open.
    ///
    /// # Errors
    /// Also `NotADirectory`, and what reading brings.
    fn load_parent(fs: &Self::Fs, dir: Ino) -> Result<Self::Dir>;

    /// The entry of a name that is to be changed, if there is one.
    ///
    /// # Errors
    /// What reading brings.
    fn find_named(fs: &Self::Fs, dir: &Self::Dir, name: &[u8]) -> Result<Option<Self::Found>>;

    /// Whether an entry leads to a directory. Its inode need not be locked.
    ///
    /// # Errors
    /// What reading brings.
    fn leads_to_directory(fs: &Self::Fs, dir: &Self::Dir, found: &Self::Found) -> Result<bool>;

    /// The directory above, if `..` says one.
    ///
    /// # Errors
    /// What reading brings.
    fn parent_of(fs: &Self::Fs, dir: &Self::Dir) -> Result<Option<Ino>>;

    /// The generation of a directory.
    fn generation_of(dir: &Self::Dir) -> u32;

    /// The inode that an entry names.
    fn ino_of(found: &Self::Found) -> Ino;

    /// The damage that `..` of a directory does not lead to the root.
    fn astray(dir: &Self::Dir) -> Error;
}

/// Locks a directory and the inode that `name` stands for in it; and another inode.
///
/// # Errors
/// `NotFound` if there is no such name, and what reading brings.
#[allow(clippy::type_complexity, reason = "it is taken apart where it is asked for")]
pub fn lock_entry<'a, D: Directories>(
    fs: &'a D::Fs,
    (dir, name): Name<'_>,
    also: Option<Ino>,
) -> Result<(Locked<'a>, D::Dir, D::Found)> {
    let mut wanted: SmallVec<[Ino; 4]> = SmallVec::from_slice(&[dir]);
    wanted.extend(also);
    let mut locked = D::locks(fs).exclusive(&wanted);
    loop {
        let parent = D::load_parent(fs, dir)?;
        let found = D::find_named(fs, &parent, name)?.ok_or(Error::NotFound)?;
        let ino = D::ino_of(&found);
        if locked.add(ino) {
            return Ok((locked, parent, found));
        }
        drop(locked);
        let with_child: SmallVec<[Ino; 4]> = wanted.iter().copied().chain([ino]).collect();
        locked = D::locks(fs).exclusive(&with_child);
    }
}

/// Refuses a name that is taken, before anything is made for it. To make directories, which are often
/// there already (`mkdir -p`); for files, which mostly are new, entering the name finds it out.
///
/// # Errors
/// `Exists`; what reading brings.
pub fn check_free<D: Directories>(fs: &D::Fs, dir: &D::Dir, name: &[u8]) -> Result<()> {
    match D::find_named(fs, dir, name)? {
        Some(_) => Err(Error::Exists),
        None => Ok(()),
    }
}

/// What making a name came to, which changed nothing if it failed: `Exists` before any other refusal if
/// the name is taken. The directory, locked, is given as it was before. What succeeds is not looked up,
/// as nothing is entered twice.
///
/// # Errors
/// The outcome's.
pub fn taken_first<D: Directories, R>(
    fs: &D::Fs,
    (dir, name): (&D::Dir, &[u8]),
    outcome: Result<R>,
) -> Result<R> {
    let Err(
        Error::NoSpace
        | Error::NoInodes
        | Error::TooManyLinks
        | Error::IsADirectory
        | Error::Invalid(_),
    ) = outcome
    else {
        return outcome;
    };
    // If it cannot be looked up, the first reason is as good.
    match D::find_named(fs, dir, name) {
        Ok(Some(_)) => Err(Error::Exists),
        _ => outcome,
    }
}

/// What a rename found with both directories locked.
pub struct Plan<'n, D: Directories> {
    /// The name that moves.
    pub from: Name<'n>,
    /// Where it goes.
    pub to: Name<'n>,
    /// What happens if the new name is taken.
    pub mode: RenameMode,
    /// The directories; the second one only if it is another.
    pub dirs: SmallVec<[D::Dir; 2]>,
    /// What the old name leads to.
    pub source: D::Found,
    /// What the new name leads to.
    pub target: Option<D::Found>,
}

/// What the look at the ancestors was about: it holds as long as these are the same.
#[derive(PartialEq, Eq)]
struct Ancestry {
    source: Ino,
    target: Option<Ino>,
    generations: SmallVec<[u32; 2]>,
}

impl<D: Directories> Plan<'_, D> {
    /// The directory of the new name.
    pub fn to_dir(&self) -> &D::Dir {
        &self.dirs[self.dirs.len() - 1]
    }

    /// Whether the names are in different directories.
    pub fn is_across(&self) -> bool {
        self.dirs.len() > 1
    }

    fn inodes(&self) -> SmallVec<[Ino; 4]> {
        let target = self.target.as_ref().map(D::ino_of);
        [self.from.0, self.to.0, D::ino_of(&self.source)].into_iter().chain(target).collect()
    }

    fn ancestry(&self) -> Ancestry {
        Ancestry {
            source: D::ino_of(&self.source),
            target: self.target.as_ref().map(D::ino_of),
            generations: self.dirs.iter().map(D::generation_of).collect(),
        }
    }

    /// Whether there is nothing to do, because both names stand for one inode.
    fn is_idle(&self) -> bool {
        self.target.as_ref().is_some_and(|target| D::ino_of(target) == D::ino_of(&self.source))
    }
}

/// Looks both names of a rename up, locks the directories and what the names lead to, checks that no
/// directory moves into itself or below, and lets `carry_out` do what was planned. Nothing happens if
/// both names stand for one inode.
///
/// # Errors
/// `NotFound`, `Exists`, `Invalid` as [`crate::FileSystem::rename`] says; what reading brings, and
/// what `carry_out` returns.
pub fn rename<D: Directories>(
    fs: &D::Fs,
    from: Name<'_>,
    to: Name<'_>,
    mode: RenameMode,
    carry_out: impl FnOnce(&Plan<'_, D>) -> Result<()>,
) -> Result<()> {
    check_rename(from.1, to.1, mode)?;
    let mut moves: Option<MutexGuard<'_, ()>> = None;
    let mut checked = None;
    let mut wanted: SmallVec<[Ino; 4]> = SmallVec::from_slice(&[from.0, to.0]);
    loop {
        let mut locked = D::locks(fs).exclusive(&wanted);
        let plan = plan::<D>(fs, from, to, mode)?;
        if plan.is_idle() {
            return Ok(());
        }
        wanted = plan.inodes();
        if moves_directory::<D>(fs, &plan)? && checked.as_ref() != Some(&plan.ancestry()) {
            drop(locked);
            moves.get_or_insert_with(|| D::locks(fs).moves());
            check_ancestors::<D>(fs, &plan)?;
            checked = Some(plan.ancestry());
            continue;
        }
        if wanted.iter().all(|&ino| locked.add(ino)) {
            return carry_out(&plan);
        }
    }
}

/// Looks both names up.
fn plan<'n, D: Directories>(
    fs: &D::Fs,
    from: Name<'n>,
    to: Name<'n>,
    mode: RenameMode,
) -> Result<Plan<'n, D>> {
    let mut dirs = SmallVec::new();
    dirs.push(D::load_parent(fs, from.0)?);
    if to.0 != from.0 {
        dirs.push(D::load_parent(fs, to.0)?);
    }
    let source = D::find_named(fs, &dirs[0], from.1)?.ok_or(Error::NotFound)?;
    let target = D::find_named(fs, &dirs[dirs.len() - 1], to.1)?;
    match (mode, target) {
        (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
        (RenameMode::Exchange, None) => Err(Error::NotFound),
        _ => Ok(Plan { from, to, mode, dirs, source, target }),
    }
}

/// Whether a directory gets another parent.
fn moves_directory<D: Directories>(fs: &D::Fs, plan: &Plan<'_, D>) -> Result<bool> {
    if !plan.is_across() {
        return Ok(false);
    }
    if D::leads_to_directory(fs, &plan.dirs[0], &plan.source)? {
        return Ok(true);
    }
    match &plan.target {
        Some(target) if plan.mode == RenameMode::Exchange => {
            D::leads_to_directory(fs, plan.to_dir(), target)
        }
        _ => Ok(false),
    }
}

/// `Invalid` if a directory would move into itself or below. No inode may be locked, but the lock of
/// moves must be.
fn check_ancestors<D: Directories>(fs: &D::Fs, plan: &Plan<'_, D>) -> Result<()> {
    check_not_below::<D>(fs, plan.to.0, D::ino_of(&plan.source))?;
    match &plan.target {
        Some(target) if plan.mode == RenameMode::Exchange => {
            check_not_below::<D>(fs, plan.from.0, D::ino_of(target))
        }
        _ => Ok(()),
    }
}

/// `Invalid` if `dir` is `top` or below it.
fn check_not_below<D: Directories>(fs: &D::Fs, dir: Ino, top: Ino) -> Result<()> {
    // A circle is found out when it comes back to `mark`, which is set ever more rarely.
    let (mut at, mut mark, mut steps, mut next_mark) = (dir, None, 0_u64, 1);
    loop {
        if at == top {
            return Err(Error::Invalid("a directory cannot move into itself"));
        }
        if at == D::root_directory(fs) {
            return Ok(());
        }
        let (handle, parent) = {
            let _lock = D::locks(fs).shared(at);
            let handle = D::load_parent(fs, at)?;
            let parent = D::parent_of(fs, &handle)?;
            (handle, parent)
        };
        if parent.is_none() || mark == parent {
            return Err(D::astray(&handle));
        }
        steps += 1;
        if steps == next_mark {
            (mark, next_mark) = (Some(at), next_mark * 2);
        }
        at = parent.unwrap_or(at);
    }
}
