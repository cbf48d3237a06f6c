//! Logs with records that the input describes.

use std::sync::{Arc, LazyLock};

use disk::{BlockDevice, MemoryDevice};
use vfs::FileSystem;
use xfs::format::address::FsBlock;
use xfs::format::geometry::Geometry;
use xfs::format::log::build::{RecordBuilder, RecordPlace};
use xfs::format::log::{BLOCK_SIZE, Lsn};
use xfs::format::superblock::Superblock;
use xfs::{OpenOptions, Xfs, log_end, recover_log};

use super::common::image::{device, golden};

struct Base {
    image: MemoryDevice,
    sb: Superblock,
    /// First byte and number of blocks of the log.
    start: u64,
    blocks: u32,
    /// Position of the next record.
    head: Lsn,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let image = device(&golden("default"));
    let mut sector = [0; 512];
    image.read_at(0, &mut sector).expect("memory does not fail");
    let sb = Superblock::parse(&sector, image.len()).expect("a golden image");
    let geometry = Geometry::new(&sb);
    let start = geometry.byte_of(geometry.device_block(FsBlock(sb.raw.logstart.get())));
    let blocks = (sb.raw.logblocks.get() << sb.raw.blocklog) / BLOCK_SIZE as u32;
    let end = log_end(&image, &sb).expect("memory does not fail").expect("a log");
    let cycle = end.last.map_or(1, |last| last.lsn.cycle);
    let head = Lsn { cycle, block: end.head };
    Base { image, sb, start, blocks, head }
});

/// Replays a log. The input is a list of operations: one byte each for transaction and flags (the high bit of the
/// first ends the record), one for the length, and the contents. Transactions start implicitly.
pub fn replay(input: &[u8]) {
    let base = &*BASE;
    let image = base.image.fork();
    let mut lsn = base.head;
    let mut record = RecordBuilder::new(32 << 10, 1, 32 << 10, 512);
    let mut rest = input;
    let write = |record: &mut RecordBuilder, lsn: &mut Lsn| {
        let place = RecordPlace {
            lsn: *lsn,
            tail: base.head,
            previous: None,
            uuid: base.sb.raw.uuid,
            log_blocks: base.blocks,
        };
        let bytes = record.finish(&place);
        let fits = lsn.block as usize + bytes.len() / BLOCK_SIZE < base.blocks as usize;
        if fits {
            let at = base.start + u64::from(lsn.block) * BLOCK_SIZE as u64;
            image.write_at(at, bytes).expect("memory does not fail");
            lsn.block += (bytes.len() / BLOCK_SIZE) as u32;
        }
        record.clear();
    };
    while let [tid, flags, len, more @ ..] = rest {
        let (contents, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        if tid & 0x80 != 0 || !record.fits(contents.len()) {
            write(&mut record, &mut lsn);
        }
        record.push(u32::from(tid & 3), *flags, contents);
    }
    write(&mut record, &mut lsn);
    let before = image.fork();
    if recover_log(&image, &base.sb).is_err() {
        assert!(same(&before, &image), "changed after an error");
        return;
    }
    let Ok(fs) = Xfs::open_writable(Arc::new(image), &OpenOptions::default()) else { return };
    drop(fs.attributes(fs.root()));
    drop(fs.close());
}

fn same(a: &MemoryDevice, b: &MemoryDevice) -> bool {
    let mut bytes = [vec![0; 1 << 16], vec![0; 1 << 16]];
    (0..a.len()).step_by(1 << 16).all(|at| {
        let len = (a.len() - at).min(1 << 16) as usize;
        let [left, right] = &mut bytes;
        a.read_at(at, &mut left[..len]).is_ok()
            && b.read_at(at, &mut right[..len]).is_ok()
            && left[..len] == right[..len]
    })
}
