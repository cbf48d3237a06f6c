//! Moving names.

use smallvec::SmallVec;
use vfs::names::{self, Name, check_whiteout};
use vfs::{DeviceNumber, Error, FileType, Ino, NewInode, RenameMode, Result, Timestamp};

use super::entry::Names;
use super::link::touch;
use crate::Xfs;
use crate::attr::parent::Link;
use crate::dir::Entry;
use crate::format::inode::Time;
use crate::inherit::inherit_flags;
use crate::inode::Handle;
use crate::op::Op;
use crate::unlinked::Fate;

/// What a rename found with both directories locked.
type Plan<'n> = names::Plan<'n, Names>;

/// The directories of a rename, as they are to be; the second one only if it is another.
type Dirs = SmallVec<[Handle; 2]>;

/// The inodes of a rename, locked and about to be changed, and the links that lead to them.
struct Moved<'n> {
    source: Handle,
    target: Option<Handle>,
    from: Link<'n>,
    to: Link<'n>,
}

impl Xfs {
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
        match &target {
            Some(target) if plan.mode == RenameMode::Exchange => {
                self.check_project(&plan.dirs[0], target)?;
            }
            Some(target) => self.check_replaceable(&source, target)?,
            None => {}
        }
        let from = Link::new(&plan.dirs[0], plan.from.1);
        let before = Moved { source, target, from, to: Link::new(plan.to_dir(), plan.to.1) };
        let fate = self.atomically(|op| match plan.mode {
            RenameMode::Exchange => op.exchange_names(plan, &before, time).map(|()| Fate::Kept),
            RenameMode::Replace | RenameMode::NoReplace => {
                op.replace_name(plan, &before, whiteout, time)
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
}

impl Op<'_> {
    fn replace_name(
        &mut self,
        plan: &Plan<'_>,
        before: &Moved<'_>,
        whiteout: Option<&NewInode>,
        time: Option<Timestamp>,
    ) -> Result<Fate> {
        let mut dirs: Dirs = plan.dirs.clone();
        let to = dirs.len() - 1;
        let mut source = before.source.clone();
        let entry = entry_of(plan.to.1, &source)?;
        if before.target.as_ref().is_some_and(|target| target.inode.is_dir()) {
            dirs[to].drop_subdirectory();
        }
        if plan.is_across() && source.inode.is_dir() {
            self.set_dot_dot(&mut source, plan.to.0)?;
            dirs[0].drop_subdirectory();
            dirs[to].add_subdirectory()?;
        }
        if plan.target.is_some() {
            self.replace_entry(&mut dirs[to], entry)?;
        }
        match whiteout {
            Some(new) => self.leave_whiteout(&mut dirs[0], before.from, new)?,
            None => {
                self.remove_entry(&mut dirs[0], plan.from.1, plan.source.spot.as_ref())?;
            }
        }
        if plan.target.is_none() {
            self.add_entry(&mut dirs[to], entry)?;
        }
        self.replace_parent(&mut source, before.from, before.to)?;
        self.stage_dirs(dirs, time);
        self.stage_moved(source, time);
        match &before.target {
            Some(target) => self.take_name(target, before.to, time),
            None => Ok(Fate::Kept),
        }
    }

    /// Makes a whiteout, and gives it the old name, which leads to what moves.
    fn leave_whiteout(&mut self, dir: &mut Handle, link: Link<'_>, new: &NewInode) -> Result<()> {
        let file_type = FileType::CharDevice;
        let mut whiteout = self.allocate_inode(dir, false)?;
        self.set_new(&mut whiteout.inode, file_type, new);
        self.fs.inherit_project(dir, &mut whiteout.inode);
        inherit_flags(dir, &mut whiteout.inode);
        let fits = whiteout.inode.set_device(DeviceNumber::default());
        debug_assert!(fits, "0:0 is a device number in every format");
        self.replace_entry(dir, Entry { name: link.name, ino: whiteout.ino(), file_type })?;
        self.add_parent(&mut whiteout, link)?;
        self.stage(whiteout);
        Ok(())
    }

    fn exchange_names(
        &mut self,
        plan: &Plan<'_>,
        before: &Moved<'_>,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let mut dirs: Dirs = plan.dirs.clone();
        let to = dirs.len() - 1;
        let mut source = before.source.clone();
        let mut target = before.target.clone().ok_or(Error::NotFound)?;
        let is_dir = [source.inode.is_dir(), target.inode.is_dir()];
        if plan.is_across() {
            if is_dir[0] {
                self.set_dot_dot(&mut source, plan.to.0)?;
            }
            if is_dir[1] {
                self.set_dot_dot(&mut target, plan.from.0)?;
            }
            if is_dir[0] != is_dir[1] {
                let (loses, gains) = if is_dir[0] { (0, to) } else { (to, 0) };
                dirs[loses].drop_subdirectory();
                dirs[gains].add_subdirectory()?;
            }
        }
        self.replace_entry(&mut dirs[to], entry_of(plan.to.1, &source)?)?;
        self.replace_entry(&mut dirs[0], entry_of(plan.from.1, &target)?)?;
        self.replace_parent(&mut source, before.from, before.to)?;
        self.replace_parent(&mut target, before.to, before.from)?;
        self.stage_dirs(dirs, time);
        self.stage_moved(source, time);
        self.stage_moved(target, time);
        Ok(())
    }

    /// Makes `..` of a directory lead to another one.
    fn set_dot_dot(&mut self, dir: &mut Handle, parent: Ino) -> Result<()> {
        let file_type = FileType::Directory;
        self.replace_entry(dir, Entry { name: b"..", ino: parent, file_type })?;
        Ok(())
    }

    /// Writes the directories of a rename when it commits.
    fn stage_dirs(&mut self, dirs: Dirs, time: Option<Timestamp>) {
        for mut dir in dirs {
            if let Some(time) = time {
                touch(&mut dir.inode, time);
            }
            self.stage(dir);
        }
    }

    fn stage_moved(&mut self, mut handle: Handle, time: Option<Timestamp>) {
        if let Some(time) = time {
            handle.inode.set_time(Time::Change, time);
        }
        self.stage(handle);
    }
}

fn entry_of<'n>(name: &'n [u8], inode: &Handle) -> Result<Entry<'n>> {
    Ok(Entry { name, ino: inode.ino(), file_type: inode.file_type()? })
}
