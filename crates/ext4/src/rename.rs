//! Moving names.
//!
//! Only a directory that gets another parent changes who is below whom. Such a move holds a lock of
//! its own, before any inode's, so that the ancestors it looks at stay what they are: `..` of a
//! directory changes only under that lock, and a directory with something in it cannot go.

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use vfs::{Error, Ino, RenameMode, Result, Timestamp};

use crate::Ext4;
use crate::dir::{Entry, check_name};
use crate::format::inode::Time;
use crate::link::touch;
use crate::op::{Handle, Op};
use crate::orphan::Fate;
use crate::read::directory::{self, Found};

/// A name in a directory.
type Name<'n> = (Ino, &'n [u8]);

/// What a rename found with both directories locked.
struct Plan<'n> {
    from: Name<'n>,
    to: Name<'n>,
    mode: RenameMode,
    /// The directories; the second one only if it is another.
    dirs: SmallVec<[Handle; 2]>,
    source: Found,
    target: Option<Found>,
}

/// What the look at the ancestors was about: it holds as long as these are the same.
#[derive(PartialEq, Eq)]
struct Ancestry {
    source: Ino,
    target: Option<Ino>,
    generations: SmallVec<[u32; 2]>,
}

impl Plan<'_> {
    fn to_dir(&self) -> &Handle {
        &self.dirs[self.dirs.len() - 1]
    }

    fn is_across(&self) -> bool {
        self.dirs.len() > 1
    }

    fn inodes(&self) -> SmallVec<[Ino; 4]> {
        let target = self.target.map(|found| found.ino);
        [self.from.0, self.to.0, self.source.ino].into_iter().chain(target).collect()
    }

    fn ancestry(&self) -> Ancestry {
        Ancestry {
            source: self.source.ino,
            target: self.target.map(|found| found.ino),
            generations: self.dirs.iter().map(|dir| dir.inode.generation()).collect(),
        }
    }

    /// Whether there is nothing to do, because both names stand for one inode.
    fn is_idle(&self) -> bool {
        self.target.is_some_and(|target| target.ino == self.source.ino)
    }
}

/// The inodes of a rename, locked and about to be changed.
struct Moved {
    source: Handle,
    target: Option<Handle>,
}

impl Ext4 {
    pub(crate) fn rename_entry(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.check_writable()?;
        check_names(from.1, to.1, mode)?;
        let mut moves: Option<MutexGuard<'_, ()>> = None;
        let mut checked = None;
        let mut wanted: SmallVec<[Ino; 4]> = SmallVec::from_slice(&[from.0, to.0]);
        loop {
            let mut locked = self.locks.exclusive(&wanted);
            let plan = self.plan_rename(from, to, mode)?;
            if plan.is_idle() {
                return Ok(());
            }
            wanted = plan.inodes();
            if self.moves_directory(&plan)? && checked.as_ref() != Some(&plan.ancestry()) {
                drop(locked);
                moves.get_or_insert_with(|| self.locks.moves());
                self.check_ancestors(&plan)?;
                checked = Some(plan.ancestry());
                continue;
            }
            if wanted.iter().all(|&ino| locked.add(ino)) {
                return self.carry_out(&plan, time);
            }
        }
    }

