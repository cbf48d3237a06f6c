//! Repairs extended attributes: stores all readable ones again.

use std::collections::{BTreeMap, HashSet};

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Ino, Result};

use super::RepairJob;
use super::engine::{self, Session};
use super::map;
use crate::XfsCore;
use crate::check::codes;
use crate::check::view::{View, view};
use crate::format::address::{Block, FileBlock};
use crate::format::attr::leaf::{AttrLeafEntry, Value, parent_of};
use crate::format::attr::{
    AttrLayout, BlockType, VALUE_LEN_MAX, acl, flags, leaf, remote, shortform,
};
use crate::format::bytes::be64;
use crate::format::extent::Extent;
use crate::format::features::Incompat;
use crate::format::inode::{Fork, ForkFormat, Inode};

/// Names of access control lists on disk.
const ACLS: [&[u8]; 2] = [b"SGI_ACL_FILE", b"SGI_ACL_DEFAULT"];
/// Byte offset of the owner in leaves and nodes of version 5.
const OWNER_OFFSET: usize = 48;
/// Byte offset of the checksum in leaves and nodes.
const CRC_OFFSET: usize = 12;
/// Number of attributes set in one operation.
const AT_ONCE: usize = 16;
/// Maximum total size of the attributes kept for one inode, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// A stored attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    pub(super) namespace: u8,
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Reads all readable attributes.
struct Reader<'r, 's> {
    view: &'r View<'s>,
    ino: Ino,
    extents: Vec<Extent>,
    layout: AttrLayout,
    met: HashSet<(u8, Vec<u8>, Option<Vec<u8>>)>,
    found: Vec<Attribute>,
    bytes: usize,
}

/// Returns all readable attributes of an inode.
pub(super) fn read(view: &View<'_>, ino: Ino, inode: &Inode) -> Vec<Attribute> {
    let mut reader = Reader {
        view,
        ino,
        extents: map::read(view, ino, inode, Fork::Attr).extents,
        layout: AttrLayout::new(view.geometry()),
        met: HashSet::new(),
        found: Vec::new(),
        bytes: 0,
    };
    match inode.attr_format() {
        Some(ForkFormat::Local) => reader.short(inode.fork(Fork::Attr)),
        Some(_) => reader.blocks(),
        None => {}
    }
    reader.found
}

impl Reader<'_, '_> {
    fn add(&mut self, entry_flags: u8, name: &[u8], value: &[u8]) {
        let namespace = entry_flags & flags::NAMESPACE;
        let features = &self.view.geometry().features;
        let is_parent = namespace == flags::PARENT;
        let is_acl = namespace == flags::ROOT && ACLS.contains(&name);
        let can_be = match namespace {
            flags::PARENT => {
                features.incompat(Incompat::PARENT)
                    && parent_of(value).is_some()
                    && !name.contains(&b'/')
            }
            _ => namespace.count_ones() <= 1 && (!is_acl || acl::acl_to_linux(value).is_some()),
        };
        if !can_be || name.is_empty() || name.contains(&0) {
            return;
        }
        let key = (namespace, name.to_vec(), is_parent.then(|| value.to_vec()));
        self.bytes += name.len() + value.len();
        if self.bytes <= BYTES_MAX && self.met.insert(key) {
            let (name, value) = (name.to_vec(), value.to_vec());
            self.found.push(Attribute { namespace, name, value });
        }
    }

    fn short(&mut self, fork: &[u8]) {
        // The count and the total size may be wrong, so entries are read as long as they are valid.
        let mut at = shortform::HEADER_SIZE;
        let said = shortform::total(fork).unwrap_or(fork.len());
        let end = if said > shortform::HEADER_SIZE { said } else { fork.len() };
        while let Some(&[name_len, value_len, entry_flags]) = fork.get(at..at + 3) {
            let name_end = at + 3 + usize::from(name_len);
            let value_end = name_end + usize::from(value_len);
            let known = entry_flags & !flags::NAMESPACE == 0;
            if name_len == 0 || value_end > end || !known {
                at += 1;
                if at >= end {
                    return;
                }
                continue;
            }
            self.add(entry_flags, &fork[at + 3..name_end], &fork[name_end..value_end]);
            at = value_end;
        }
    }

    fn locate(&self, at: u32) -> Option<Block> {
        let at = FileBlock(at.into());
        let index = self.extents.partition_point(|extent| extent.end() <= at);
        let extent = self.extents.get(index).filter(|extent| extent.offset <= at)?;
        let geometry = self.view.geometry();
        Some(geometry.device_block(extent.start.plus(at.0 - extent.offset.0)))
    }

