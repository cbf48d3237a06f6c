//! Tests against qemu's client and server.

use std::process::{Child, Stdio};
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use diskwright_remote::nbd::Client;
use testkit::require;

use super::support::serve;

const LEN: u64 = 16 << 20;

/// Runs a qemu program, which must succeed, and returns its output.
fn run(program: &'static str, arguments: &[&str]) -> String {
    let output = testkit::command(program).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[test]
fn qemu_finds_the_export() {
    require!(Tool("qemu-nbd"), Tool("qemu-img"));
    let served = serve(Arc::new(MemoryDevice::new(LEN)), false);
    let listed = run("qemu-nbd", &["--list", "-k", served.socket.to_str().unwrap()]);
    assert!(listed.contains("exports available: 1"), "{listed}");
    assert!(listed.contains("export: 'disk'"), "{listed}");
    assert!(listed.contains("size:  16777216"), "{listed}");
    for flag in ["flush", "fua", "trim", "zeroes", "multi"] {
        assert!(listed.contains(flag), "{flag}: {listed}");
    }
    assert!(listed.contains("max block: 33554432"), "{listed}");
    for name in ["", "disk"] {
        let info = run("qemu-img", &["info", &served.url(name)]);
        assert!(info.contains("16 MiB (16777216 bytes)"), "{info}");
    }
}

#[test]
fn qemu_reads_what_it_wrote() {
    require!(Tool("qemu-io"));
    let memory = Arc::new(MemoryDevice::new(LEN));
    let served = serve(memory.clone(), false);
    let url = served.url("disk");
    let commands = [
        "write -P 0x5a 4096 65536",
        "write -f -P 0x11 1000 24",
        "flush",
        "write -z 8192 4096",
        "write -z -u 16384 8192",
        "discard 32768 4096",
        "read -P 0x5a 4096 4096",
        "read -P 0 8192 4096",
        "read -P 0 16384 8192",
        "read -P 0x11 1000 24",
        "aio_write -P 0x77 1048576 1048576",
        "aio_write -P 0x78 2097152 1048576",
        "aio_flush",
        "read -P 0x77 1048576 1048576",
        "read -P 0x78 2097152 1048576",
    ];
    let mut arguments = vec!["-f", "raw", "-t", "none", &url];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let said = run("qemu-io", &arguments);
    assert!(!said.contains("verification failed") && !said.contains("rror"), "{said}");
    let mut found = [0; 24];
    memory.read_at(1000, &mut found).unwrap();
    assert_eq!(found, [0x11; 24]);
}

#[test]
fn qemu_copies_an_image_through_the_server_and_finds_it_the_same() {
    require!(Tool("qemu-img"));
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = vec![0; LEN as usize];
    for piece in bytes.chunks_mut(65536).step_by(3) {
        random.fill(piece);
    }
    std::fs::write(&image, &bytes).unwrap();
    let memory = Arc::new(MemoryDevice::new(LEN));
    let served = serve(memory.clone(), false);
    let (image, url) = (image.to_str().unwrap(), served.url("disk"));
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    let mut found = vec![0; LEN as usize];
    memory.read_at(0, &mut found).unwrap();
    assert!(found == bytes);
    let said = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    assert!(said.contains("Images are identical"), "{said}");
}

/// Creates a file of `LEN` bytes with 64 KiB of data at 1 MiB and at 9 MiB.
fn sparse_file(path: &std::path::Path) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(LEN).unwrap();
    let device = FileDevice::new(file).unwrap();
    for start in [1 << 20, 9 << 20] {
        device.write_at(start, &[0x5a; 64 << 10]).unwrap();
    }
}

