//! Renames.

use smallvec::SmallVec;
use vfs::names::check_whiteout;
use vfs::{Error, FileType, NewInode, RenameMode, Result, Timestamp};

use super::plan::{Moved, RenamePlan, plan_and_do};
use super::require_empty;
use super::{Directories, Entry, LinkEffects, MakeInodes, Name, drop_subdirectory};
use crate::Outcome;
use crate::inode::InodeHandle;
use crate::orphans::{Inactivation, inactivate};

/// Renames an entry, as [`vfs::FileSystem::rename`] and [`vfs::FileSystem::rename_with_whiteout`] specify.
///
/// # Errors
/// Returns the errors of those methods.
pub(crate) fn rename<F>(
    fs: &F,
    from: Name<'_>,
    to: Name<'_>,
    mode: RenameMode,
    whiteout: Option<&NewInode>,
    time: Option<Timestamp>,
) -> Result<()>
where
    F: Directories + MakeInodes + LinkEffects,
{
    fs.mode().check_writable()?;
    check_whiteout(mode, whiteout)?;
    plan_and_do(fs, from, to, mode, |plan, moved| carry_out(fs, plan, moved, whiteout, time))
}

/// Executes a plan. All locks are held.
fn carry_out<F>(
    fs: &F,
    plan: &RenamePlan<'_, F>,
    before: &Moved<F::Inode>,
    whiteout: Option<&NewInode>,
    time: Option<Timestamp>,
) -> Result<()>
where
    F: Directories + MakeInodes + LinkEffects,
{
    if plan.is_respelling && whiteout.is_some() {
        // The whiteout and the file would need the same entry.
        return Ok(());
    }
    check_move(fs, plan, &before.source, before.target.as_ref())?;
    if let Some(new) = whiteout {
        fs.admit_new(&plan.dirs[0], FileType::CharDevice, new)?;
    }
    let inactivation = fs.atomically(|op| match plan.mode {
        RenameMode::Exchange => exchange(fs, op, plan, before, time).map(|()| None),
        RenameMode::Replace | RenameMode::NoReplace => {
            replace(fs, op, plan, before, whiteout, time)
        }
    })?;
    if let Some(inactivation) = inactivation {
        inactivate(fs, inactivation);
    }
    Ok(())
}

/// Checks flags, projects and types for the plan.
fn check_move<F>(
    fs: &F,
    plan: &RenamePlan<'_, F>,
    source: &F::Inode,
    target: Option<&F::Inode>,
) -> Result<()>
where
    F: Directories + LinkEffects,
{
    plan.dirs[0].protection().check_removal(source.protection())?;
    match target {
        Some(target) => plan.to_dir().protection().check_removal(target.protection())?,
        None => plan.to_dir().protection().check_addition()?,
    }
    fs.check_project(plan.to_dir(), source)?;
    match target {
        Some(target) if plan.mode == RenameMode::Exchange => {
            fs.check_project(&plan.dirs[0], target)
        }
        Some(target) => check_replaceable(fs, source, target),
        None => Ok(()),
    }
}

/// Checks that `source` may replace `target`.
fn check_replaceable<F: Directories>(fs: &F, source: &F::Inode, target: &F::Inode) -> Result<()> {
    match (source.is_dir(), target.is_dir()) {
        (true, false) => Err(Error::NotADirectory),
        (false, true) => Err(Error::IsADirectory),
        (true, true) => require_empty(fs, target),
        (false, false) => Ok(()),
    }
}