    fn blocks(&mut self) {
        let all: Vec<(u64, u64)> =
            self.extents.iter().map(|extent| (extent.offset.0, extent.end().0)).collect();
        let mut data = vec![0; self.layout.block_size];
        // Damaged blocks come last, so that they do not replace anything.
        for takes_poor in [false, true] {
            for at in all.iter().flat_map(|(from, to)| *from..*to) {
                let Some(place) = u32::try_from(at).ok().and_then(|at| self.locate(at)) else {
                    continue;
                };
                if !self.view.read(place, &mut data)
                    || self.layout.block_type(&data) != Some(BlockType::Leaf)
                {
                    continue;
                }
                let owner = Ino(be64(&data, OWNER_OFFSET));
                let is_own = !self.layout.crc || owner == self.ino;
                if !is_own && self.view.is_used(owner) == Some(true) {
                    continue;
                }
                let is_right = is_own && (!self.layout.crc || map::is_sealed(&data, CRC_OFFSET));
                if is_right != takes_poor {
                    self.leaf(&data);
                }
            }
        }
    }

    fn leaf(&mut self, data: &[u8]) {
        let layout = self.layout;
        let entries = (0..leaf::count(layout, data)).filter_map(|at| leaf::entry(layout, data, at));
        let entries: Vec<AttrLeafEntry<'_>> = entries.filter(AttrLeafEntry::is_complete).collect();
        for entry in entries {
            match entry.value {
                Value::Local(value) => self.add(entry.flags, entry.name, value),
                Value::Remote(place) => {
                    if let Some(value) = self.remote(place) {
                        self.add(entry.flags, entry.name, &value);
                    }
                }
            }
        }
    }

    fn remote(&self, place: remote::ValueLocation) -> Option<Vec<u8>> {
        let (layout, len) = (self.layout, place.len as usize);
        if place.block == 0 || len == 0 || len > VALUE_LEN_MAX {
            return None;
        }
        let (mut value, mut data) = (Vec::new(), vec![0; layout.block_size]);
        for nth in 0..remote::blocks(layout, len) {
            let block = self.locate(place.block.checked_add(nth)?)?;
            if !self.view.read(block, &mut data) {
                return None;
            }
            let geometry = self.view.geometry();
            remote::verify_structure(geometry, self.ino.0, block, &data).ok()?;
            let part = (len - value.len()).min(remote::bytes_per_block(layout));
            value.extend_from_slice(remote::part(layout, &data, value.len(), part).ok()?);
        }
        Some(value)
    }
}

/// Rebuilds the attributes of inodes.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    // Invalid parent pointers are unreadable attributes; the others are repaired from names.
    let is_own =
        |finding: &&&Finding| finding.code != codes::PARENT || finding.place.name.is_some();
    let findings: Vec<&Finding> = findings.iter().filter(is_own).copied().collect();
    let inodes = by_inode(&findings);
    let all = view(job.staging.clone(), |view| {
        let read = |ino: &u64| Some((Ino(*ino), read(view, Ino(*ino), &view.inode(Ino(*ino))?)));
        inodes.keys().filter_map(read).collect::<Vec<_>>()
    });
    let Ok(all) = all else { return Ok(()) };
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let actions = |(ino, attributes): &(Ino, Vec<Attribute>)| {
        let what = match attributes.len() {
            1 => "The one readable attribute is kept and rewritten.".to_owned(),
            count => format!("The {count} readable attributes are kept and rewritten."),
        };
        inodes[&ino.0].iter().take(1).map(|finding| Action::about(finding, what.clone())).collect()
    };
    session.steps(&all, actions, |fs, (ino, attributes)| make(fs, *ino, attributes));
    Ok(())
}

/// Groups findings by their inode.
pub(super) fn by_inode<'f>(findings: &[&'f Finding]) -> BTreeMap<u64, Vec<&'f Finding>> {
    let mut inodes: BTreeMap<u64, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        if let Some(ino) = finding.place.inode {
            inodes.entry(ino).or_default().push(finding);
        }
    }
    inodes
}

/// Replaces all attributes of an inode.
pub(super) fn make(fs: &XfsCore, ino: Ino, attributes: &[Attribute]) -> Result<()> {
    engine::change(fs, ino, |op, handle| op.empty_attrs(handle))?;
    for some in attributes.chunks(AT_ONCE) {
        engine::change(fs, ino, |op, handle| {
            for attribute in some {
                let Attribute { namespace, name, value } = attribute;
                op.set_stored_attr(handle, *namespace, name, value)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
