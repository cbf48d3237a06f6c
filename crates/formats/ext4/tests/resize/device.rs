//! A device that fails while the size changes.

use std::sync::Arc;

use disk::{Access, BlockDevice, Fault, FaultyDevice};
use ext4::resize::{SizeRequest, shrink};
use testkit::crash::{read_image, write_image};
use testkit::{effort, require};
use vfs::Error;

use super::crash::recover_by_e2fsck;
use super::kinds::{KINDS, MIB, assert_shows, assert_sound, tree};
use super::shrink::filled;
use crate::changing::open;

#[test]
fn a_device_that_fails_while_shrinking_is_named_and_loses_no_file() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Root);
    let folder = testkit::scratch();
    let image = folder.path().join("failed.img");
    let mut random = fastrand::Rng::with_seed(8);
    let kinds = KINDS.into_iter().filter(|kind| kind.fs_type != "ext2");
    for kind in kinds.skip(effort(1, 0, 0)).step_by(effort(KINDS.len(), 4, 1)) {
        let full = filled(&kind, folder.path());
        let start = read_image(&full).unwrap();
        std::fs::remove_file(&full).unwrap();
        let expected = tree(Arc::new(start.fork()));
        let request = SizeRequest::Blocks((kind.size + 40 * MIB) / u64::from(kind.block_size));
        let run = |access: Access, fault: Fault| {
            let inner = Arc::new(start.fork());
            let faulty = Arc::new(FaultyDevice::new(inner.clone()));
            faulty.set(access, fault);
            let result = shrink(faulty.clone(), request, &mut |_, _| true);
            (inner, result, faulty.count(access))
        };
        for access in [Access::Read, Access::Write, Access::Flush] {
            let (_, result, count) = run(access, Fault::Never);
            let whole = result.unwrap_or_else(|error| panic!("{}: {error}", kind.name));
            for nth in 0..effort(2, 4, 200) {
                let at = if nth == 0 { count } else { random.u64(1..=count) };
                let fault = if random.bool() { Fault::Nth(at) } else { Fault::From(at) };
                let what = format!("{}: {access:?} {fault:?} of {count}", kind.name);
                let (after, result, _) = run(access, fault);
                assert!(matches!(result, Err(Error::Device(_))), "{what}: {result:?}");
                write_image(&after, &image).unwrap();
                recover_by_e2fsck(&image, true, &what);
                assert_sound(&image, &what);
                assert_shows(&image, &expected, &what);
                // The device works again: recovery, and the same request once more.
                let again: Arc<dyn BlockDevice> = after;
                open(again.clone(), 1 << 20).unwrap().close().unwrap();
                let shrunk = shrink(again.clone(), request, &mut |_, _| true)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(shrunk.after, whole.after, "{what}");
                let list = expected.differences(&tree(again), Default::default());
                assert!(list.is_empty(), "{what}: {list:#?}");
            }
        }
    }
}
