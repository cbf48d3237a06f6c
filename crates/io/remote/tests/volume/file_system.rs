//! File systems on volumes: created, filled and checked.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use diskwright_remote::volume::{NewVolume, View, Volume};
use ext4::Ext4;
use vfs::{FileSystem, Ino, NewInode, Paths, Timestamp};
use xfs::Xfs;

use super::bucket::{Bucket, options};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fs {
    Ext4,
    Xfs,
}

/// An open file system.
pub(crate) enum OpenedFs {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl Fs {
    pub(crate) fn len(self) -> u64 {
        match self {
            Self::Ext4 => 16 << 20,
            Self::Xfs => 32 << 20,
        }
    }

    pub(crate) fn make(self, bucket: &Bucket) {
        self.make_of(bucket, self.len());
    }

    /// Creates a volume and a file system of `len` bytes.
    pub(crate) fn make_of(self, bucket: &Bucket, len: u64) {
        let new = NewVolume::create(&bucket.at("v"), len, &options()).unwrap();
        match self {
            Self::Ext4 => {
                use ext4::mkfs;
                let layout = mkfs::plan(&mkfs::Options {
                    block_size: Some(4096),
                    uuid: [7; 16],
                    ..mkfs::Options::new(len)
                });
                mkfs::format(&new, &layout.unwrap(), mkfs::PreviousContents::Zeros).unwrap();
            }
            Self::Xfs => {
                use xfs::mkfs;
                let layout = mkfs::plan(&mkfs::Options {
                    uuid: [7; 16],
                    allow_small: true,
                    sector_size: 4096,
                    ..mkfs::Options::new(len)
                });
                mkfs::format(&new, &layout.unwrap(), mkfs::PreviousContents::Zeros).unwrap();
            }
        }
        new.finish().unwrap();
    }

    pub(crate) fn open(self, device: Arc<dyn BlockDevice>) -> vfs::Result<OpenedFs> {
        Ok(match self {
            Self::Ext4 => OpenedFs::Ext4(Box::new(Ext4::open_writable(
                device,
                &ext4::OpenOptions::default(),
            )?)),
            Self::Xfs => {
                OpenedFs::Xfs(Box::new(Xfs::open_writable(device, &xfs::OpenOptions::default())?))
            }
        })
    }
}

impl OpenedFs {
    pub(crate) fn fs(&self) -> &dyn FileSystem {
        match self {
            Self::Ext4(fs) => &**fs,
            Self::Xfs(fs) => &**fs,
        }
    }

    pub(crate) fn close(self) -> vfs::Result<()> {
        match self {
            Self::Ext4(fs) => fs.close(),
            Self::Xfs(fs) => fs.close(),
        }
    }
}

pub(crate) fn new_inode() -> NewInode {
    NewInode {
        permissions: 0o644,
        uid: 0,
        gid: 0,
        time: Timestamp { sec: 1, nsec: 0 },
        parent_time: None,
    }
}

/// Creates a file with contents.
pub(crate) fn put(fs: &dyn FileSystem, name: &str, contents: &[u8]) -> vfs::Result<Ino> {
    let ino = fs.create(fs.root(), name.as_bytes(), &new_inode())?;
    fs.write(ino, 0, contents, None)?;
    Ok(ino)
}

pub(crate) fn get(fs: &dyn FileSystem, name: &str) -> vfs::Result<Vec<u8>> {
    Paths::new(fs).read(format!("/{name}").as_bytes(), 1 << 24)
}

/// Copies the volume into an image, and checks it with the format's own checker and ours.
pub(crate) fn judge(bucket: &Bucket, when: &str) {
    let view = View::open(&bucket.at("v"), None, &options()).unwrap();
    let image = MemoryDevice::new(view.len());
    view.copy_to(&image, &mut |_| Ok(())).unwrap();
    let verdict = testkit::show_image(&image, testkit::verdict);
    assert!(verdict.is_ok(), "{when}: {}", verdict.unwrap_err());
}

fn is_made_and_filled(fs: Fs) {
    let bucket = Bucket::new();
    fs.make(&bucket);
    judge(&bucket, "new");
    let contents: Vec<u8> = (0..110_000_u32).map(|at| (at / 3) as u8).collect();
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    let open = fs.open(Arc::new(volume)).unwrap();
    for number in 0..100 {
        put(open.fs(), &format!("file {number}"), &contents[number * 1000..]).unwrap();
    }
    open.close().unwrap();
    judge(&bucket, "filled");
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    let open = fs.open(Arc::new(volume)).unwrap();
    for number in 0..100 {
        let found = get(open.fs(), &format!("file {number}")).unwrap();
        assert!(found == contents[number * 1000..], "{number}");
    }
}

#[test]
fn ext4_is_made_and_filled() {
    testkit::require!(Tool("e2fsck"));
    is_made_and_filled(Fs::Ext4);
}

#[test]
fn xfs_is_made_and_filled() {
    testkit::require!(Tool("xfs_repair"));
    is_made_and_filled(Fs::Xfs);
}

/// Contents, journal or log, and write-back of older changes are ordered by the database's log, so an fsync needs one
/// flush.
fn an_fsync_is_one_put(fs: Fs) {
    const FSYNCS: u64 = 100;
    let bucket = Bucket::new();
    fs.make_of(&bucket, 256 << 20);
    let open = fs.open(Arc::new(Volume::open(&bucket.at("v"), &options()).unwrap())).unwrap();
    let before = bucket.puts();
    for number in 0..FSYNCS {
        let ino = put(open.fs(), &format!("{number}"), &[1; 1024]).unwrap();
        open.fs().fsync(ino).unwrap();
    }
    let puts = bucket.puts() - before;
    // The database may also put other objects.
    assert!((FSYNCS..=FSYNCS * 5 / 4).contains(&puts), "{puts} puts for {FSYNCS} times fsync");
    open.close().unwrap();
}

#[test]
fn an_fsync_of_ext4_is_one_put() {
    an_fsync_is_one_put(Fs::Ext4);
}

#[test]
fn an_fsync_of_xfs_is_one_put() {
    an_fsync_is_one_put(Fs::Xfs);
}