    /// Looks both names up.
    fn plan_rename<'n>(&self, from: Name<'n>, to: Name<'n>, mode: RenameMode) -> Result<Plan<'n>> {
        let mut dirs = SmallVec::new();
        dirs.push(self.load_parent(from.0)?);
        if to.0 != from.0 {
            dirs.push(self.load_parent(to.0)?);
        }
        let source = self.find_named(&dirs[0], from.1)?.ok_or(Error::NotFound)?;
        let target = self.find_named(&dirs[dirs.len() - 1], to.1)?;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
            (RenameMode::Exchange, None) => Err(Error::NotFound),
            _ => Ok(Plan { from, to, mode, dirs, source, target }),
        }
    }

    /// Whether a directory gets another parent.
    fn moves_directory(&self, plan: &Plan<'_>) -> Result<bool> {
        if !plan.is_across() {
            return Ok(false);
        }
        if self.load_named(&plan.dirs[0], &plan.source)?.inode.is_dir() {
            return Ok(true);
        }
        match &plan.target {
            Some(target) if plan.mode == RenameMode::Exchange => {
                Ok(self.load_named(plan.to_dir(), target)?.inode.is_dir())
            }
            _ => Ok(false),
        }
    }

    /// `Invalid` if a directory would move into itself or below. No inode may be locked, but the
    /// lock of moves must be.
    fn check_ancestors(&self, plan: &Plan<'_>) -> Result<()> {
        self.check_not_below(plan.to.0, plan.source.ino)?;
        match plan.target {
            Some(target) if plan.mode == RenameMode::Exchange => {
                self.check_not_below(plan.from.0, target.ino)
            }
            _ => Ok(()),
        }
    }

    /// `Invalid` if `dir` is `top` or below it.
    fn check_not_below(&self, dir: Ino, top: Ino) -> Result<()> {
        // A circle is found out when it comes back to `mark`, which is set ever more rarely.
        let (mut at, mut mark, mut steps, mut next_mark) = (dir, None, 0_u64, 1);
        loop {
            if at == top {
                return Err(Error::Invalid("a directory cannot move into itself"));
            }
            if at == self.root_ino() {
                return Ok(());
            }
            let (handle, parent) = {
                let _lock = self.locks.shared(at);
                let handle = self.load_dir(at)?;
                (handle, directory::parent(&mut &*self, &handle)?)
            };
            if parent.is_none() || mark == parent {
                return Err(handle.corrupt("directory", "'..' does not lead to the root"));
            }
            steps += 1;
            if steps == next_mark {
                (mark, next_mark) = (Some(at), next_mark * 2);
            }
            at = parent.unwrap_or(at);
        }
    }

    /// Does what was planned; everything is locked.
    fn carry_out(&self, plan: &Plan<'_>, time: Option<Timestamp>) -> Result<()> {
        let source = self.load_named(&plan.dirs[0], &plan.source)?;
        let target = match &plan.target {
            Some(found) => Some(self.load_named(plan.to_dir(), found)?),
            None => None,
        };
        self.check_project(plan.to_dir(), &source)?;
        if let Some(target) = target.as_ref().filter(|_| plan.mode == RenameMode::Exchange) {
            self.check_project(&plan.dirs[0], target)?;
        }
        if let Some(target) = target.as_ref().filter(|_| plan.mode != RenameMode::Exchange) {
            self.check_replaceable(&source, target)?;
        }
        let before = Moved { source, target };
        let fate = self.atomically(|op| match plan.mode {
            RenameMode::Exchange => self.exchange(op, plan, &before, time).map(|()| Fate::Kept),
            RenameMode::Replace | RenameMode::NoReplace => self.replace(op, plan, &before, time),
        })?;
        self.reap(fate);
        Ok(())
    }

    /// Whether a name may go from `target` to `source`.
    fn check_replaceable(&self, source: &Handle, target: &Handle) -> Result<()> {
        match (source.inode.is_dir(), target.inode.is_dir()) {
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            (true, true) => self.require_empty(target),
            (false, false) => Ok(()),
        }
    }

    fn replace(
        &self,
        op: &mut Op<'_>,
        plan: &Plan<'_>,
        before: &Moved,
        time: Option<Timestamp>,
    ) -> Result<Fate> {
        let mut dirs = plan.dirs.clone();
        let to = dirs.len() - 1;
        let mut source = before.source;
        let entry = entry_of(plan.to.1, &source)?;
        let target_is_dir = before.target.is_some_and(|target| target.inode.is_dir());
        if target_is_dir {
            self.drop_subdirectory(&mut dirs[to]);
        }
        if plan.is_across() && source.inode.is_dir() {
            op.set_parent(&mut source, plan.from.0, plan.to.0)?;
            self.drop_subdirectory(&mut dirs[0]);
            self.add_subdirectory(&mut dirs[to])?;
        }
        match &plan.target {
            Some(found) => {
                op.replace_entry(&mut dirs[to], found, entry)?;
                op.remove_entry(&mut dirs[0], plan.from.1, &plan.source)?;
            }
            None => {
                op.remove_entry(&mut dirs[0], plan.from.1, &plan.source)?;
                op.add_entry(&mut dirs[to], entry)?;
            }
        }
        stage_dirs(op, plan, &dirs, time)?;
        stage_moved(op, source, time);
        let Some(target) = &before.target else { return Ok(Fate::Kept) };
        let gone = self.without_name(target, time);
        op.let_go(gone)
    }

    fn exchange(
        &self,
        op: &mut Op<'_>,
        plan: &Plan<'_>,
        before: &Moved,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let (Some(found), Some(mut target)) = (plan.target, before.target) else {
            return Err(Error::NotFound);
        };
        let mut dirs = plan.dirs.clone();
        let to = dirs.len() - 1;
        let mut source = before.source;
        let is_dir = [source.inode.is_dir(), target.inode.is_dir()];
        if plan.is_across() {
            if is_dir[0] {
                op.set_parent(&mut source, plan.from.0, plan.to.0)?;
            }
            if is_dir[1] {
                op.set_parent(&mut target, plan.to.0, plan.from.0)?;
            }
            if is_dir[0] != is_dir[1] {
                let (loses, gains) = if is_dir[0] { (0, to) } else { (to, 0) };
                self.drop_subdirectory(&mut dirs[loses]);
                self.add_subdirectory(&mut dirs[gains])?;
            }
        }
        op.replace_entry(&mut dirs[to], &found, entry_of(plan.to.1, &source)?)?;
        op.replace_entry(&mut dirs[0], &plan.source, entry_of(plan.from.1, &target)?)?;
        stage_dirs(op, plan, &dirs, time)?;
        stage_moved(op, source, time);
        stage_moved(op, target, time);
        Ok(())
    }
}

fn check_names(from: &[u8], to: &[u8], mode: RenameMode) -> Result<()> {
    const DOTS: Error = Error::Invalid("'.' and '..' cannot be renamed");
    if matches!(from, b"." | b"..") {
        return Err(DOTS);
    }
    match check_name(to) {
        Err(Error::Exists) if mode != RenameMode::NoReplace => Err(DOTS),
        other => other,
    }
}

fn entry_of<'n>(name: &'n [u8], inode: &Handle) -> Result<Entry<'n>> {
    Ok(Entry { name, ino: inode.ino(), file_type: inode.file_type()? })
}

/// Writes the directories of a rename when it commits.
fn stage_dirs(
    op: &mut Op<'_>,
    plan: &Plan<'_>,
    dirs: &[Handle],
    time: Option<Timestamp>,
) -> Result<()> {
    for (dir, before) in dirs.iter().zip(&plan.dirs) {
        let mut dir = *dir;
        if let Some(time) = time {
            touch(&mut dir.inode, time);
        }
        op.stage_dir(dir, before)?;
    }
    Ok(())
}

fn stage_moved(op: &mut Op<'_>, mut inode: Handle, time: Option<Timestamp>) {
    if let Some(time) = time {
        inode.inode.set_time(Time::Change, time);
    }
    op.stage(inode);
}
