//! Moving names.

use vfs::locks::InodeLocks;
use vfs::names::{self, Directories, Name, check_whiteout};
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, RenameMode, Result, Timestamp};

use crate::Ext4;
use crate::create::set_new;
use crate::dir::Entry;
use crate::format::inode::Time;
use crate::link::touch;
use crate::op::{Handle, Op};
use crate::orphan::Fate;
use crate::read::directory::{self, Found};

/// What a rename found with both directories locked.
type Plan<'n> = names::Plan<'n, Names>;

/// The inodes of a rename, locked and about to be changed.
struct Moved {
    source: Handle,
    target: Option<Handle>,
}

/// The directories of ext4.
pub(crate) struct Names;

impl Directories for Names {
    type Fs = Ext4;
    type Dir = Handle;
    type Found = Found;

    fn locks(fs: &Ext4) -> &InodeLocks {
        &fs.locks
    }

    fn root_directory(fs: &Ext4) -> Ino {
        fs.root_ino()
    }

    fn load_parent(fs: &Ext4, dir: Ino) -> Result<Handle> {
        fs.load_dir(dir)
    }

    fn find_named(fs: &Ext4, dir: &Handle, name: &[u8]) -> Result<Option<Found>> {
        fs.find_named(dir, name)
    }

    fn leads_to_directory(fs: &Ext4, dir: &Handle, found: &Found) -> Result<bool> {
        Ok(fs.load_named(dir, found)?.inode.is_dir())
    }

    fn parent_of(fs: &Ext4, dir: &Handle) -> Result<Option<Ino>> {
        directory::parent(&mut &*fs, dir)
    }

    fn generation_of(dir: &Handle) -> u32 {
        dir.inode.generation()
    }

    fn ino_of(found: &Found) -> Ino {
        found.ino
    }

    fn astray(dir: &Handle) -> Error {
        dir.corrupt("directory", "'..' does not lead to the root")
    }
}

impl Ext4 {
    pub(crate) fn rename_entry(
        &self,
        from: Name<'_>,
        to: Name<'_>,
        mode: RenameMode,
        whiteout: Option<&NewInode>,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.check_writable()?;
        check_whiteout(mode, whiteout)?;
        names::rename::<Names>(self, from, to, mode, |plan| self.carry_out(plan, whiteout, time))
    }

    /// Does what was planned; everything is locked.
    fn carry_out(
        &self,
        plan: &Plan<'_>,
        whiteout: Option<&NewInode>,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let source = self.load_named(&plan.dirs[0], &plan.source)?;
        let target = match &plan.target {
            Some(found) => Some(self.load_named(plan.to_dir(), found)?),
            None => None,
        };
        plan.dirs[0].protection().check_removal(source.protection())?;
        match &target {
            Some(target) => plan.to_dir().protection().check_removal(target.protection())?,
            None => plan.to_dir().protection().check_addition()?,
        }
        self.check_project(plan.to_dir(), &source)?;
        if let Some(target) = target.as_ref().filter(|_| plan.mode == RenameMode::Exchange) {
            self.check_project(&plan.dirs[0], target)?;
        }
        if let Some(target) = target.as_ref().filter(|_| plan.mode != RenameMode::Exchange) {
            self.check_replaceable(&source, target)?;
        }
        if let Some(new) = whiteout {
            let project = self.project_below(&plan.dirs[0]);
            self.provide_quota(Some(new.uid), Some(new.gid), Some(project))?;
        }
        let before = Moved { source, target };
        let fate = self.atomically(|op| match plan.mode {
            RenameMode::Exchange => self.exchange(op, plan, &before, time).map(|()| Fate::Kept),
            RenameMode::Replace | RenameMode::NoReplace => {
                self.replace(op, plan, &before, whiteout, time)
            }
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
        whiteout: Option<&NewInode>,
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
        // Entries are replaced where they were found, so the one that may move others is added last.
        if let Some(found) = &plan.target {
            op.replace_entry(&mut dirs[to], found, entry)?;
        }
        match whiteout {
            Some(new) => op.leave_whiteout(&mut dirs[0], plan, new)?,
            None => op.remove_entry(&mut dirs[0], plan.from.1, &plan.source)?,
        }
        if plan.target.is_none() {
            op.add_entry(&mut dirs[to], entry)?;
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

impl Op<'_> {
    /// Makes a whiteout, and gives it the old name, which leads to what moves.
    fn leave_whiteout(&mut self, dir: &mut Handle, plan: &Plan<'_>, new: &NewInode) -> Result<()> {
        let file_type = FileType::CharDevice;
        let mut whiteout = self.allocate_inode(dir, false)?;
        set_new(&mut whiteout.inode, file_type, new);
        self.fs.inherit_project(dir, &mut whiteout.inode);
        whiteout.inode.set_device(DeviceNumber::default());
        let entry = Entry { name: plan.from.1, ino: whiteout.ino(), file_type };
        self.replace_entry(dir, &plan.source, entry)?;
        self.stage_new(whiteout);
        Ok(())
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
