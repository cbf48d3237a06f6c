//! Changes images in place that mkfs.xfs made and the kernel filled, with every form of directories, attributes and
//! maps and with shared blocks. Compares with the model, xfs_repair and the kernel.

use crate::{changing, checking};

use changing::kernel::{Leave, assert_kernel_agrees, assert_same};
use changing::target::{Way, XfsTarget};
use changing::{SYNCING, TargetLayout};
use checking::assert_sound;
use testkit::crash::read_image;
use testkit::operation::Mix;
use testkit::trial::on_image;
use testkit::{Filled, XfsSample, require};

/// Mixes that mostly change existing files.
const MIXES: [Mix; 3] = [
    Mix { names: 40, data: 30, attributes: 20, ..Mix::ALL },
    Mix { data: 60, offset_max: 1_200_000, write_len_max: 60_000, ..Mix::ALL },
    Mix { attributes: 40, ..SYNCING },
];

/// Changes the samples of a kind. Those filled by the kernel are checked first, and must also show the changes when the
/// kernel reads them.
fn change_samples(filled: Filled, is_wanted: impl Fn(&str) -> bool) {
    require!(Mount("xfs"), Tool("xfs_repair"), Tool("mkfs.xfs"));
    require!(Tool("xfsprogs-6.1/bin/mkfs.xfs"), Tool("xfsprogs-5.10/bin/mkfs.xfs"));
    let wanted = XfsSample::all(filled).filter(|sample| is_wanted(sample.name));
    for (seed, sample) in (1..).zip(wanted.step_by(testkit::effort(1, 2, 1))) {
        let folder = testkit::scratch();
        let (image, work) = (folder.path().join("image"), folder.path().join("work"));
        std::fs::create_dir(&work).unwrap();
        eprintln!("{}", sample.name);
        let tree = sample.create(&image, &work);
        if filled == Filled::ByKernel {
            assert_same(&tree, &image, Leave::default());
            testkit::xfs_repair(&image);
            assert_sound(&image);
        }
        let made = read_image(&image).unwrap();
        std::fs::remove_file(&image).unwrap();
        // The model's block size is 4096; with smaller blocks, only holes would differ.
        let target = XfsTarget::with_images(TargetLayout::DEFAULT, Way::InPlace, vec![made]);
        let mix = MIXES[seed as usize % MIXES.len()];
        let device = on_image(&target.trial(), mix, seed, testkit::effort(100, 150, 250));
        if filled == Filled::ByKernel {
            assert_kernel_agrees(&device);
        }
    }
}

#[test]
fn images_filled_by_the_kernel() {
    change_samples(Filled::ByKernel, |name| name.starts_with("new"));
}

#[test]
fn images_of_older_releases_filled_by_the_kernel() {
    change_samples(Filled::ByKernel, |name| !name.starts_with("new"));
}

#[test]
fn images_filled_by_mkfs() {
    // The kernel does not mount blocks larger than its pages, or case-insensitive names.
    change_samples(Filled::FromDirectory, |name| !name.contains("ci"));
}
