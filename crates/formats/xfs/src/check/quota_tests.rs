//! Quotas are counted as in the log, without the effects of intents that are finished in memory.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::RunOperations;
use parking_lot::Mutex;
use vfs::check::{Finding, Observer, Options};
use vfs::{FileSystem, FileType, Ino, NewInode, SetAttributes};

use crate::format::bytes::put64;
use crate::format::checksum;
use crate::format::log::dquot::{CRC_OFFSET as DQUOT_CRC, DQUOT_BLOCK_SIZE};
use crate::format::log::intent::{AttributeChange, AttributeWork, Intent};
use crate::fs::OpenOptions;
use crate::quota_files;
use crate::stub::make;
use crate::{Xfs, XfsCore};

/// Owner of the file whose attributes change.
const USER: u32 = 7;
const VALUE_BYTES: usize = 20_000;

#[derive(Default)]
struct Keep(Mutex<Vec<Finding>>);

impl Observer for Keep {
    fn found(&self, finding: Finding) {
        self.0.lock().push(finding);
    }
}

fn findings(device: &MemoryDevice) -> Vec<Finding> {
    let keep = Keep::default();
    super::check(Arc::new(device.fork()), &Options::default(), &keep).unwrap();
    keep.0.into_inner()
}

/// Returns the usage of each user from the findings of a check.
fn counted(findings: &[Finding]) -> Vec<(u32, u64, u64)> {
    let number = |text: &str| -> Option<u32> { text.split(' ').next_back()?.parse().ok() };
    let count = |finding: &Finding| {
        let id = number(finding.detail.as_deref()?)?;
        let (blocks, inodes) = finding.expected.as_deref()?.split_once(" blocks, ")?;
        let inodes = inodes.strip_suffix(" inodes")?;
        Some((id, blocks.parse().ok()?, inodes.parse().ok()?))
    };
    findings.iter().filter_map(count).collect()
}

/// Returns an image with a file of [`USER`] and correct quotas, the location of the quota block, and the file.
fn with_quotas() -> (MemoryDevice, u64, Ino) {
    let device = Arc::new(make(&crate::mkfs::Options::new(320 << 20)));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let uuid = fs.volume.geometry.meta_uuid;
    let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(file, 0, &[1; 10_000], None).unwrap();
    let owner = SetAttributes { uid: Some(USER), ..SetAttributes::default() };
    fs.set_attributes(file, &owner).unwrap();
    let (ino, place) = quota_files::add_file(&fs, &uuid);
    fs.close().unwrap();
    quota_files::name_in_superblock(&device, ino);
    let counts = counted(&findings(&device));
    assert_eq!(counts.len(), 2, "{counts:?}");
    device.write_at(place, &quota_files::quotas(&uuid, &counts)).unwrap();
    let found = findings(&device);
    assert!(found.is_empty(), "{found:?}");
    // Allow attribute changes in the log.
    quota_files::change_superblock(&device, |raw| raw.features_log_incompat = 1.into());
    (device.fork(), place, file)
}

#[test]
fn quotas_do_not_count_what_a_log_only_announces() {
    let (image, place, file) = with_quotas();
    let device = Arc::new(image.fork());
    let fs = XfsCore::open_recovered(device.clone(), &OpenOptions::default()).unwrap();
    let handle = fs.load(file).unwrap();
    let value = vec![b'v'; VALUE_BYTES];
    let work = AttributeWork::Set { namespace: 0, name: b"large".to_vec(), value };
    let generation = handle.inode.generation();
    let intent = Intent::attribute(77, &AttributeChange { ino: file, generation, work });
    let half = |op: &mut crate::op::Op<'_>| {
        // Without a change there would be nothing to write.
        let mut changed = handle.clone();
        changed.inode.set_mode(FileType::Regular, 0o640);
        op.stage(changed);
        Ok(())
    };
    let announce = |(): &()| {
        let log = fs.log.as_ref().unwrap();
        intent.regions.iter().for_each(|region| log.add_done(region.clone()));
        Ok(())
    };
    fs.atomically_then(half, announce).unwrap();
    fs.engine.checkpoint().unwrap();
    let crashed = device.fork();
    drop(fs);
    let finished =
        XfsCore::open_recovered(Arc::new(crashed.fork()), &OpenOptions::default()).unwrap();
    assert_eq!(finished.recovered().intents, 1);
    assert!(finished.load(file).unwrap().inode.nblocks() >= handle.inode.nblocks() + 5);
    drop(finished);
    let found = findings(&crashed);
    assert!(found.is_empty(), "{found:?}");
    // An independent error in a quota is still found.
    let mut block = vec![0; 4096];
    crashed.read_at(place, &mut block).unwrap();
    let quota = &mut block[USER as usize * DQUOT_BLOCK_SIZE..][..DQUOT_BLOCK_SIZE];
    put64(quota, 40, 1234);
    checksum::seal(quota, DQUOT_CRC);
    crashed.write_at(place, &block).unwrap();
    let found = findings(&crashed);
    let codes: Vec<&str> = found.iter().map(|finding| finding.code.name).collect();
    assert_eq!(codes, ["xfs-quota-counts"], "{found:?}");
    assert_eq!(counted(&found)[0].0, USER);
}
