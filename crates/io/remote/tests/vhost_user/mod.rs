//! The server with a front end of these tests, which may be hostile. The tests of the program use QEMU.

mod driver;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use disk::{BlockDevice, MemoryDevice};
use diskwright_remote::vhost_user::{Options, Server};
use vm_memory::{Bytes, GuestAddress};

use self::driver::{Descriptor, Driver, FREE, INDIRECT, NEXT, QUEUE_SIZE, WRITE};

const LEN: u64 = 8 << 20;
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;

struct Served {
    socket: PathBuf,
    device: Arc<MemoryDevice>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    _folder: tempfile::TempDir,
}

fn serve(queues: usize, read_only: bool) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let device = Arc::new(MemoryDevice::new(LEN));
    let options = Options { queues, read_only, id: "a disk".into() };
    let server = Server::bind(&socket, device.clone(), &options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let heeded = Arc::clone(&stop);
    let thread = Some(thread::spawn(move || server.serve(&heeded)));
    Served { socket, device, stop, thread, _folder: folder }
}

impl Served {
    fn stop(&mut self) -> std::io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is ended once").join().expect("it does not panic")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop().unwrap();
        }
    }
}

fn contents(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 % 251) as u8 ^ seed).collect()
}

#[test]
fn contents_are_those_written_by_each_queue() {
    let mut served = serve(3, false);
    let mut driver = Driver::connect(&served.socket, &[0, 0, 0]);
    let config = driver.config();
    assert_eq!(config[..8], (LEN / 512).to_le_bytes());
    assert_eq!(config[34..36], 3_u16.to_le_bytes());
    for (queue, kibibytes) in [(0, 4), (1, 64), (2, 2048), (0, 1)] {
        let (sector, written) = (queue as u64 * 5000 + 1, contents(queue as u8, kibibytes << 10));
        assert_eq!(driver.request(queue, (OUT, sector), FREE, (&written, &mut [])), 0);
        assert_eq!(driver.request(queue, (FLUSH, 0), FREE, (&[], &mut [])), 0);
        let mut read = vec![0; written.len()];
        assert_eq!(driver.request(2 - queue, (IN, sector), FREE + 3, (&[], &mut read)), 0);
        assert!(read == written, "queue {queue}");
        served.device.read_at(sector * 512, &mut read).unwrap();
        assert!(read == written, "queue {queue}");
    }
    let mut id = [0; 20];
    assert_eq!(driver.request(0, (GET_ID, 0), FREE, (&[], &mut id)), 0);
    assert_eq!(id[..7], *b"a disk\0");
    assert_eq!(driver.request(0, (OUT, LEN / 512), FREE, (&[1; 512], &mut [])), 1);
    assert_eq!(driver.request(0, (77, 0), FREE, (&[], &mut [])), 2);
    // The driver is still connected.
    served.stop().unwrap();
    assert!(!served.socket.exists());
}

#[test]
fn many_requests_in_flight_are_all_answered() {
    let served = serve(1, false);
    let mut driver = Driver::connect(&served.socket, &[0]);
    let mut random = fastrand::Rng::with_seed(4);
    let mut expected = vec![0; LEN as usize];
    for _ in 0..50 {
        let count = random.u16(1..=QUEUE_SIZE / 3);
        for request in 0..count {
            let (at, sector) = (FREE + u64::from(request) * 8192, random.u64(..LEN / 512 - 8));
            let written = contents(random.u8(..), 4096);
            expected[sector as usize * 512..][..4096].copy_from_slice(&written);
            let header = [u64::from(OUT).to_le_bytes(), sector.to_le_bytes()].concat();
            driver.memory.write_slice(&header, GuestAddress(at)).unwrap();
            driver.memory.write_slice(&written, GuestAddress(at + 16)).unwrap();
        }
        let chains = (0..count).flat_map(|request| {
            let (at, head) = (FREE + u64::from(request) * 8192, request * 3);
            let contents = (at + 16, 4096, NEXT, head + 2);
            [(at, 16, NEXT, head + 1), contents, (at + 4112, 1, WRITE, 0)]
        });
        driver.describe(0, &chains.collect::<Vec<Descriptor>>());
        (0..count).for_each(|request| driver.offer(0, request * 3));
        driver.kick(0);
        driver.wait(0);
    }
    let mut read = vec![0; expected.len()];
    served.device.read_at(0, &mut read).unwrap();
    assert!(read == expected);
}

#[test]
fn a_read_only_disk_says_so_and_is_not_changed() {
    let served = serve(1, true);
    let mut driver = Driver::connect(&served.socket, &[0]);
    assert_ne!(driver.features & 1 << 5, 0);
    assert_eq!(driver.request(0, (OUT, 0), FREE, (&[1; 512], &mut [])), 1);
    let mut read = [9; 512];
    assert_eq!(driver.request(0, (IN, 0), FREE, (&[], &mut read)), 0);
    assert_eq!(read, [0; 512]);
}

