//! Mounts by the NFS client of the host's kernel, of a server in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::nfs::NfsServer;

use super::nfs_options::NfsMountOptions;
use super::served::ServingLock;
use super::{nfs_client, opening};
#[cfg(target_os = "linux")]
use crate::lock::Ending;
use crate::mounts::{NfsRecord, is_mounted};
use crate::serve::{NfsExport, nfs};
use crate::{Error, Image, Result};

/// Interval between checks of the table of mounts. Other hosts than Linux start a program for it.
const POLL: Duration = Duration::from_millis(if cfg!(target_os = "linux") { 50 } else { 1000 });
/// Time without a connection after which a mount has ended. The kernel writes back after the mount has left the table,
/// and may connect again for it.
const QUIET: Duration = Duration::from_millis(250);

/// Mounts an image by the NFS client of the kernel, and serves it until it is unmounted. Calls `ready` when the mount is
/// usable. Unmounts when `end` is set. Then makes all changes durable and closes the image.
///
/// # Errors
/// If it cannot be mounted, or the image cannot be written or closed. If damage was found ([`Error::FoundDamaged`]), nothing
/// was written after that, and the image is in the state after a crash.
pub fn mount_by_nfs(
    mut image: Image,
    mountpoint: &Path,
    options: &NfsMountOptions,
    end: &AtomicBool,
    ready: impl FnOnce(),
) -> Result<()> {
    let name = opening::take_name(&mut image);
    // Dropped after the image is closed.
    let _served = ServingLock::of(&image, &name);
    let mut options = options.clone();
    options.read_only |= !image.is_writable();
    let path = PathBuf::from(&name);
    let files = nfs::of_image(image, &path, &export(&options)?, options.read_only)?;
    let server = files.protocol().server();
    let record = NfsRecord::create(&server.source(), &name);
    let client = Client { server: &server, point: mountpoint, image: &path };
    let stop = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let stop = &stop;
        let serving = thread::Builder::new().name("nfs-mount".into());
        let serving = serving.spawn_scoped(scope, move || files.serve(stop));
        let serving = serving.map_err(|e| Error::host("serve", &path, e))?;
        let mounted = client.mount(&options);
        let _ending = mounted.is_ok().then(|| {
            ready();
            client.wait(end, || serving.is_finished())
        });
        stop.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        mounted.and(served)
    });
    drop(record);
    outcome
}

/// Returns the export: a secret path at a free port.
fn export(options: &NfsMountOptions) -> Result<NfsExport> {
    if options.map_user && options.allow_other {
        return Err(Error::Usage(
            "allow_other: other users would have all rights, because all files appear as those of one user; use \
             --map-user=no, or leave allow_other out"
                .into(),
        ));
    }
    let mut export = NfsExport::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    export.map_user = options.map_user;
    export.check_permissions = !options.map_user;
    export.only_user = (!options.allow_other).then_some(export.owner.0);
    export.sync = options.sync;
    Ok(export)
}

/// Mount of the kernel's client.
struct Client<'a> {
    server: &'a NfsServer,
    point: &'a Path,
    image: &'a Path,
}

impl Client<'_> {
    fn mount(&self, options: &NfsMountOptions) -> Result<()> {
        let port = self.server.address().port();
        nfs_client::mount(&self.server.source(), port, self.point, options)
    }

    /// Waits until the mount has ended and everything is written back. Unmounts when `end` is set, or the server has
    /// failed. Returns the mark of the end, for programs that wait for the image.
    #[cfg(target_os = "linux")]
    fn wait(&self, end: &AtomicBool, has_failed: impl Fn() -> bool) -> Option<Ending> {
        self.wait_for_table(end, &has_failed);
        let ending = Ending::mark(self.image);
        self.wait_for_client(has_failed);
        ending
    }

    /// Waits until the mount has ended and everything is written back. Unmounts when `end` is set, or the server has
    /// failed.
    #[cfg(not(target_os = "linux"))]
    fn wait(&self, end: &AtomicBool, has_failed: impl Fn() -> bool) {
        tracing::debug!("the mount of {} is served", crate::text::shown(self.image));
        self.wait_for_table(end, &has_failed);
        self.wait_for_client(has_failed);
    }

    /// Waits until the mount leaves the table.
    fn wait_for_table(&self, end: &AtomicBool, has_failed: impl Fn() -> bool) {
        let source = self.server.source();
        let mut is_asked = false;
        // A table that is unreadable for a moment does not end the mount.
        while is_mounted(&source).unwrap_or(true) {
            if !is_asked && (end.load(Ordering::Relaxed) || has_failed()) {
                is_asked = true;
                if let Err(error) = nfs_client::unmount(self.point) {
                    tracing::warn!(
                        "the mount is not unmounted: {error}; another signal ends the server at once"
                    );
                }
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until the kernel has disconnected.
    fn wait_for_client(&self, has_failed: impl Fn() -> bool) {
        let mut last_connected = Instant::now();
        while last_connected.elapsed() < QUIET && !has_failed() {
            if self.server.is_connected() {
                last_connected = Instant::now();
            }
            thread::sleep(POLL.min(QUIET / 10));
        }
    }
}
