//! A disk that loses power or fails: a loop device on the only file of a small FUSE file system
//! served by this process.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use linux::abi::{Attr, AttrOut, EntryOut, FOPEN_DIRECT_IO, OpenOut, ROOT_ID, WriteOut};
use linux::{
    Errno, Handler, InitFlags, Kernel, MountOptions, Operation, Reply, Request, Session,
    SessionOptions, Settings, Unmounter,
};

use super::{run, tool};
use crate::mount::Point;

/// Unit of a torn write, in bytes.
const SECTOR_BYTES: usize = 512;

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const DISK_NODE: u64 = 2;
const DISK_NAME: &str = "disk";
const VALID_SEC: u64 = 3600;

/// State of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Works,
    /// Every request fails with an I/O error.
    Fails,
    /// Writes are dropped and reported as successful.
    Off,
}

/// A disk with a volatile cache.
#[derive(Debug)]
struct Disk {
    file: File,
    bytes: u64,
    cache: Mutex<Cache>,
    has_lost: AtomicBool,
}

#[derive(Debug)]
struct Cache {
    mode: Mode,
    /// Unflushed sectors.
    sectors: BTreeMap<u64, [u8; SECTOR_BYTES]>,
}

impl Disk {
    fn check(&self, mode: Mode, offset: u64, len: usize) -> Result<(), Errno> {
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.bytes);
        // The kernel writes to block devices in whole sectors.
        let is_aligned =
            offset.is_multiple_of(SECTOR_BYTES as u64) && len.is_multiple_of(SECTOR_BYTES);
        match mode {
            Mode::Fails => Err(Errno::IO),
            _ if is_inside && is_aligned => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Errno> {
        let cache = self.cache.lock().unwrap();
        self.check(cache.mode, offset, buf.len())?;
        self.file.read_exact_at(buf, offset).map_err(|_| Errno::IO)?;
        let first = offset / SECTOR_BYTES as u64;
        let (sectors, _) = buf.as_chunks_mut::<SECTOR_BYTES>();
        let end = first + sectors.len() as u64;
        for (sector, bytes) in cache.sectors.range(first..end) {
            sectors[(sector - first) as usize] = *bytes;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut cache = self.cache.lock().unwrap();
        self.check(cache.mode, offset, data.len())?;
        if cache.mode == Mode::Works {
            let first = offset / SECTOR_BYTES as u64;
            cache.sectors.extend((first..).zip(data.as_chunks::<SECTOR_BYTES>().0.iter().copied()));
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        let mut cache = self.cache.lock().unwrap();
        self.check(cache.mode, 0, 0)?;
        self.store(&cache.sectors);
        cache.sectors.clear();
        Ok(())
    }

    fn store<'a>(&self, sectors: impl IntoIterator<Item = (&'a u64, &'a [u8; SECTOR_BYTES])>) {
        for (sector, bytes) in sectors {
            self.file.write_all_at(bytes, sector * SECTOR_BYTES as u64).unwrap();
        }
    }

    /// Cuts the power. A random part of the unflushed sectors is kept: writes are torn.
    fn lose(&self, random: &mut fastrand::Rng) {
        let mut cache = self.cache.lock().unwrap();
        self.has_lost.store(true, Ordering::SeqCst);
        cache.mode = Mode::Off;
        let kept = random.u8(..=4);
        self.store(cache.sectors.iter().filter(|_| random.u8(..4) < kept));
        cache.sectors.clear();
    }
}

impl Disk {
    fn attributes(&self, nodeid: u64) -> Attr {
        let (mode, size) =
            if nodeid == ROOT_ID { (S_IFDIR | 0o700, 0) } else { (S_IFREG | 0o600, self.bytes) };
        Attr { ino: nodeid, mode, size, nlink: 1, blksize: 4096, ..Attr::default() }
    }
}

impl Handler for Disk {
    fn init(&self, kernel: &Kernel) -> Settings {
        let features = InitFlags::ASYNC_READ;
        let max_readahead = kernel.max_readahead;
        Settings { features, max_write: 1 << 20, max_readahead, time_gran: 1 }
    }

    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let nodeid = request.header.nodeid;
        match request.operation {
            Operation::Lookup { name } if name == DISK_NAME.as_bytes() => reply.put(&EntryOut {
                nodeid: DISK_NODE,
                entry_valid: VALID_SEC,
                attr_valid: VALID_SEC,
                attr: self.attributes(DISK_NODE),
                ..EntryOut::default()
            }),
            Operation::Lookup { .. } => Err(Errno::NOENT),
            Operation::Getattr(_) | Operation::Setattr(_) => {
                let attr = self.attributes(nodeid);
                reply.put(&AttrOut { attr_valid: VALID_SEC, attr, ..AttrOut::default() })
            }
            // The kernel's cache must not keep lost data.
            Operation::Open(_) => {
                reply.put(&OpenOut { open_flags: FOPEN_DIRECT_IO, ..OpenOut::default() })
            }
            Operation::Read(args) => {
                let len = u64::from(args.size).min(self.bytes.saturating_sub(args.offset)) as usize;
                self.read(args.offset, reply.room(len)?)?;
                reply.advance(len);
                Ok(())
            }
            Operation::Write { args, data } => {
                self.write(args.offset, data)?;
                reply.put(&WriteOut { size: data.len() as u32, padding: 0 })
            }
            Operation::Fsync(_) => self.flush(),
            Operation::Release(_) | Operation::Flush | Operation::Forget { .. } => Ok(()),
            _ => Err(Errno::NOSYS),
        }
    }
}

/// A loop device on a [`Disk`] with the contents of an image file.
pub(crate) struct LossyDevice {
    disk: Arc<Disk>,
    loop_device: Option<PathBuf>,
    unmounter: Unmounter,
    server: Option<JoinHandle<()>>,
    point: Point,
}

impl LossyDevice {
    pub(crate) fn new(image: &Path) -> Self {
        let file = File::options().read(true).write(true).open(image).unwrap();
        let bytes = file.metadata().unwrap().len();
        let cache = Mutex::new(Cache { mode: Mode::Works, sectors: BTreeMap::new() });
        let disk = Arc::new(Disk { file, bytes, cache, has_lost: AtomicBool::new(false) });
        let point = Point::new();
        let options = MountOptions { subtype: "lossy".into(), ..MountOptions::default() };
        let session = Session::mount(point.path(), &options).unwrap();
        let unmounter = session.unmounter();
        let (started, starts) = mpsc::channel();
        let serves = Arc::clone(&disk);
        let server = std::thread::spawn(move || {
            let options = SessionOptions { threads: 2, io_uring: false };
            session.serve(&*serves, &options, || started.send(()).unwrap()).unwrap();
        });
        starts.recv_timeout(testkit::HANG_AFTER).unwrap();
        let mut device = Self { disk, loop_device: None, unmounter, server: Some(server), point };
        device.attach();
        device
    }

