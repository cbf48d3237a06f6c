//! Handling of INIT, the first request of a mount, which negotiates protocol and features.

use std::io;

use rustix::param::page_size;
use zerocopy::IntoBytes;

use crate::abi::{InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION, MIN_READ_BUFFER};
use crate::answer::Answer;
use crate::device::Device;
use crate::mount::MAX_WRITE;
use crate::pipe::Pipe;
use crate::{Errno, Handler, InitFlags, Kernel, Operation, Request, Settings};

/// Oldest supported protocol, 7.34 (Linux 5.14). From this version on, all kernels have
/// `SETXATTR_EXT`, which changes the layout of SETXATTR.
const MINOR_VERSION_MIN: u32 = 34;
/// Maximum number of concurrent background requests (read-ahead, write-back).
const MAX_BACKGROUND: u16 = 64;
/// Number of background requests at which the kernel throttles their sources: three quarters of the
/// maximum, as is the kernel's default.
const CONGESTION_THRESHOLD: u16 = 48;
/// Unit of `max_write` in bytes.
const WRITE_UNIT: u32 = 4096;
/// Maximum size in bytes of an extended attribute's value and of a list of attribute names.
const XATTR_MAX: usize = 64 << 10;
/// Buffer space in addition to data, in bytes: headers, structures, names.
const BESIDES_DATA: usize = 4096;

/// Features that a session uses regardless of its handler.
const TRANSPORT: InitFlags = InitFlags::BIG_WRITES
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::INIT_EXT);

/// Result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Maximum size of a write or a read in bytes.
    pub(crate) max_write: usize,
    /// Features in use.
    pub(crate) features: InitFlags,
}

impl Agreed {
    /// Returns the size in bytes of a buffer for any request and any reply.
    pub(crate) fn buffer_len(&self) -> usize {
        self.max_write.max(XATTR_MAX) + BESIDES_DATA
    }
}