fn replace<F>(
    fs: &F,
    op: &mut F::Op<'_>,
    plan: &RenamePlan<'_, F>,
    before: &Moved<F::Inode>,
    whiteout: Option<&NewInode>,
    time: Option<Timestamp>,
) -> Outcome<Option<Inactivation>>
where
    F: Directories + MakeInodes + LinkEffects,
{
    let mut dirs = plan.dirs.clone();
    let to = dirs.len() - 1;
    let mut source = before.source.clone();
    let entry = Entry::to(&plan.to.1, &source)?;
    if before.target.as_ref().is_some_and(InodeHandle::is_dir) {
        drop_subdirectory(&mut dirs[to]);
    }
    if plan.is_across() && source.is_dir() {
        F::set_parent(op, &mut source, plan.from.0, plan.to.0)?;
        drop_subdirectory(&mut dirs[0]);
        fs.add_subdirectory(&mut dirs[to])?;
    }
    // Entries are replaced at the position where they were found. Adding an entry may move others, so it comes last.
    if let Some(found) = &plan.target {
        F::replace_entry(op, &mut dirs[to], found, entry)?;
    }
    match whiteout {
        Some(new) => leave_whiteout(op, &mut dirs[0], plan, new)?,
        None => F::remove_entry(op, &mut dirs[0], &plan.from.1, &plan.source)?,
    }
    if plan.target.is_none() {
        F::add_entry(op, &mut dirs[to], entry)?;
    }
    F::replace_parent(op, &mut source, plan.old_link(), plan.new_link())?;
    stage_dirs(op, plan, dirs, time)?;
    stage_moved::<F>(op, source, time);
    let Some(target) = &before.target else { return Ok(None) };
    F::take_name(op, target, plan.new_link(), time).map(Some)
}

/// Creates a whiteout and replaces the entry of the old name with it.
fn leave_whiteout<F>(
    op: &mut F::Op<'_>,
    dir: &mut F::Inode,
    plan: &RenamePlan<'_, F>,
    new: &NewInode,
) -> Outcome<()>
where
    F: Directories + MakeInodes + LinkEffects,
{
    let mut whiteout = F::new_whiteout(op, dir, new)?;
    F::replace_entry(op, dir, &plan.source, Entry::to(&plan.from.1, &whiteout)?)?;
    F::add_parent(op, &mut whiteout, plan.old_link())?;
    F::stage_new(op, whiteout);
    Ok(())
}

fn exchange<F>(
    fs: &F,
    op: &mut F::Op<'_>,
    plan: &RenamePlan<'_, F>,
    before: &Moved<F::Inode>,
    time: Option<Timestamp>,
) -> Outcome<()>
where
    F: Directories + LinkEffects,
{
    let found = plan.target.ok_or(Error::NotFound)?;
    let mut target = before.target.clone().ok_or(Error::NotFound)?;
    let mut dirs = plan.dirs.clone();
    let to = dirs.len() - 1;
    let mut source = before.source.clone();
    let is_dir = [source.is_dir(), target.is_dir()];
    if plan.is_across() {
        if is_dir[0] {
            F::set_parent(op, &mut source, plan.from.0, plan.to.0)?;
        }
        if is_dir[1] {
            F::set_parent(op, &mut target, plan.to.0, plan.from.0)?;
        }
        if is_dir[0] != is_dir[1] {
            let (loses, gains) = if is_dir[0] { (0, to) } else { (to, 0) };
            drop_subdirectory(&mut dirs[loses]);
            fs.add_subdirectory(&mut dirs[gains])?;
        }
    }
    F::replace_entry(op, &mut dirs[to], &found, Entry::to(&plan.to.1, &source)?)?;
    F::replace_entry(op, &mut dirs[0], &plan.source, Entry::to(&plan.from.1, &target)?)?;
    F::replace_parent(op, &mut source, plan.old_link(), plan.new_link())?;
    F::replace_parent(op, &mut target, plan.new_link(), plan.old_link())?;
    stage_dirs(op, plan, dirs, time)?;
    stage_moved::<F>(op, source, time);
    stage_moved::<F>(op, target, time);
    Ok(())
}

/// Stages the directories of a rename.
fn stage_dirs<F: Directories>(
    op: &mut F::Op<'_>,
    plan: &RenamePlan<'_, F>,
    dirs: SmallVec<[F::Inode; 2]>,
    time: Option<Timestamp>,
) -> Outcome<()> {
    for (mut dir, before) in dirs.into_iter().zip(&plan.dirs) {
        dir.touch(time);
        F::stage_dir(op, dir, before)?;
    }
    Ok(())
}

fn stage_moved<F: Directories>(op: &mut F::Op<'_>, mut inode: F::Inode, time: Option<Timestamp>) {
    if let Some(time) = time {
        inode.set_ctime(time);
    }
    F::stage(op, inode);
}
