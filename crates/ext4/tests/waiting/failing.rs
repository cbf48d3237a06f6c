//! No room, and a device that fails, while files wait.

use std::sync::Arc;

use blockdev::{Access, Fault, FaultyDevice};
use oracle::require;
use vfs::{Error, FileSystem};

use super::{ALL, ROOMY, close, name};
use crate::changing::{Layout, MIB, assert_clean, open_with};
use crate::names::common::{NEW, entries};

/// A file that was made is there, whether it waited or not; one that was refused is not.
#[test]
fn a_full_image_refuses_files_and_loses_none() {
    require!(Tool("e2fsck"));
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::BLOCK_MAPS] {
        let device = Arc::new(Layout { inodes: 16_384, ..layout }.make());
        let fs = open_with(device.clone(), 8 << 20, Some(ALL)).unwrap();
        let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
        (0..200).for_each(|number| assert!(fs.create(dir, &name(number), &NEW).is_ok()));
        // What was promised to files that wait is nobody's any more.
        fs.sync().unwrap();
        let filler = fs.create(fs.root(), b"filler", &NEW).unwrap();
        let block = vec![1; layout.block_size as usize];
        for number in 0.. {
            let left = fs.statfs().unwrap().blocks_for_contents;
            if left < 40 {
                break;
            }
            match fs.write(filler, number * u64::from(layout.block_size), &block, None) {
                Ok(()) => {}
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        fs.sync().unwrap();
        let (mut made, mut most) = (200, 0);
        let refused = loop {
            match fs.create(dir, &name(made), &NEW) {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            most = most.max(fs.files_waiting());
        };
        assert!(matches!(refused, Error::NoSpace), "{refused}");
        assert!(made > 400 && most > 0, "{made} files, {most} waited");
        assert!(matches!(fs.lookup(dir, &name(made)), Err(Error::NotFound)));
        assert_eq!(entries(&fs, dir).len(), made as usize);
        fs.sync().unwrap();
        (0..made).for_each(|number| assert!(fs.lookup(dir, &name(number)).is_ok()));
        // There is room again where something went.
        fs.truncate(filler, 0, None).unwrap();
        fs.sync().unwrap();
        fs.create(dir, &name(made), &NEW).unwrap();
        close(&device, fs);
    }
}

/// Nothing is promised that cannot become durable, and what was is told of.
#[test]
fn a_checkpoint_that_fails_ends_waiting() {
    require!(Tool("e2fsck"));
    for (access, number) in
        [(Access::Write, 1), (Access::Write, 3), (Access::Write, 40), (Access::Flush, 1)]
    {
        let layout = Layout { block_size: 1024, journal_bytes: Some(MIB), ..ROOMY };
        let inner = Arc::new(layout.make());
        let faulty = Arc::new(FaultyDevice::new(inner.clone()));
        let fs = open_with(faulty.clone(), 8 << 20, Some(ALL)).unwrap();
        let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
        (0..200).for_each(|number| assert!(fs.create(dir, &name(number), &NEW).is_ok()));
        fs.sync().unwrap();
        (200..300).for_each(|number| assert!(fs.create(dir, &name(number), &NEW).is_ok()));
        assert_eq!(fs.files_waiting(), 100);
        faulty.set(access, Fault::From(number));
        let mut made = 300;
        let told = loop {
            let outcome = fs.create(dir, &name(made), &NEW).map(drop);
            made += u32::from(outcome.is_ok());
            let outcome = outcome.and_then(|()| fs.fsync(dir));
            if let Err(error) = outcome {
                break error;
            }
        };
        assert!(matches!(told, Error::Device(_)), "{told}");
        assert!(matches!(fs.create(dir, b"refused", &NEW), Err(Error::Device(_))));
        assert!(matches!(fs.lookup(dir, b"refused"), Err(Error::NotFound)));
        assert!(fs.sync().is_err());
        assert!(fs.close().is_err());
        faulty.set(access, Fault::Never);
        drop(faulty);
        // What was synced is there, and each other file wholly or not.
        let fs = open_with(inner.clone(), 8 << 20, None).unwrap();
        (0..200).for_each(|number| assert!(fs.lookup(dir, &name(number)).is_ok()));
        let there = (0..made).filter(|&number| fs.lookup(dir, &name(number)).is_ok());
        assert_eq!(entries(&fs, dir).len(), there.count());
        fs.close().unwrap();
        assert_clean(&inner);
    }
}
