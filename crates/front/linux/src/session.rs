//! Serving a mount.
//!
//! Each thread has its own device descriptors and two buffers. It handles one request at a time,
//! from reading it to writing its reply. Only late requests are passed to another thread; all
//! others need no allocation in a running thread.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::answer::{Complaints, ServingThread};
use crate::device::Device;
use crate::handshake::{Agreed, shake_hands};
use crate::late::LateThread;
use crate::mount::{self, OwnMount};
use crate::reader::{DeviceThread, Turn};
use crate::ring::{AllRegistered, Ring, RingThread};
use crate::{Handler, InitFlags, MountOptions, Unmounted, Unmounter, WriteBack};

/// Maximum number of threads with a pipe. Each thread needs two or three descriptors, and a pipe
/// adds two; a process has 1024 by default.
const PIPES_MAX: usize = 64;

/// Options for serving a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Number of threads that serve requests, at least 1. Over io_uring they are divided among the
    /// processors, at least two each.
    pub threads: usize,
    /// Use io_uring if the kernel supports and permits it.
    pub io_uring: bool,
}

/// A mount whose requests this process answers. Unmounted on drop.
#[derive(Debug)]
pub struct Session {
    // Dropped first: no request may wait for a reply during unmounting.
    device: Device,
    mount: MountGuard,
}

impl Session {
    /// Mounts by mount(2) if permitted, otherwise by `fusermount3`.
    ///
    /// # Errors
    /// If mounting fails; the error contains the reason.
    pub fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<Self> {
        let (device, mount) = mount::mount(mountpoint, options)?;
        Ok(Self { device, mount: MountGuard(Arc::new(mount)) })
    }

    /// Returns a handle that unmounts the session from any thread.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter::new(Arc::clone(&self.mount.0))
    }

    /// Returns a handle that limits dirty data in the kernel's cache. Valid as long as the session.
    ///
    /// # Errors
    /// If no further descriptor of the device can be opened.
    pub fn write_back(&self) -> io::Result<WriteBack> {
        let device = self.device.for_another_thread()?;
        Ok(WriteBack::new(Arc::clone(&self.mount.0), device))
    }

    /// Starts the protocol, calls `ready`, and answers requests until the mount is unmounted.
    /// `ready` may use the mount. If it is unmounted earlier, `ready` is not called. umount(2) of a
    /// block device's mount waits until the result is dropped, unless requests use io_uring.
    ///
    /// # Errors
    /// If the kernel uses an unsupported protocol version, or the device fails.
    pub fn serve(
        self,
        handler: &dyn Handler,
        options: &SessionOptions,
        ready: impl FnOnce(),
    ) -> io::Result<Unmounted> {
        // Locals are dropped in reverse order: the device before the mount, as in `Session`.
        let Self { mount: guard, device } = self;
        let Some((agreed, rings, all_registered)) = start(&device, handler, options)? else {
            return Ok(Unmounted::default());
        };
        let mut threads: Vec<Box<dyn ServingThread>> = Vec::new();
        let (late, to_late) = LateThread::new(Arc::clone(&guard.0));
        threads.push(Box::new(late));
        let shared = Arc::new(Turn::new(rings.is_empty()));
        for nth in 0..options.threads.max(1) {
            let (to_late, turn) = (to_late.clone(), Arc::clone(&shared));
            let thread = DeviceThread::new(&device, &agreed, to_late, turn)?;
            threads.push(Box::new(if nth < PIPES_MAX { thread.with_pipe() } else { thread }));
        }
        // The late thread ends when the last sender is dropped.
        drop(to_late);
        for ring in rings {
            threads.push(Box::new(RingThread::new(ring, &agreed)));
        }
        // Only the threads' descriptors are left: when the last one is closed, the kernel aborts
        // the connection.
        drop(device);
        serve_all(threads, handler, &guard.0, &all_registered, ready)?;
        Ok(shared.take_unmounted().of(Arc::clone(&guard.0)))
    }
}

/// Negotiates the protocol, with rings if requested and if both sides support them. Returns `None`
/// if the mount is unmounted first.
fn start(
    device: &Device,
    handler: &dyn Handler,
    options: &SessionOptions,
) -> io::Result<Option<(Agreed, Vec<Ring>, AllRegistered)>> {
    let (mut rings, all_registered) = if options.io_uring {
        // Without io_uring, use the device alone.
        Ring::for_all_queues(device, options.threads).unwrap_or_default()
    } else {
        Default::default()
    };
    let transport = if rings.is_empty() { InitFlags::empty() } else { InitFlags::OVER_IO_URING };
    let agreed = shake_hands(device, handler, transport)?;
    Ok(agreed.map(|agreed| {
        if !agreed.features.contains(InitFlags::OVER_IO_URING) {
            rings.clear();
        }
        (agreed, rings, all_registered)
    }))
}

