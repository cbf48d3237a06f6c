//! The judges of XFS must be able to reject, and the samples must have the properties in their table.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use testkit::{
    Format, Ignore, KernelMount, MkfsXfs, MountOptions, Tree, XFS_SAMPLES, assert_same, judge,
    require, scratch, xfs_db, xfs_repair, xfs_repair_verdict,
};

const MIB: u64 = 1 << 20;

#[test]
fn xfs_repair_accepts_a_new_image_and_refuses_damage() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"), Tool("xfs_db"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    MkfsXfs::default().options("-L label").create(&image, 300 * MIB);
    judge(&image);
    assert_eq!(Format::of(&image), Format::Xfs);
    assert!(xfs_db(&image, &["sb 0", "p fname"]).contains("label"));
    let device = OpenOptions::new().write(true).open(&image).unwrap();
    // The free block count of group 0's AGF (at 52) matches neither its checksum nor the trees.
    device.write_all_at(&[0xa5; 4], 512 + 52).unwrap();
    let output = xfs_repair_verdict(&image).unwrap_err();
    assert!(output.contains("agf"), "{output}");
}

#[test]
fn xfs_repair_refuses_a_log_that_must_be_replayed() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"), Mount("xfs"));
    let scratch = scratch();
    let [image, copy] = ["image", "copy"].map(|name| scratch.path().join(name));
    MkfsXfs::default().create(&image, 300 * MIB);
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    std::fs::write(mount.path().join("file"), "contents").unwrap();
    rustix::fs::syncfs(std::fs::File::open(mount.path()).unwrap()).unwrap();
    testkit::copy_image(&image, &copy);
    mount.unmount();
    xfs_repair(&image);
    assert!(xfs_repair_verdict(&copy).unwrap_err().contains("log"));
}

#[test]
fn samples_are_sound_and_hold_what_was_put_in() {
    require!(
        Tool("xfs_repair"),
        Mount("xfs"),
        Tool("xfsprogs-6.1/bin/mkfs.xfs"),
        Tool("xfsprogs-5.10/bin/mkfs.xfs")
    );
    // The tests of the XFS crate judge all samples before they use them.
    for sample in XFS_SAMPLES.iter().step_by(testkit::effort(4, 4, 1)) {
        let scratch = scratch();
        let image = scratch.path().join("image");
        let work = scratch.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let tree = sample.create(&image, &work);
        assert!(tree.nodes.len() > 5000, "{}: {} entries", sample.name, tree.nodes.len());
        if let Err(output) = xfs_repair_verdict(&image) {
            panic!("{}: {output}", sample.name);
        }
        let options = MountOptions::read_only("xfs");
        match KernelMount::attempt(&image, &options) {
            Ok(mount) => {
                // Files copied by mkfs.xfs have the time of the copy.
                let by_kernel = sample.filled == testkit::Filled::ByKernel;
                let ignore = Ignore {
                    mtime: !by_kernel,
                    holes: !by_kernel,
                    root: true,
                    ..Ignore::default()
                };
                assert_same(&tree, &Tree::of(mount.path()), &ignore);
            }
            Err(_) => assert_ne!(sample.filled, testkit::Filled::ByKernel, "{}", sample.name),
        }
    }
}