/// Answers INIT. Adds the features of `transport` if the kernel offers them. Returns `None` if the
/// mount is unmounted first.
pub(crate) fn shake_hands(
    device: &Device,
    handler: &dyn Handler,
    transport: InitFlags,
) -> io::Result<Option<Agreed>> {
    // Larger than any INIT: the kernel rejects reads into a smaller buffer.
    let mut buffer = vec![0_u64; MIN_READ_BUFFER / size_of::<u64>()];
    let buffer = buffer.as_mut_bytes();
    loop {
        let Some(len) = device.receive(buffer)? else {
            return Ok(None);
        };
        let request = Request::parse(&buffer[..len]).map_err(invalid)?;
        let unique = request.header.unique;
        let Operation::Init(theirs) = request.operation else {
            device.send(&Answer::failed(Errno::IO).header(unique), &[])?;
            return Err(invalid("the kernel does not start with INIT"));
        };
        if let Err(error) = check_version(&theirs) {
            device.send(&Answer::failed(Errno::PROTO).header(unique), &[])?;
            return Err(error);
        }
        let (mut ours, agreed) = negotiate(&theirs, handler, transport);
        if !agreed.features.contains(InitFlags::OVER_IO_URING)
            && let Some(pages) = Pipe::pages_for_data(agreed.max_write)
        {
            ours.max_pages = ours.max_pages.min(pages);
        }
        let answer = Answer { error: 0, len: size_of::<InitOut>(), is_sent: false };
        device.send(&answer.header(unique), ours.as_bytes())?;
        // A kernel with a newer major version sends INIT again with ours.
        if theirs.major == KERNEL_VERSION {
            return Ok(Some(agreed));
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn check_version(theirs: &InitIn) -> io::Result<()> {
    if (theirs.major, theirs.minor) >= (KERNEL_VERSION, MINOR_VERSION_MIN) {
        return Ok(());
    }
    let text = format!(
        "the kernel has FUSE protocol {}.{}, but {KERNEL_VERSION}.{MINOR_VERSION_MIN} or later is \
         required (Linux 5.14)",
        theirs.major, theirs.minor
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

fn offered(theirs: &InitIn) -> InitFlags {
    let lower = InitFlags::from_bits_truncate(theirs.flags.into());
    if lower.contains(InitFlags::INIT_EXT) {
        lower | InitFlags::from_bits_truncate(u64::from(theirs.flags2) << 32)
    } else {
        lower
    }
}

fn negotiate(theirs: &InitIn, handler: &dyn Handler, transport: InitFlags) -> (InitOut, Agreed) {
    if theirs.major > KERNEL_VERSION {
        let ours =
            InitOut { major: KERNEL_VERSION, minor: KERNEL_MINOR_VERSION, ..InitOut::default() };
        return (ours, Agreed { max_write: 0, features: InitFlags::empty() });
    }
    let offered = offered(theirs);
    let minor = theirs.minor.min(KERNEL_MINOR_VERSION);
    let kernel =
        Kernel { minor: theirs.minor, max_readahead: theirs.max_readahead, features: offered };
    let Settings { features, max_write, max_readahead, time_gran } = handler.init(&kernel);
    let features = (features | TRANSPORT | transport) & offered;
    let max_write = max_write.clamp(WRITE_UNIT, MAX_WRITE) / WRITE_UNIT * WRITE_UNIT;
    let ours = InitOut {
        major: KERNEL_VERSION,
        minor,
        max_readahead: max_readahead.min(theirs.max_readahead),
        flags: features.bits() as u32,
        flags2: (features.bits() >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: CONGESTION_THRESHOLD,
        max_write,
        time_gran: time_gran.clamp(1, 1_000_000_000),
        // Limits reads and other requests that have no limit of their own.
        max_pages: (max_write as usize / page_size()).max(1) as u16,
        ..InitOut::default()
    };
    (ours, Agreed { max_write: max_write as usize, features })
}

#[cfg(test)]
mod tests {
    use super::{check_version, negotiate};
    use crate::abi::InitIn;
    use crate::{Errno, Handler, InitFlags, Kernel, Reply, Request, Settings};

    /// A handler with these settings. The second field contains the kernel features that it
    /// expects.
    struct Wants(Settings, u64);

    impl Handler for Wants {
        fn init(&self, kernel: &Kernel) -> Settings {
            assert_eq!(kernel.features.bits(), self.1);
            self.0
        }

        fn handle(&self, _: &Request<'_>, _: &mut Reply<'_>) -> Result<(), Errno> {
            unreachable!("unused")
        }
    }

    fn wants(features: InitFlags, offered: InitFlags) -> Wants {
        let settings =
            Settings { features, max_write: 300_000, max_readahead: 1 << 20, time_gran: 0 };
        Wants(settings, offered.bits())
    }

    fn init(minor: u32, offered: InitFlags) -> InitIn {
        let flags2 = (offered.bits() >> 32) as u32;
        let flags = offered.bits() as u32;
        InitIn { major: 7, minor, max_readahead: 131_072, flags, flags2, ..InitIn::default() }
    }

    #[test]
    fn common_flags_and_flags_of_the_transport_are_used() {
        let offered = InitFlags::all();
        let features = InitFlags::ALLOW_IDMAP | InitFlags::WRITEBACK_CACHE;
        let (ours, agreed) =
            negotiate(&init(50, offered), &wants(features, offered), InitFlags::empty());
        let expected = features
            | InitFlags::BIG_WRITES
            | InitFlags::MAX_PAGES
            | InitFlags::SETXATTR_EXT
            | InitFlags::INIT_EXT;
        assert_eq!(agreed.features, expected);
        assert_eq!(u64::from(ours.flags) | u64::from(ours.flags2) << 32, expected.bits());
        assert_eq!((ours.major, ours.minor, ours.max_readahead), (7, 45, 131_072));
        // Rounded down to whole pages.
        assert_eq!((agreed.max_write, ours.max_write), (299_008, 299_008));
        assert_eq!(usize::from(ours.max_pages), 299_008 / rustix::param::page_size());
        assert_eq!(ours.time_gran, 1);
    }

    #[test]
    fn features_that_the_kernel_does_not_offer_are_not_used() {
        let offered = InitFlags::BIG_WRITES | InitFlags::SETXATTR_EXT | InitFlags::ASYNC_READ;
        let (ours, agreed) =
            negotiate(&init(35, offered), &wants(InitFlags::all(), offered), InitFlags::all());
        assert_eq!((agreed.features, ours.minor, ours.flags2), (offered, 35, 0));
    }

    #[test]
    fn upper_features_count_if_the_kernel_says_so() {
        let without = InitFlags::ASYNC_READ | InitFlags::ALLOW_IDMAP;
        let wants = wants(InitFlags::all(), InitFlags::ASYNC_READ);
        let (_, agreed) = negotiate(&init(45, without), &wants, InitFlags::empty());
        assert_eq!(agreed.features, InitFlags::ASYNC_READ);
    }

    #[test]
    fn old_kernels_are_refused_and_newer_ones_answered() {
        let version = |major, minor| InitIn { major, minor, ..InitIn::default() };
        for (major, minor) in [(6, 99), (7, 0), (7, 33)] {
            let text = check_version(&version(major, minor)).unwrap_err().to_string();
            assert!(text.starts_with(&format!("the kernel has FUSE protocol {major}.{minor},")));
        }
        check_version(&version(7, 34)).unwrap();
        check_version(&version(8, 0)).unwrap();
        let never_asked = wants(InitFlags::empty(), InitFlags::all());
        let (ours, _) = negotiate(&version(8, 3), &never_asked, InitFlags::empty());
        assert_eq!((ours.major, ours.minor, ours.max_write), (7, 45, 0));
    }
}