    fn attach(&mut self) {
        let mut losetup = tool("losetup");
        let path = run(losetup.args(["--find", "--show"]).arg(self.point.path().join(DISK_NAME)));
        self.loop_device = Some(path.trim().into());
    }

    fn detach(&mut self) {
        let Some(device) = self.loop_device.take() else { return };
        let detach = || tool("losetup").arg("--detach").arg(&device).output().unwrap();
        assert!(detach().status.success());
        let name = device.file_name().unwrap();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        testkit::wait_until("the loop device to be detached", || !backing.exists());
    }

    /// Returns the path of the block device.
    pub(crate) fn path(&self) -> &Path {
        self.loop_device.as_deref().expect("it has power")
    }

    /// Cuts the power: nothing is written from now on.
    pub(crate) fn lose(&self, random: &mut fastrand::Rng) {
        self.disk.lose(random);
    }

    /// Returns false if the disk may have had no power when it acknowledged a flush. Call it after
    /// the flush.
    pub(crate) fn has_power(&self) -> bool {
        !self.disk.has_lost.load(Ordering::SeqCst)
    }

    /// Restores the power. The kernel's cache of the device is dropped, as by a restart.
    pub(crate) fn restart(&mut self) {
        self.detach();
        self.disk.cache.lock().unwrap().mode = Mode::Works;
        self.disk.has_lost.store(false, Ordering::SeqCst);
        self.attach();
    }

    /// Makes all requests fail, or ends that.
    pub(crate) fn fail(&self, fails: bool) {
        self.disk.cache.lock().unwrap().mode = if fails { Mode::Fails } else { Mode::Works };
    }
}

impl Drop for LossyDevice {
    fn drop(&mut self) {
        self.fail(false);
        if let Some(device) = self.loop_device.take() {
            let _ = tool("losetup").arg("--detach").arg(&device).output();
        }
        let _ = self.unmounter.unmount();
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}
