//! Files of images that mkfs.xfs and Linux made.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::mounted::OpenImages;
use vfs::{Error, FileSystem, Ino};

use crate::format::metafile::MetafileType;
use crate::{OpenOptions, Xfs, XfsCore};

/// An image with three realtime groups (`tests/golden/make-realtime`).
fn golden() -> Arc<MemoryDevice> {
    use std::io::Read;
    let packed: &[u8] = include_bytes!("../../tests/golden/realtime-metadir.img.gz.gz");
    let mut bytes = Vec::new();
    let once = flate2::read::GzDecoder::new(packed);
    flate2::read::GzDecoder::new(once).read_to_end(&mut bytes).unwrap();
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, &bytes).unwrap();
    Arc::new(device)
}

#[test]
fn files_are_found_by_path() {
    let fs = <XfsCore as OpenImages>::open(golden(), &OpenOptions::default()).unwrap();
    let root = fs.metafile("").unwrap().unwrap();
    assert_eq!((fs.metadir_root(), root.ino()), (Some(Ino(129)), Ino(129)));
    let bitmap = fs.metafile("rtgroups/1.bitmap").unwrap().unwrap();
    assert_eq!(bitmap.inode.metafile_type(), MetafileType::RtBitmap);
    assert!(fs.metafile("rtgroups/3.bitmap").unwrap().is_none());
    assert!(fs.metafile("quota/user").unwrap().is_none());
    let error = fs.metafile("rtgroups/1.bitmap/x").unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

/// A number from outside does not lead into the tree.
#[test]
fn the_tree_is_hidden() {
    let fs = Xfs::open(golden(), &OpenOptions::default()).unwrap();
    for ino in [129, 81664, 81665] {
        let error = fs.attributes(Ino(ino)).unwrap_err();
        assert!(matches!(error, Error::NotFound), "{ino}: {error}");
        assert!(matches!(fs.open(Ino(ino)), Err(Error::NotFound)), "{ino}");
        assert!(matches!(fs.parents(Ino(ino), &mut |_, _| {}), Err(Error::NotFound)), "{ino}");
    }
}
