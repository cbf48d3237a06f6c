//! Checks fields of inodes, by themselves and against the superblock's features.

use vfs::check::Finding;
use vfs::{FileType, Ino};

use super::codes;
use super::context::Context;
use super::links::special_inodes;
use super::realtime::{file_size, group_file_size};
use crate::format::address::AgIno;
use crate::format::bytes::{be16, be32, be64};
use crate::format::extent::LEN_MAX;
use crate::format::features::{Features, Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode, flags, flags2};
use crate::format::metafile::{self, MetafileType};

/// `XFS_DIFLAG_NEWRTBM`: marks the realtime bitmap.
const NEWRTBM: u16 = 1 << 2;
/// All known flags.
const FLAGS: u16 = 0x7fff;
const DIRECTORY_FLAGS: u16 =
    flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
const FLAGS2: u64 = flags2::DAX
    | flags2::REFLINK
    | flags2::COWEXTSIZE
    | flags2::BIGTIME
    | flags2::NREXT64
    | flags2::METADATA;
const NSEC_PER_SEC: u32 = 1_000_000_000;
/// Size of a data fork with a device number, in bytes.
const DEVICE_FORK: usize = 8;

/// Maximum length of an extent, and so of an extent size hint, in blocks (`MAXEXTLEN`).
const HINT_MAX: u32 = (1 << 21) - 1;

/// Checks a free slot whose structure was verified.
pub(super) fn check_free(ctx: &Context<'_>, ino: Ino, slot: &[u8]) {
    let inode = Inode::from_slot(slot);
    let finding = |field| Finding::new(codes::INODE_FREE).of_inode(ino.0).field(field);
    for (field, value) in [
        ("di_nlink", inode.nlink().into()),
        ("di_onlink", be16(slot, 6).into()),
        ("di_nblocks", inode.nblocks()),
        ("di_nextents", inode.extents(Fork::Data)),
        ("di_anextents", inode.extents(Fork::Attr)),
        ("di_forkoff", inode.forkoff_bytes() as u64),
    ] {
        if value != 0 && slot[4] >= 2 {
            ctx.found(finding(field).mismatch(0, value));
        }
    }
    // Kernels do not reset the size.
    if i64::try_from(inode.size()).is_err() {
        ctx.found(finding("di_size").mismatch("a size", inode.size()));
    }
    // Extent size hints may remain if they are valid.
    let hint_max = HINT_MAX.min(ctx.geometry.ag_blocks / 2);
    let hints =
        [("di_extsize", inode.extent_size_hint()), ("di_cowextsize", inode.cow_extent_size_hint())];
    for (field, value) in hints.into_iter().filter(|(_, value)| *value > hint_max && slot[4] >= 2) {
        ctx.found(finding(field).mismatch(format_args!("at most {hint_max}"), value));
    }
    let is_large = inode.flags2() & flags2::NREXT64 != 0;
    let pad = if is_large { be16(slot, 80).into() } else { be64(slot, 24) };
    if slot[4] == 3 && pad != 0 {
        ctx.found(finding("di_v3_pad").mismatch(0, pad));
    }
    if !is_next_unlinked_right(&ctx.geometry, ino, &inode) {
        ctx.found(finding("di_next_unlinked").mismatch("none", inode.next_unlinked()));
    }
    // mkfs leaves them zero.
    for (field, format) in [("di_format", slot[5]), ("di_aformat", slot[83])] {
        if !matches!(format, 0 | 2) {
            ctx.found(finding(field).mismatch("0 or 2", format));
        }
    }
    // Freeing clears all others.
    let allowed = flags2_of(&ctx.geometry.features) & (flags2::BIGTIME | flags2::NREXT64);
    if inode.flags2() & !allowed != 0 || inode.flags() != 0 {
        let found = format!("{:#x}, {:#x}", inode.flags(), inode.flags2());
        ctx.found(finding("di_flags").mismatch("known flags", found));
    }
}

