//! Sequential writes, and writing and truncating a small file, allocate no memory.

use allocation_counter::measure;
use testkit::scratch;
use vfs::{AllocateMode, FileSystem};

use crate::files::{MIB, SHAPES, create, make, open};

/// Returns the peak increase of memory use during `work`, in bytes.
fn taken(work: impl FnOnce()) -> u64 {
    measure(work).bytes_max
}

#[test]
fn changing_files_takes_no_memory() {
    let dir = scratch();
    let image = dir.path().join("image");
    let block = [7; 4096];
    for shape in [SHAPES[1], SHAPES[3]] {
        let device = make(&image, 64 * MIB, shape);
        let fs = open(&device);
        let (ino, small) = (create(&fs, "file"), create(&fs, "small"));
        let write = |blocks: std::ops::Range<u64>| {
            for at in blocks {
                fs.write(ino, at * 4096, &block, None).unwrap();
            }
        };
        let write_and_cut = || {
            for _ in 0..500 {
                fs.write(small, 0, &block, None).unwrap();
                fs.truncate(small, 100, None).unwrap();
                fs.truncate(small, 0, None).unwrap();
            }
        };
        // The first round fills the cache and the transaction buffers of each thread.
        write(0..100);
        write_and_cut();
        assert_eq!(taken(|| write(100..900)), 0, "{shape:?}, in order");
        assert_eq!(taken(write_and_cut), 0, "{shape:?}, small");
        assert_eq!(taken(|| write(0..900)), 0, "{shape:?}, over what is there");
        if shape.extents {
            fs.allocate(ino, 2000 * 4096, 900 * 4096, AllocateMode::Unwritten).unwrap();
            // The first write may allocate a block for the tree.
            write(2000..2002);
            assert_eq!(taken(|| write(2002..2890)), 0, "{shape:?}, into preallocated space");
        }
        assert!(
            taken(|| drop(std::hint::black_box(vec![0_u8; 4096]))) >= 4096,
            "the measure works"
        );
        fs.close().unwrap();
    }
}