/// Unmounts on drop, after the end of service.
#[derive(Debug)]
struct MountGuard(Arc<OwnMount>);

impl Drop for MountGuard {
    fn drop(&mut self) {
        self.0.end_session();
        self.0.abandon();
    }
}

/// Runs the threads until the mount is gone or one of them fails.
fn serve_all(
    threads: Vec<Box<dyn ServingThread>>,
    handler: &dyn Handler,
    mount: &OwnMount,
    all_registered: &AllRegistered,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let complaints = &Complaints::default();
    thread::scope(|scope| {
        let mut outcome = Ok(());
        let mut handles = Vec::new();
        for (nth, thread) in threads.into_iter().enumerate() {
            let name = format!("fuse-{nth}-{}", thread.transport());
            let run = move || run_to_end(thread, handler, mount, complaints);
            match thread::Builder::new().name(name).spawn_scoped(scope, run) {
                Ok(handle) => handles.push(handle),
                Err(error) => outcome = Err(error),
            }
        }
        if outcome.is_ok() {
            mount.begin_session();
            all_registered.wait();
            ready();
        } else {
            mount.abort();
        }
        for handle in handles {
            let ended =
                handle.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    })
}

/// Serves requests until the mount is gone. On error, aborts the mount for all threads.
fn run_to_end(
    mut thread: Box<dyn ServingThread>,
    handler: &dyn Handler,
    mount: &OwnMount,
    complaints: &Complaints,
) -> io::Result<()> {
    let ended = thread.run(handler, complaints);
    // Other threads may still wait for a child that waits for the end of the mount.
    mount.end_session();
    if ended.is_err() {
        mount.abort();
    }
    ended
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use parking_lot::{Condvar, Mutex};
    use rustix::thread::{CpuSet, sched_setaffinity};

    use super::{AllRegistered, DeviceThread, LateThread, Session, Turn, serve_all, shake_hands};
    use crate::abi::{Attr, AttrOut};
    use crate::answer::{Complaints, ServingThread};
    use crate::device::Device;
    use crate::handshake::Agreed;
    use crate::late::ToLate;
    use crate::ring::{Ring, RingThread};
    use crate::transport::SwitchedOn;
    use crate::{
        Errno, Handler, InitFlags, Kernel, MountOptions, Operation, Reply, Request, Settings,
    };

    struct Nothing;

    impl Handler for Nothing {
        fn init(&self, _: &Kernel) -> Settings {
            let features = InitFlags::empty();
            Settings { features, max_write: 4096, max_readahead: 0, time_gran: 1 }
        }

        fn handle(&self, _: &Request<'_>, _: &mut Reply<'_>) -> Result<(), Errno> {
            Err(Errno::NOSYS)
        }
    }

    fn device_thread(device: &Device, agreed: &Agreed, late: &ToLate) -> DeviceThread {
        DeviceThread::new(device, agreed, late.clone(), Arc::new(Turn::default())).unwrap()
    }

    fn is_mounted(place: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == place.to_str())
    }

    #[test]
    fn a_thread_that_fails_ends_all_and_nothing_stays_mounted() {
        testkit::require!(Root, Fuse);
        let place = tempfile::tempdir().unwrap();
        let session = Session::mount(place.path(), &MountOptions::default()).unwrap();
        let Session { device, mount } = session;
        let agreed = shake_hands(&device, &Nothing, InitFlags::empty()).unwrap().unwrap();
        let (late, to_late) = LateThread::new(Arc::clone(&mount.0));
        let mut threads: Vec<Box<dyn ServingThread>> = vec![Box::new(late)];
        for nth in 0..3 {
            let mut thread = device_thread(&device, &agreed, &to_late);
            if nth == 1 {
                // A directory cannot be read.
                let directory = File::open(place.path().parent().unwrap()).unwrap();
                thread.waiting = Arc::new(Device::new(directory.into()));
            }
            threads.push(Box::new(thread));
        }
        drop((device, to_late));
        let served = serve_all(threads, &Nothing, &mount.0, &AllRegistered::default(), || ());
        let error = served.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ISDIR.raw_os_error()));
        drop(mount);
        assert!(!is_mounted(place.path()));
    }

    #[test]
    fn without_a_ring_requests_come_from_the_device() {
        testkit::require!(Root, Fuse);
        let io_uring = SwitchedOn::new();
        if !io_uring.is_offered() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let session = Session::mount(place.path(), &MountOptions::default()).unwrap();
        let unmounter = session.unmounter();
        let Session { device, mount } = session;
        let ring = Ring::of_no_queue(&device);
        let transport = InitFlags::OVER_IO_URING;
        let agreed = shake_hands(&device, &Nothing, transport).unwrap().unwrap();
        assert!(agreed.features.contains(transport));
        let (late, to_late) = LateThread::new(Arc::clone(&mount.0));
        let threads: Vec<Box<dyn ServingThread>> = vec![
            Box::new(late),
            Box::new(device_thread(&device, &agreed, &to_late)),
            Box::new(RingThread::new(ring, &agreed)),
        ];
        drop((device, to_late));
        let ready = || {
            // This would never be answered if the kernel relied on the ring.
            let error = fs::metadata(place.path()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::NOSYS.raw_os_error()));
            unmounter.unmount().unwrap();
        };
        serve_all(threads, &Nothing, &mount.0, &AllRegistered::default(), ready).unwrap();
        drop(mount);
        assert!(!is_mounted(place.path()));
    }

    /// Handler whose LOOKUP waits for a STATFS.
    #[derive(Default)]
    struct AfterTheOther {
        /// True if a LOOKUP and a STATFS were received.
        came: Mutex<[bool; 2]>,
        changed: Condvar,
    }

    impl AfterTheOther {
        fn note(&self, which: usize) {
            self.came.lock()[which] = true;
            self.changed.notify_all();
        }

        /// Waits for one of the two requests. Returns whether it arrives in time.
        fn comes(&self, which: usize) -> bool {
            const LONG: Duration = Duration::from_secs(10);
            let mut came = self.came.lock();
            !self.changed.wait_while_for(&mut came, |came| !came[which], LONG).timed_out()
        }
    }

    impl Handler for AfterTheOther {
        fn init(&self, kernel: &Kernel) -> Settings {
            Nothing.init(kernel)
        }

        fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
            match request.operation {
                Operation::Getattr(_) => reply.put(&root()),
                Operation::Statfs => {
                    self.note(1);
                    Err(Errno::NOSYS)
                }
                Operation::Lookup { .. } => {
                    self.note(0);
                    Err(if self.comes(1) { Errno::NOENT } else { Errno::TIMEDOUT })
                }
                _ => Err(Errno::NOSYS),
            }
        }
    }

    /// Attributes of a world-readable directory, valid for a minute.
    fn root() -> AttrOut {
        let attr = Attr { ino: 1, mode: 0o040_755, nlink: 2, ..Attr::default() };
        AttrOut { attr_valid: 60, attr, ..AttrOut::default() }
    }

    /// A ring thread that starts late.
    struct Late(RingThread);

    impl ServingThread for Late {
        fn transport(&self) -> &'static str {
            self.0.transport()
        }

        fn run(&mut self, handler: &dyn Handler, complaints: &Complaints) -> io::Result<()> {
            thread::sleep(Duration::from_millis(300));
            self.0.run(handler, complaints)
        }
    }

    /// Binds this thread to the first processor, whose queue the test uses.
    fn on_the_first_processor() {
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first).unwrap();
    }

    #[test]
    fn rings_that_begin_late_leave_nothing_waiting() {
        testkit::require!(Root, Fuse);
        let io_uring = SwitchedOn::new();
        if !io_uring.is_offered() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let session = Session::mount(place.path(), &MountOptions::default()).unwrap();
        let unmounter = session.unmounter();
        let Session { device, mount } = session;
        let (rings, all_registered) = Ring::for_all_queues(&device, 1).unwrap();
        let handler = AfterTheOther::default();
        let agreed = shake_hands(&device, &handler, InitFlags::OVER_IO_URING).unwrap().unwrap();
        let (late, to_late) = LateThread::new(Arc::clone(&mount.0));
        let mut threads: Vec<Box<dyn ServingThread>> =
            vec![Box::new(late), Box::new(device_thread(&device, &agreed, &to_late))];
        for (nth, ring) in rings.into_iter().enumerate() {
            let thread = RingThread::new(ring, &agreed);
            // Each processor has two rings. The second one starts late.
            threads.push(if nth % 2 == 0 { Box::new(thread) } else { Box::new(Late(thread)) });
        }
        drop((device, to_late));
        let mut errors = None;
        let ready = || {
            errors = thread::scope(|scope| {
                let first = scope.spawn(|| {
                    on_the_first_processor();
                    fs::metadata(place.path().join("name")).unwrap_err().raw_os_error()
                });
                handler.comes(0);
                let second = scope.spawn(|| {
                    on_the_first_processor();
                    rustix::fs::statvfs(place.path()).err()
                });
                Some((first.join().unwrap(), second.join().unwrap()))
            });
            unmounter.unmount().unwrap();
        };
        serve_all(threads, &handler, &mount.0, &all_registered, ready).unwrap();
        assert_eq!(errors, Some((Some(Errno::NOENT.raw_os_error()), Some(Errno::NOSYS))));
        drop(mount);
        assert!(!is_mounted(place.path()));
    }
}