/// Returns whether the link of the unlinked list may be there. Only inodes without links have one, but in version 4
/// others may keep an old one. Lists are checked elsewhere.
pub(crate) fn is_next_unlinked_right(geometry: &Geometry, ino: Ino, inode: &Inode) -> bool {
    let next = inode.next_unlinked();
    if next == u32::MAX {
        return true;
    }
    if geometry.features.crc() {
        return inode.mode() != 0 && inode.nlink() == 0;
    }
    geometry.split_ino(ino).is_some_and(|(ag, _)| {
        let ino = geometry.ino(ag, AgIno(next));
        geometry.split_ino(ino) == Some((ag, AgIno(next)))
    })
}

struct Fields<'f> {
    ctx: &'f Context<'f>,
    ino: Ino,
}

impl Fields<'_> {
    fn require(&self, is_right: bool, field: &'static str, expected: &str, found: u64) {
        if !is_right {
            let finding = Finding::new(codes::INODE_FIELD).of_inode(self.ino.0).field(field);
            self.ctx.found(finding.mismatch(expected, format_args!("{found:#x}")));
        }
    }
}

/// Checks the fields of an inode in use whose structure was verified.
pub(super) fn check_used(ctx: &Context<'_>, ino: Ino, inode: &Inode, file_type: FileType) {
    let fields = Fields { ctx, ino };
    check_type(&fields, inode, file_type);
    check_flags(&fields, inode, file_type);
    check_times(&fields, inode);
    check_hints(&fields, inode, file_type);
    check_sizes(&fields, inode, file_type);
    // A directory is linked by its name and `.`; only an open one without a name has no links.
    let is_linked = file_type != FileType::Directory || inode.nlink() != 1;
    fields.require(is_linked, "di_nlink", "0, or at least 2 for a directory", inode.nlink().into());
    let slot = inode.as_bytes();
    if inode.is_metadata() {
        check_metadata(&fields, inode, file_type);
    } else {
        let old_links = be16(slot, 6);
        fields.require(slot[4] < 2 || old_links == 0, "di_onlink", "0", old_links.into());
    }
    if ctx.geometry.features.crc() {
        let large = inode.flags2() & flags2::NREXT64 != 0;
        if large {
            let pad = be16(slot, 80);
            fields.require(pad == 0, "di_nrext64_pad", "0", pad.into());
        } else {
            let pad = be64(slot, 24);
            fields.require(pad == 0, "di_v3_pad", "0", pad);
        }
    }
    if !inode.has_attr_fork() {
        let format = slot[83];
        fields.require(format == 2, "di_aformat", "2", format.into());
    } else if is_special(file_type) {
        let at = inode.forkoff_bytes();
        fields.require(at == DEVICE_FORK, "di_forkoff", "1", (at / 8) as u64);
    }
}

/// Checks what all inodes of the metadata directory have in common. Kernels refuse to load others.
fn check_metadata(fields: &Fields<'_>, inode: &Inode, file_type: FileType) {
    let is_dir = file_type == FileType::Directory;
    let is_type = is_dir || file_type == FileType::Regular;
    let permissions = inode.mode() & 0o7777;
    fields.require(
        is_type && permissions == 0,
        "di_mode",
        "a regular file or directory without permissions",
        inode.mode().into(),
    );
    fields.require(inode.uid() == 0, "di_uid", "0", inode.uid().into());
    fields.require(inode.gid() == 0, "di_gid", "0", inode.gid().into());
    let own = if is_dir { metafile::DIRECTORY_FLAGS } else { metafile::FILE_FLAGS };
    let found = inode.flags();
    fields.require(found & own == own, "di_flags", "the flags of metadata", found.into());
    let known = MetafileType::from_number(inode.metatype_number());
    let is_known = known.is_some_and(|known| {
        known != MetafileType::Unknown && (known == MetafileType::Directory) == is_dir
    });
    fields.require(
        is_known,
        "di_metatype",
        "the type of a metadata file",
        inode.metatype_number().into(),
    );
    let unused = [
        ("di_dmevmask", be32(inode.as_bytes(), 84)),
        ("di_dmstate", be16(inode.as_bytes(), 88).into()),
    ];
    for (field, found) in unused {
        fields.require(found == 0, field, "0", found.into());
    }
    // Kernels store records without extending the file.
    let is_quota = known.is_some_and(MetafileType::is_quota);
    fields.require(!is_quota || inode.size() == 0, "di_size", "0", inode.size());
    // Files of realtime groups have the number of their group there.
    let has_group = known.is_some_and(|known| known >= MetafileType::RtBitmap);
    let project = inode.projid();
    fields.require(has_group || project == 0, "di_projid", "0", project.into());
}

