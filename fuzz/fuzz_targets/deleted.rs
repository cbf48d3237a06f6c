//! Searches a damaged image of either format for deleted files. Errors are fine; panics, hangs and unbounded memory are
//! bugs. The image never changes.
#![no_main]

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::BlockDevice;
use libfuzzer_sys::fuzz_target;
use vfs::deleted::{DeletedInode, DeletedName, DeletedScope, DeletedSink, is_name};

/// A sink that checks candidates. Every block counts as free, so that all of them are read.
struct Checks {
    blocks: u64,
}

impl DeletedSink for Checks {
    fn inode(&mut self, inode: DeletedInode) {
        for run in inode.data.runs() {
            assert!(run.len > 0 && run.start + run.len <= self.blocks, "{run:?}");
            assert!(run.first.checked_add(run.len).is_some(), "{run:?}");
        }
    }

    fn name(&mut self, name: DeletedName) {
        assert!(is_name(&name.name) || name.name.starts_with(b"encrypted:"), "{name:?}");
    }

    fn remark(&mut self, remark: String) {
        assert!(!remark.is_empty());
    }

    fn is_free(&self, _: u64) -> bool {
        true
    }

    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        assert!(done <= total);
        ControlFlow::Continue(())
    }
}

// The first byte chooses the format, and whether free blocks are searched; the others are as for the targets that read
// images.
fuzz_target!(|input: &[u8]| {
    let [choice, input @ ..] = input else { return };
    let scope = DeletedScope { free_blocks: choice & 2 != 0 };
    if choice & 1 == 0 {
        let Some((device, _)) = diskwright_fuzz::damaged(input) else { return };
        let options = ext4::OpenOptions { norecovery: choice & 4 != 0, ..Default::default() };
        let evidence: Arc<dyn BlockDevice> = device;
        let Ok(fs) = ext4::Ext4::open(Arc::clone(&evidence), &options) else { return };
        let blocks = fs.geometry().blocks_count;
        ext4::deleted::find(&fs, &*evidence, scope, &mut Checks { blocks });
    } else {
        let Some((device, _)) = diskwright_fuzz::xfs::damaged(input) else { return };
        let options = xfs::OpenOptions { norecovery: choice & 4 != 0, ..Default::default() };
        let evidence: Arc<dyn BlockDevice> = device;
        let Ok(fs) = xfs::Xfs::open(Arc::clone(&evidence), &options) else { return };
        let blocks = fs.geometry().blocks;
        xfs::deleted::find(&fs, &*evidence, scope, &mut Checks { blocks });
    }
});