#[test]
fn qemu_sees_holes() {
    require!(Tool("qemu-img"));
    let folder = tempfile::tempdir().unwrap();
    let (image, copy) = (folder.path().join("image"), folder.path().join("copy"));
    sparse_file(&image);
    let device = Arc::new(FileDevice::new(std::fs::File::open(&image).unwrap()).unwrap());
    let served = serve(device, true);
    let (image, url) = (image.to_str().unwrap(), served.url("disk"));
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &url]);
    let extents: Vec<&str> = map.lines().collect();
    assert_eq!(extents.len(), 5, "{map}");
    let has = |line: &str, start: u64, len: u64, is_data: bool| {
        let place = format!("\"start\": {start}, \"length\": {len}, ");
        let state = format!("\"zero\": {}, \"data\": {is_data}", !is_data);
        line.contains(&place) && line.contains(&state)
    };
    assert!(has(extents[0], 0, 1 << 20, false), "{map}");
    assert!(has(extents[1], 1 << 20, 64 << 10, true), "{map}");
    assert!(has(extents[3], 9 << 20, 64 << 10, true), "{map}");
    assert!(has(extents[4], (9 << 20) + (64 << 10), (7 << 20) - (64 << 10), false), "{map}");
    let copy = copy.to_str().unwrap();
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &url, copy]);
    let said = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, copy]);
    assert!(said.contains("Images are identical"), "{said}");
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(copy).unwrap());
    assert!(blocks * 512 <= 512 << 10, "{blocks} sectors of a copy of 128 KiB");
}

#[test]
fn the_client_sees_holes_of_qemus_server() {
    require!(Tool("qemu-nbd"));
    let folder = tempfile::tempdir().unwrap();
    let (image, socket) = (folder.path().join("image"), folder.path().join("socket"));
    sparse_file(&image);
    let server = testkit::command("qemu-nbd")
        .args(["-f", "raw", "-r", "-t", "-k", socket.to_str().unwrap()])
        .arg(&image)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _server = Ended(server);
    let url = format!("nbd+unix:///?socket={}", socket.display());
    let mut connected = None;
    testkit::wait_until("qemu's server", || {
        connected = Client::connect(&url).ok();
        connected.is_some()
    });
    let client = connected.expect("it was waited for");
    let mut data = Vec::new();
    let mut at = 0;
    while at < LEN {
        let zeros = client.known_zeros(at, LEN - at).unwrap_or(LEN..LEN);
        data.extend((at < zeros.start).then_some(at..zeros.start));
        at = zeros.end;
    }
    assert_eq!(data, [1 << 20..(1 << 20) + (64 << 10), 9 << 20..(9 << 20) + (64 << 10)]);
    let mut found = vec![1; LEN as usize];
    client.read_at(0, &mut found).unwrap();
    let is_data = |at: usize| data.iter().any(|part| part.contains(&(at as u64)));
    assert!((0..LEN as usize).all(|at| found[at] == if is_data(at) { 0x5a } else { 0 }));
}

#[test]
fn the_client_works_with_qemus_server() {
    require!(Tool("qemu-nbd"));
    works_with_qemus_server("writeback");
    // With O_DIRECT, qemu's server accepts whole sectors only.
    works_with_qemus_server("none");
}

/// A child process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The process has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn works_with_qemus_server(cache: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (image, socket) = (folder.path().join("image"), folder.path().join("socket"));
    std::fs::File::create(&image).unwrap().set_len(LEN).unwrap();
    let server = testkit::command("qemu-nbd")
        .args(["-f", "raw", "--cache", cache, "-x", "a disk", "-k", socket.to_str().unwrap()])
        .arg(&image)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Ended(server);
    let url = format!("nbd+unix:///a%20disk?socket={}", socket.display());
    // The socket exists a moment before the server listens.
    let mut connected = None;
    testkit::wait_until("qemu's server", || {
        connected = Client::connect(&url).ok();
        connected.is_some()
    });
    let client = connected.expect("it was waited for");
    assert_eq!(client.len(), LEN);
    client.write_at(5000, &[9; 100_000]).unwrap();
    client.zero_range(6000, 50_000).unwrap();
    client.flush().unwrap();
    client.discard(1 << 20, 1 << 20).unwrap();
    let mut found = vec![1; 100_000];
    client.read_at(5000, &mut found).unwrap();
    assert!(found[..1000].iter().chain(&found[51_000..]).all(|&byte| byte == 9));
    assert!(found[1000..51_000].iter().all(|&byte| byte == 0));
    drop(client);
    // Without -t the server ends with its last client. The file must contain all writes.
    assert!(server.0.wait().unwrap().success());
    let file = FileDevice::new(std::fs::File::open(&image).unwrap()).unwrap();
    let mut in_file = vec![1; 100_000];
    file.read_at(5000, &mut in_file).unwrap();
    assert!(in_file == found);
}