/// Returns whether the data fork of such a file is a device number or empty.
const fn is_special(file_type: FileType) -> bool {
    !matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
}

fn check_flags(fields: &Fields<'_>, inode: &Inode, file_type: FileType) {
    let (ctx, found) = (fields.ctx, inode.flags());
    let known = match is_realtime_bitmap(ctx, fields.ino) {
        true => FLAGS,
        false => FLAGS & !NEWRTBM,
    };
    let is_dir = file_type == FileType::Directory;
    let of_type = if is_dir { !flags::EXTSIZE } else { !DIRECTORY_FLAGS };
    let of_type = match file_type {
        FileType::Regular | FileType::Directory => of_type,
        _ => of_type & !flags::EXTSIZE,
    };
    let has_realtime = file_type == FileType::Regular
        && ctx.geometry.realtime.is_some()
        && !inode.is_metadata()
        && special_inodes(ctx).all(|special| special != fields.ino);
    let allowed = known & of_type & if has_realtime { !0 } else { !flags::REALTIME };
    let bad = found & !allowed;
    fields.require(bad == 0, "di_flags", "flags that match it", found.into());
    let mut allowed = flags2_of(&ctx.geometry.features);
    if file_type != FileType::Regular {
        allowed &= !flags2::REFLINK;
    }
    if file_type != FileType::Regular && !is_dir {
        allowed &= !(flags2::COWEXTSIZE | flags2::DAX);
    }
    if inode.is_metadata() {
        allowed &= !(flags2::DAX | flags2::COWEXTSIZE | flags2::REFLINK);
    }
    let bad = inode.flags2() & !allowed;
    fields.require(bad == 0, "di_flags2", "flags that match it", inode.flags2());
}

fn has_metadir(ctx: &Context<'_>) -> bool {
    ctx.geometry.features.incompat(Incompat::METADIR)
}

fn is_realtime_bitmap(ctx: &Context<'_>, ino: Ino) -> bool {
    !has_metadir(ctx) && ino.0 == ctx.sb.raw.rbmino.get()
}

/// Returns the allowed `di_flags2` in an image with these features.
fn flags2_of(features: &Features) -> u64 {
    let mut allowed = FLAGS2;
    if !features.incompat(Incompat::BIGTIME) {
        allowed &= !flags2::BIGTIME;
    }
    if !features.incompat(Incompat::NREXT64) {
        allowed &= !flags2::NREXT64;
    }
    if !features.incompat(Incompat::METADIR) {
        allowed &= !flags2::METADATA;
    }
    if !features.ro_compat(RoCompat::REFLINK) {
        allowed &= !(flags2::REFLINK | flags2::COWEXTSIZE);
    }
    allowed
}

fn check_times(fields: &Fields<'_>, inode: &Inode) {
    if inode.flags2() & flags2::BIGTIME != 0 {
        return;
    }
    let slot = inode.as_bytes();
    let created: &[_] = if slot[4] == 3 { &[(144, "di_crtime")] } else { &[] };
    let times = [(32, "di_atime"), (40, "di_mtime"), (48, "di_ctime")];
    for (at, field) in times.iter().chain(created) {
        let nsec = be32(slot, at + 4);
        fields.require(nsec < NSEC_PER_SEC, field, "less than a second", nsec.into());
    }
}

