//! Groups added when a file system grows: like those that mkfs makes without log and inodes.

use vfs::Timestamp;
use zerocopy::IntoBytes;

use super::layout::{Layout, RootDirectory, TREES, agfl_len, place_roots};
use super::options::Inherited;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::geometry::Geometry;
use crate::format::superblock::{self, RawSuperblock, Superblock};

impl Layout {
    /// Returns the layout of an existing file system, limited to the parts that are the same in all groups, with its
    /// future superblock. Only valid for added groups.
    pub(crate) fn of_grown(sb: &Superblock) -> Self {
        let geometry = Geometry::new(sb);
        let (roots, body) = place_roots(&geometry);
        Self {
            superblock: sb.raw.clone(),
            geometry,
            roots,
            body,
            agfl_len: agfl_len(&geometry),
            log_ag: AgNumber(u32::MAX),
            log_unit: 1,
            log_len: 0,
            metadir_ag: None,
            root: RootDirectory {
                uid: 0,
                gid: 0,
                permissions: 0,
                time: Timestamp::default(),
                autofsck: None,
                inherited: Inherited::default(),
            },
            with_groups: None,
        }
    }

    /// Returns the future superblock, with its features.
    pub(crate) fn as_superblock(&self) -> Superblock {
        Superblock { raw: self.superblock.clone(), features: self.geometry.features }
    }

    /// Returns the number of blocks of a group that count as free, including those of its AGFL.
    pub(crate) fn free_in(&self, ag: AgNumber) -> u64 {
        let plan = self.ag(ag);
        let runs = plan.free.iter().map(|run| u64::from(run.len));
        u64::from(plan.agfl.len) + runs.sum::<u64>()
    }

    /// Returns the byte offset of a group on the device.
    pub(crate) fn start_of(&self, ag: AgNumber) -> u64 {
        self.geometry.byte_of(self.geometry.block_of(ag, AgBlock(0)))
    }

    /// Returns the initial contents of a group, headers and roots, and their byte offset on the device. All other bytes
    /// of these blocks are zero.
    pub(crate) fn group_start(&self, ag: AgNumber) -> (u64, Vec<u8>) {
        let plan = self.ag(ag);
        let block_log = self.geometry.block_log;
        let mut bytes = vec![0; (self.body as usize) << block_log];
        let copy = RawSuperblock { lsn: 0.into(), ..self.superblock.clone() };
        let copy = self.sector(copy.as_bytes(), superblock::CRC_OFFSET);
        let headers = [
            copy,
            self.agf_sector(ag, &plan),
            self.agi_sector(ag, &plan),
            self.agfl_sector(ag, &plan),
        ];
        let headers = headers.concat();
        bytes[..headers.len()].copy_from_slice(&headers);
        for (tree, _) in TREES {
            let Some(root) = self.roots[tree as usize] else { continue };
            let start = (root.0 as usize) << block_log;
            let contents = self.tree_root(ag, tree, root, &plan);
            bytes[start..start + contents.len()].copy_from_slice(&contents);
        }
        (self.start_of(ag), bytes)
    }
}
