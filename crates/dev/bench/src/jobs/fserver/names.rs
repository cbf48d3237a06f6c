//! The jobs on names: creating, linking and removing files, looking them up, reading a directory.

use super::task::{SOURCES, SYSTEM_FILES, Task};
use crate::error::{Error, Result};
use crate::target::Target;

/// Number of times that `creat_clo` creates its file.
const CREATES: u32 = 1000;
/// Number of `stat` steps of `disk_src`.
const STATS: u32 = 57;
/// Number of create-and-remove steps of `disk_src`.
const COMINGS: u32 = 43;
/// Number of times that `link_test` removes and recreates each of its links.
const LINK_ROUNDS: u32 = 9;
const LINKS: [&[u8]; 7] =
    [b"link-1", b"link-2", b"link-3", b"link-4", b"link-5", b"link-6", b"link-7"];

impl<T: Target> Task<'_, T> {
    pub(super) fn creat_clo(&mut self) -> Result<()> {
        const NAME: &[u8] = b"created";
        for _ in 0..CREATES {
            let file = self.target.create(&self.dir, NAME, true)?;
            self.target.close(file)?;
        }
        self.target.unlink(&self.dir, NAME)
    }

    pub(super) fn link_test(&mut self) -> Result<()> {
        const NAME: &[u8] = b"linked";
        let (target, dir) = (self.target, &self.dir);
        target.close(target.create(dir, NAME, true)?)?;
        LINKS.iter().try_for_each(|link| target.link(dir, NAME, link))?;
        for _ in 0..LINK_ROUNDS {
            for link in LINKS {
                target.unlink(dir, link)?;
                target.link(dir, NAME, link)?;
            }
        }
        LINKS.iter().try_for_each(|link| target.unlink(dir, link))?;
        target.unlink(dir, NAME)
    }

    pub(super) fn dir_rtns_1(&mut self) -> Result<()> {
        for _ in 0..2 {
            let count = self.shared.count(&self.shared.system)?;
            if count != SYSTEM_FILES {
                let what = format!("a directory of {SYSTEM_FILES} files lists {count}");
                return Err(Error::Wrong(what));
            }
        }
        Ok(())
    }

    pub(super) fn disk_src(&mut self) -> Result<()> {
        const NAME: &[u8] = b"scratch.c";
        let (mut stats, mut comings) = (STATS, COMINGS);
        while stats + comings > 0 {
            // Draws one of the remaining steps.
            if self.random.u32(..stats + comings) < stats {
                stats -= 1;
                let name = &self.shared.sources[self.random.u32(..SOURCES) as usize];
                self.target.stat(&self.src, name)?;
            } else {
                comings -= 1;
                let file = self.target.create(&self.src, NAME, true)?;
                self.target.close(file)?;
                self.target.unlink(&self.src, NAME)?;
            }
        }
        Ok(())
    }
}