fn check_hints(fields: &Fields<'_>, inode: &Inode, file_type: FileType) {
    let geometry = &fields.ctx.geometry;
    let on_realtime = geometry.realtime.filter(|_| inode.is_realtime());
    let check = |field, blocks: u32, is_set: bool| {
        let most = match on_realtime {
            Some(_) => LEN_MAX,
            None => u64::from(geometry.ag_blocks / 2).min(LEN_MAX),
        };
        let is_right = match is_set {
            true => blocks > 0 && u64::from(blocks) <= most,
            false => blocks == 0,
        };
        fields.require(is_right, field, "the format that its flags require", blocks.into());
    };
    let is_set = inode.flags() & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0;
    if matches!(file_type, FileType::Regular | FileType::Directory) || !is_set {
        check("di_extsize", inode.extent_size_hint(), is_set);
    }
    if let Some(realtime) = on_realtime {
        let hint = inode.extent_size_hint();
        let is_right = hint.is_multiple_of(realtime.extent_blocks());
        fields.require(is_right, "di_extsize", "a multiple of the realtime extent", hint.into());
    }
    // The field is the zone's counter of used blocks (`di_used_blocks`), which is compared with the reverse map.
    let is_zone = geometry.realtime.is_some_and(|it| it.is_zoned())
        && inode.metafile_type() == MetafileType::RtRmap;
    if geometry.features.crc() && !is_zone {
        let is_set = inode.flags2() & flags2::COWEXTSIZE != 0;
        check("di_cowextsize", inode.cow_extent_size_hint(), is_set);
    }
}

/// Checks that the inodes of a realtime device are regular files, of no project: kernels read the number of a realtime
/// group there.
fn check_type(fields: &Fields<'_>, inode: &Inode, file_type: FileType) {
    let raw = &fields.ctx.sb.raw;
    let is_of_section =
        !has_metadir(fields.ctx) && [raw.rbmino.get(), raw.rsumino.get()].contains(&fields.ino.0);
    let is_file = file_type == FileType::Regular || !is_of_section;
    fields.require(is_file, "di_mode", "the mode of a regular file", inode.mode().into());
    let project = inode.projid();
    let is_right = project == 0 || fields.ctx.geometry.realtime.is_none() || !is_of_section;
    fields.require(is_right, "di_projid", "0", project.into());
}

fn check_sizes(fields: &Fields<'_>, inode: &Inode, file_type: FileType) {
    let size = inode.size();
    match file_type {
        FileType::Regular => {
            // The realtime bitmap and summary are empty without a realtime device.
            let ctx = fields.ctx;
            let layout = ctx.geometry.realtime.map(|realtime| realtime.space(0));
            let expected = match inode.is_metadata() {
                true => {
                    group_file_size(inode.metafile_type(), layout.as_ref(), ctx.sb.raw.blocklog)
                }
                // Kernels store quotas without extending the file.
                false if ctx.sb.raw.quota_inodes().contains(&fields.ino.0) => Some(0),
                false => file_size(&ctx.sb.raw, layout.as_ref(), fields.ino),
            };
            let expected = expected.unwrap_or(size);
            if size != expected {
                fields.require(false, "di_size", &format!("{expected:#x}"), size);
            }
        }
        FileType::Directory | FileType::Symlink => {
            let is_right = size > 0 || inode.nlink() == 0;
            fields.require(is_right, "di_size", "more than 0", size);
        }
        _ => fields.require(size == 0, "di_size", "0", size),
    }
    let is_listed =
        |fork| matches!(inode.fork_format(fork), ForkFormat::Extents | ForkFormat::Btree);
    for (fork, field) in [(Fork::Data, "di_nextents"), (Fork::Attr, "di_anextents")] {
        let extents = inode.extents(fork);
        fields.require(is_listed(fork) || extents == 0, field, "0", extents);
    }
}
