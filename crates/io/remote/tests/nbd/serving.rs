//! The client with the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use disk::{BlockDevice, MemoryDevice};
use diskwright_remote::nbd::Client;

use super::support::{serve, serve_tcp};

const LEN: u64 = 8 << 20;

/// A memory device that counts flushes and fails at a certain byte.
struct Counting {
    memory: MemoryDevice,
    flushes: AtomicU64,
}

impl Counting {
    /// Creates a device whose writes to the last byte fail.
    fn new() -> Arc<Self> {
        Arc::new(Self { memory: MemoryDevice::new(LEN), flushes: AtomicU64::new(0) })
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset + data.len() as u64 == LEN {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.memory.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Applies random operations to the client and to memory, and compares the results.
fn does_what_memory_does(client: &Client, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let model = MemoryDevice::new(LEN);
    for _ in 0..300 {
        let offset = random.u64(..LEN - 1);
        let most = 1 << random.u32(0..20);
        let len = random.u64(..(LEN - 1 - offset).min(most));
        match random.u8(..4) {
            0 => {
                let mut data = vec![0; len as usize];
                random.fill(&mut data);
                client.write_at(offset, &data).unwrap();
                model.write_at(offset, &data).unwrap();
            }
            1 => {
                client.zero_range(offset, len).unwrap();
                model.zero_range(offset, len).unwrap();
            }
            _ => {
                let (mut found, mut expected) = (vec![1; len as usize], vec![2; len as usize]);
                client.read_at(offset, &mut found).unwrap();
                model.read_at(offset, &mut expected).unwrap();
                assert!(found == expected, "{offset}+{len} of seed {seed}");
            }
        }
    }
    let (mut found, mut expected) = (vec![1; LEN as usize], vec![2; LEN as usize]);
    client.read_at(0, &mut found).unwrap();
    model.read_at(0, &mut expected).unwrap();
    assert!(found == expected, "seed {seed}");
}

#[test]
fn a_client_sees_a_device_on_both_kinds_of_sockets() {
    let unix = serve(Counting::new(), false);
    assert_eq!(unix.client().len(), LEN);
    does_what_memory_does(&unix.client(), 1);
    let tcp = serve_tcp(Counting::new());
    does_what_memory_does(&tcp.client(), 2);
}

#[test]
fn all_clients_see_each_write() {
    let device = Counting::new();
    let served = serve(device.clone(), false);
    let (first, second) = (served.client(), served.client());
    first.write_at(4096, b"shared").unwrap();
    first.flush().unwrap();
    assert_eq!(device.flushes.load(Ordering::Relaxed), 1);
    let mut found = [0; 6];
    second.read_at(4096, &mut found).unwrap();
    assert_eq!(&found, b"shared");
    // A flush of one connection covers the writes of all, as `CAN_MULTI_CONN` says.
    second.write_at(8192, b"more").unwrap();
    first.flush().unwrap();
    assert_eq!(device.flushes.load(Ordering::Relaxed), 2);
}

#[test]
fn holes_are_known_to_clients() {
    let memory = Arc::new(MemoryDevice::new(LEN));
    memory.write_at(1 << 20, &[1; 70_000]).unwrap();
    memory.write_at(5 << 20, &[1]).unwrap();
    let served = serve(memory, false);
    let client = served.client();
    // Memory has a granularity of 64 KiB.
    let data = [1 << 20..(1 << 20) + (128 << 10), 5 << 20..(5 << 20) + (64 << 10)];
    assert_eq!(client.known_zeros(0, LEN), Some(0..data[0].start));
    assert_eq!(client.known_zeros(1 << 20, LEN - (1 << 20)), Some(data[0].end..data[1].start));
    assert_eq!(client.known_zeros((1 << 20) + 5, 100_000), None);
    assert_eq!(
        client.known_zeros(data[1].start + 1, 70_000),
        Some(data[1].end..data[1].start + 70_001)
    );
    assert_eq!(client.known_zeros(LEN - 1, 1), Some(LEN - 1..LEN));
    assert_eq!(client.known_zeros(LEN, 1), None);
    // The client's own writes count at once.
    client.write_at(100, b"data").unwrap();
    assert_eq!(client.known_zeros(0, 4096), None);
    client.zero_range(0, 64 << 10).unwrap();
    assert_eq!(client.known_zeros(0, 4096), Some(0..4096));
}

#[test]
fn many_threads_share_a_client() {
    let served = serve(Counting::new(), false);
    let client = served.client();
    thread::scope(|scope| {
        for number in 0..16_u8 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..100_u64 {
                    let offset = u64::from(number) * 65536 + round * 512;
                    client.write_at(offset, &[number; 512]).unwrap();
                    let mut found = [0; 512];
                    client.read_at(offset, &mut found).unwrap();
                    assert_eq!(found, [number; 512]);
                }
            });
        }
    });
}

#[test]
fn errors_come_through_and_the_connection_goes_on() {
    let served = serve(Counting::new(), false);
    let client = served.client();
    let full = client.write_at(LEN - 512, &[1; 512]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(full.to_string().contains("nbd+unix:///"), "{full}");
    assert!(client.read_at(LEN - 1, &mut [0; 2]).is_err());
    // The device has no discard. That is not an error.
    client.discard(0, LEN).unwrap();
    client.write_at(0, &[1; 512]).unwrap();
}

#[test]
fn read_only_clients_cannot_write() {
    let device = Counting::new();
    let served = serve(device.clone(), true);
    let client = served.client();
    assert!(client.is_read_only());
    let refused = client.write_at(0, b"x").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(client.zero_range(0, 1).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    let mut found = [1];
    client.read_at(0, &mut found).unwrap();
    assert_eq!(found, [0]);
    served.stop().unwrap();
    assert_eq!(device.flushes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_missing_export_is_named() {
    let served = serve(Counting::new(), false);
    assert!(Client::connect(&served.url("disk")).is_ok());
    let error = Client::connect(&served.url("other")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("no export \"other\""), "{error}");
    let error = Client::connect("nbd+unix:///?socket=/nowhere/at/all").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_server_flushes_at_its_end_and_informs_its_clients() {
    let device = Counting::new();
    let served = serve(device.clone(), false);
    let socket = served.socket.clone();
    let client = served.client();
    client.write_at(0, b"kept").unwrap();
    served.stop().unwrap();
    assert!(device.flushes.load(Ordering::Relaxed) >= 1);
    assert!(!socket.exists());
    let error = client.write_at(0, b"lost").unwrap_err();
    assert!(error.to_string().contains("closed the connection"), "{error}");
    assert!(client.flush().is_err());
    assert!(client.flush().is_err(), "for good");
}

#[test]
fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let address = diskwright_remote::nbd::Address::Unix(folder.path().join("s"));
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap());
    let bind = || diskwright_remote::nbd::Server::bind(&address, Counting::new(), "", false);
    let first = bind().unwrap();
    assert_eq!(bind().err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    drop(first);
    assert!(bind().is_ok());
}
