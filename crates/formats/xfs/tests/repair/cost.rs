//! Cost of a repair, in reads of the image.

use std::sync::Arc;

use disk::{Access, BlockDevice, Fault, FaultyDevice, MemoryDevice};
use operations::repair::{Staging, make_plan};
use vfs::check::Options as CheckOptions;
use vfs::{FileSystem, Ino, NewInode};
use xfs::Xfs;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{Inode, seal_slot};
use xfs::mkfs::{self, Contents, Options};
use xfs::repair::Repair;

use super::subject::Silent;
use crate::common::layout::Layout;

const SIZE: u64 = 64 << 20;
const DIRECTORIES: u32 = 300;

/// Returns the byte offset of an inode on the device.
fn slot_byte(geometry: &Geometry, ino: Ino) -> u64 {
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    geometry.byte_of(geometry.block_of(ag, block)) + at as u64
}

/// Returns an image with many directories, in which one file and one directory have a wrong link count.
fn miscounted() -> (Arc<FaultyDevice>, [Ino; 2]) {
    let options = Options { allow_small: true, ..Options::new(SIZE) };
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), Contents::Zeros).unwrap();
    let fs = Xfs::open_in_progress(device.clone(), 16 << 20).unwrap();
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    let mut wrong = [fs.root(); 2];
    for number in 0..DIRECTORIES {
        let dir = fs.mkdir(fs.root(), format!("directory {number}").as_bytes(), &new).unwrap();
        wrong = [dir, dir];
        for file in 0..30 {
            let name = format!("a file with a name that needs a block {file}");
            wrong[1] = fs.create(dir, name.as_bytes(), &new).unwrap();
        }
    }
    fs.finish(None).unwrap();
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(0, &mut bytes).unwrap();
    let geometry = Layout::of(&bytes).geometry;
    for ino in wrong {
        let byte = slot_byte(&geometry, ino);
        let mut inode = Inode::from_slot(&bytes[byte as usize..][..geometry.inode_size()]);
        inode.set_nlink(inode.nlink() + 1);
        seal_slot(inode.as_mut_bytes());
        device.write_at(byte, inode.as_bytes()).unwrap();
    }
    (Arc::new(FaultyDevice::new(device)), wrong)
}

/// A repair reads at most as much as two and a half checks that find the damage: each check stops to look for names when
/// it has them. Reading ten thousand inodes one by one would exceed that.
#[test]
fn wrong_link_counts_cost_at_most_two_and_a_half_checks() {
    let (device, wrong) = miscounted();
    let reads = |run: &dyn Fn()| {
        device.set(Access::Read, Fault::Never);
        run();
        device.count(Access::Read)
    };
    let of_check = reads(&|| {
        xfs::check::check(Arc::clone(&device) as _, &CheckOptions::default(), &Silent).unwrap();
    });
    let of_plan = reads(&|| {
        let staging = Arc::new(Staging::new(Arc::clone(&device) as _));
        let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
        assert!(plan.left.is_empty(), "{:?}", plan.left);
        let actions = plan.steps.iter().flat_map(|step| &step.actions);
        let mut repaired: Vec<Option<u64>> = actions.map(|action| action.place.inode).collect();
        repaired.sort_unstable();
        let mut expected = wrong.map(|ino| Some(ino.0));
        expected.sort_unstable();
        assert_eq!(repaired, expected);
    });
    assert!(2 * of_plan <= 5 * of_check, "{of_plan} reads, {of_check} for a check");
}