/// Chains that a driver must not make. None has a valid request to write, so nothing changes.
#[test]
fn invalid_chains_are_answered_or_ignored() {
    let header = |at: u64| (at, 16, NEXT, 1);
    let status = (FREE + 100, 1, WRITE, 0);
    let outside = 1 << 40;
    let chains: Vec<Vec<Descriptor>> = vec![
        vec![(FREE, 16, 0, 0)],
        vec![status],
        vec![(FREE, 3, NEXT, 1), status],
        vec![header(outside), status],
        vec![header(FREE), (outside, 1, WRITE, 0)],
        vec![header(FREE), (u64::MAX - 3, 512, NEXT, 2), status],
        vec![header(FREE), (outside, u32::MAX, NEXT | WRITE, 2), status],
        vec![header(FREE), (FREE, 512, NEXT, 0)],
        vec![header(FREE), (FREE, 512, NEXT, 9999)],
        vec![header(FREE), (FREE + 512, 1, WRITE | NEXT, 2), (FREE, 511, 0, 0)],
        vec![(FREE, 0, 0, 0)],
        vec![(FREE + 4096, 16, INDIRECT, 0)],
        vec![(FREE + 4096, 17, INDIRECT, 0)],
        vec![(outside, 16, INDIRECT, 0)],
        vec![(FREE + 4096, 0, INDIRECT, 0)],
        vec![(FREE + 4096, 0xffff_fff0, INDIRECT, 0)],
    ];
    let served = serve(2, false);
    let mut driver = Driver::connect(&served.socket, &[0, 0]);
    // An indirect table that contains a table.
    driver.store(FREE + 4096, (FREE + 4096, 16, INDIRECT | NEXT, 0));
    for chain in chains {
        // Out, to the first sector, with no contents of 512 bytes.
        let out = [u64::from(OUT).to_le_bytes(), 0_u64.to_le_bytes()].concat();
        driver.memory.write_slice(&out, GuestAddress(FREE)).unwrap();
        driver.describe(0, &chain);
        driver.offer(0, 0);
        driver.kick(0);
        driver.wait(0);
        assert_eq!(driver.request(1, (FLUSH, 0), FREE + 8192, (&[], &mut [])), 0, "{chain:?}");
    }
    let mut read = [9; 512];
    served.device.read_at(0, &mut read).unwrap();
    assert_eq!(read, [0; 512]);
}

/// Heads beyond the table, and an index far ahead, end only the queue concerned.
#[test]
fn invalid_rings_do_not_disturb_other_queues() {
    for (head, jump) in [(QUEUE_SIZE, 1), (u16::MAX, 1), (0, QUEUE_SIZE + 1), (0, 40_000)] {
        let mut served = serve(2, false);
        let mut driver = Driver::connect(&served.socket, &[0, 0]);
        driver.describe(0, &[(1 << 40, 1, 0, 0)]);
        driver.offer(0, head);
        driver.set_available(0, jump);
        driver.kick(0);
        let written = contents(3, 4096);
        for _ in 0..10 {
            assert_eq!(driver.request(1, (OUT, 8), FREE, (&written, &mut [])), 0);
        }
        drop(driver);
        // The next front end has working queues.
        let mut driver = Driver::connect(&served.socket, &[0, 0]);
        let mut read = vec![0; 4096];
        assert_eq!(driver.request(0, (IN, 8), FREE, (&[], &mut read)), 0);
        assert!(read == written);
        served.stop().unwrap();
    }
}

#[test]
fn a_front_end_continues_after_a_restart_of_the_server() {
    let mut served = serve(1, false);
    let mut driver = Driver::connect(&served.socket, &[0]);
    let written = contents(1, 4096);
    for sector in 0..5 {
        assert_eq!(driver.request(0, (OUT, sector * 8), FREE, (&written, &mut [])), 0);
    }
    served.stop().unwrap();
    // A request that this server does not see.
    driver.offer(0, 0);
    driver.kick(0);
    let (memory, used) = (driver.memory.clone(), driver.used(0));
    assert_eq!(used, 5);
    drop(driver);
    let served = serve(1, false);
    let mut driver = Driver::with_memory(&served.socket, memory, &[used]);
    driver.offer(0, 0);
    driver.kick(0);
    driver.wait(0);
    let mut read = vec![0; 4096];
    served.device.read_at(4 * 4096, &mut read).unwrap();
    assert!(read == written);
    assert_eq!(driver.stop(0), 6);
}

#[test]
fn garbage_ends_only_its_connection() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let served = serve(1, false);
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..testkit::effort(20, 50, 1000) {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        let mut bytes = vec![0; random.usize(1..200)];
        random.fill(&mut bytes);
        if round % 2 == 0 && bytes.len() > 12 {
            // A valid header: a request, version 1, and a size.
            bytes[..4].copy_from_slice(&random.u32(..45).to_le_bytes());
            bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
            bytes[8..12].copy_from_slice(&random.u32(..5000).to_le_bytes());
        }
        // It may be disconnected before everything is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut driver = Driver::connect(&served.socket, &[0]);
    assert_eq!(driver.request(0, (FLUSH, 0), FREE, (&[], &mut [])), 0);
}

#[test]
fn invalid_numbers_of_queues_are_refused() {
    for queues in [0, 65] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { queues, read_only: false, id: String::new() };
        let device = Arc::new(MemoryDevice::new(LEN));
        let socket = folder.path().join("socket");
        let error = Server::bind(&socket, device, &options).err().unwrap();
        assert!(error.to_string().contains("1 to 64 queues"), "{error}");
        assert!(!socket.exists());
    }
}
