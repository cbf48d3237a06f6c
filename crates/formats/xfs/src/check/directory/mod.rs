//! Checks directories in all forms.

mod blocks;
mod index;
mod reader;

use engine::Corruption;
use vfs::Ino;
use vfs::check::Finding;

use super::codes;
use super::inodes::Inodes;
use super::links::VisitedDirectory;
use crate::format::dir::short::Short;
use crate::format::extent::Extent;
use crate::format::inode::{Fork, ForkFormat, Inode};
pub(super) use reader::{Reader, Space, spaces};

/// Checks a directory whose extent map was walked.
pub(super) fn check(
    inodes: &Inodes<'_>,
    dir: &VisitedDirectory,
    inode: &Inode,
    extents: &[Extent],
) {
    let check = Check { inodes, dir };
    if inode.format() == ForkFormat::Local {
        check.short(inode);
    } else {
        check.blocks(inode, extents);
    }
}

struct Check<'d> {
    inodes: &'d Inodes<'d>,
    dir: &'d VisitedDirectory,
}

impl Check<'_> {
    fn fault(&self, code: &'static vfs::check::Code, detail: impl Into<String>) -> Finding {
        Finding::new(code).of_inode(self.dir.ino.0).detail(detail)
    }

    fn found(&self, finding: Finding) {
        self.inodes.ctx.found(finding);
    }

    fn damage(&self, code: &'static vfs::check::Code, damage: &Corruption) {
        self.inodes.ctx.damage(code, &damage.clone().of_inode(self.dir.ino.0), None);
    }

    fn entry(&self, name: &[u8], child: Ino, code: u8) {
        if !self.dir.is_unlinked {
            self.inodes.links.entry(self.dir, name, child, code);
        }
    }

    fn short(&self, inode: &Inode) {
        let geometry = &self.inodes.ctx.geometry;
        let size = inode.size() as usize;
        let bytes = inode.fork(Fork::Data).get(..size).unwrap_or_default();
        let short = match Short::parse(&self.inodes.layout, geometry, bytes) {
            Ok(short) => short,
            Err(damage) => {
                self.damage(codes::DIR_SHORT, &damage);
                return self.inodes.ctx.note_names_gap();
            }
        };
        self.inodes.links.dot_dot(self.dir, short.parent());
        let mut names: Vec<&[u8]> = Vec::new();
        for entry in short.entries() {
            self.entry(entry.name, entry.ino, entry.code);
            self.check_name(entry.name);
            names.push(entry.name);
        }
        names.sort_unstable();
        for two in names.windows(2).filter(|two| two[0] == two[1]) {
            self.found(self.fault(codes::DIR_TWICE, "two entries").named(two[0]));
        }
    }

    /// Reports entries named `.` or `..`.
    fn check_name(&self, name: &[u8]) {
        if matches!(name, b"." | b"..") {
            self.found(self.fault(codes::DIR_NAME, "an entry with that name").named(name));
        }
    }
}
