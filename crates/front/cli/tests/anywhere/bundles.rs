//! Metadata bundles of remote images.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{WebServer, scratch};

use super::{fails, image, ok, run, serve_many, served};

const WARNING: &str = "the image is read without its metadata bundle";

/// Duration of each request: long enough that requests made together overlap.
const DELAY: Duration = Duration::from_millis(10);

/// Makes the bundle of an image of the server and puts it beside the image.
fn add_bundle(dir: &Path, server: &WebServer, name: &str) -> Vec<u8> {
    let file = format!("{name}.made");
    ok(dir, &format!("bundle {} --out {file}", server.url(name)));
    let bundle = fs::read(dir.join(file)).unwrap();
    server.put(&format!("{name}.dwb"), bundle.clone(), "bundle");
    bundle
}

/// Requests and rounds of a command that must succeed without messages.
fn count(dir: &Path, server: &WebServer, line: &str) -> (Vec<u8>, usize, u64) {
    let _ = server.take_requests();
    let _ = server.take_rounds();
    let found = ok(dir, line);
    (found, server.take_requests().len(), server.take_rounds())
}

#[test]
fn a_bundle_saves_requests() {
    let dir = scratch();
    let many = dir.path().join("many");
    for number in 0..60 {
        let sub = many.join(format!("dir-{number}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..400 {
            let contents = if file == 7 { "seven\n" } else { "" };
            fs::write(sub.join(format!("a-file-with-a-longer-name-{file}")), contents).unwrap();
        }
    }
    let server = WebServer::new();
    server.delay(DELAY);
    for format in ["ext4", "xfs"] {
        serve_many(dir.path(), &server, format);
        let bundle = add_bundle(dir.path(), &server, format);
        let url = server.url(format);
        let file = "/dir-31/a-file-with-a-longer-name-7";
        for line in [format!("cat {url} {file}"), format!("find {url}"), format!("ls -lR {url}")] {
            let (expected, requests_without, without) =
                count(dir.path(), &server, &format!("--no-bundle {line}"));
            let (found, requests, rounds) = count(dir.path(), &server, &line);
            assert!(found == expected, "{line}");
            let told = format!(
                "{line}, bundle of {} bytes: {requests_without} requests in {without} rounds \
                 without, {requests} in {rounds} with",
                bundle.len()
            );
            eprintln!("{told}");
            // A walk fetches the rest of a bundle with several requests at the same time.
            let limit = if line.starts_with("cat") { 5 } else { 8 };
            assert!(requests <= limit && rounds < without, "{told}");
        }
    }
}

/// Checks the requests of a program that read all contents, of `bytes` bytes.
fn check_reading(server: &WebServer, bytes: u64) -> String {
    let ranges = server.take_requests().into_iter().filter_map(|request| request.range);
    let lens: Vec<u64> = ranges.map(|range| range.end - range.start).collect();
    let (requests, fetched, rounds) = (lens.len(), lens.iter().sum::<u64>(), server.take_rounds());
    let told = format!("{requests} requests in {rounds} rounds, {fetched} bytes for {bytes}");
    // Read-ahead in the order of the device requests nearly twice the contents.
    assert!(fetched < bytes / 10 * 14, "{told}");
    // Without read-ahead in the order of the walk, each directory is waited for.
    assert!(rounds < 30, "{told}");
    told
}

/// Makes a tree of 38 MB in 40 directories.
fn make_many(many: &Path) {
    for number in 0..120_u32 {
        let sub = many.join(format!("{}", number % 40));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..20 {
            let seed = number * 20 + file;
            let bytes: Vec<u8> = (0..4000 * (seed % 7 + 1)).map(|at| (at ^ seed) as u8).collect();
            fs::write(sub.join(format!("{seed}")), bytes).unwrap();
        }
    }
}

/// The order of the walk is not that of the device: directories are sorted by name.
#[test]
fn an_extraction_requests_contents_once() {
    let dir = scratch();
    make_many(&dir.path().join("many"));
    let server = WebServer::new();
    server.delay(DELAY);
    for format in ["ext4", "xfs"] {
        serve_many(dir.path(), &server, format);
        add_bundle(dir.path(), &server, format);
        let expected = ok(dir.path(), &format!("extract {format}.img -"));
        let (_, _) = (server.take_requests(), server.take_rounds());
        let found = ok(dir.path(), &format!("extract {} -", server.url(format)));
        assert!(found == expected, "{format}");
        let told = check_reading(&server, found.len() as u64);
        eprintln!("{format}, extract: {told}");
    }
}

/// Contents that are requested before the first read are fetched, although directories are between them.
#[test]
fn contents_are_prefetched_before_the_first_read() {
    let dir = scratch();
    make_many(&dir.path().join("many"));
    let server = WebServer::new();
    for format in ["ext4", "xfs"] {
        serve_many(dir.path(), &server, format);
        add_bundle(dir.path(), &server, format);
        let image = ::diskwright::Image::open(&*server.url(format)).unwrap();
        let _ = server.take_requests();
        image.file_system().unwrap().paths().file_system().read_ahead(0, 1 << 30);
        let (mut fetched, start) = (0, Instant::now());
        while fetched < 38 << 20 {
            assert!(start.elapsed() < Duration::from_secs(60), "{format}: {fetched} bytes");
            thread::sleep(Duration::from_millis(5));
            let ranges = server.take_requests().into_iter().filter_map(|request| request.range);
            fetched += ranges.map(|range| range.end - range.start).sum::<u64>();
        }
    }
}

/// A program lists each directory and then reads its files, as tar does.
#[cfg(target_os = "linux")]
#[test]
fn a_tree_that_is_read_through_a_mount_is_prefetched() {
    testkit::require!(Fuse);
    let dir = scratch();
    let many = dir.path().join("many");
    make_many(&many);
    let server = WebServer::new();
    server.delay(DELAY);
    for format in ["ext4", "xfs"] {
        serve_many(dir.path(), &server, format);
        add_bundle(dir.path(), &server, format);
        let url = server.url(format);
        let mounted = crate::mount::Mounting::new(Path::new(&url)).options("ro").start();
        let (_, _) = (server.take_requests(), server.take_rounds());
        let bytes = compare_files(mounted.path(), &many);
        let told = check_reading(&server, bytes);
        eprintln!("{format}, mount: {told}");
        mounted.unmount();
    }
}

/// Compares the files below two directories and returns their size.
#[cfg(target_os = "linux")]
fn compare_files(found: &Path, expected: &Path) -> u64 {
    let entries: Vec<_> = fs::read_dir(found).unwrap().map(Result::unwrap).collect();
    let sizes =
        entries.into_iter().filter(|entry| entry.file_name() != "lost+found").map(|entry| {
            let expected = expected.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                return compare_files(&entry.path(), &expected);
            }
            let bytes = fs::read(entry.path()).unwrap();
            assert!(bytes == fs::read(&expected).unwrap(), "{}", expected.display());
            bytes.len() as u64
        });
    sizes.sum()
}

#[test]
fn bundles_that_do_not_fit_are_reported_once_and_not_used() {
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        let good = add_bundle(dir.path(), &server, format);
        let (name, url) = (format!("{format}.dwb"), server.url(format));
        let lines = [format!("find {url}"), format!("cat {url} /etc/hostname")];
        let expected = lines.each_ref().map(|line| ok(dir.path(), line));
        let flipped = |at: usize| {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            damaged
        };
        let other = if format == "ext4" { "xfs" } else { "ext4" };
        let foreign = add_bundle(dir.path(), &server, other);
        let cases = [
            ("the header", flipped(30), "header is damaged"),
            ("the tables", flipped(200), "table of frames and extents is damaged"),
            ("the first frame", flipped(good.len() / 4), "frame 0 is damaged"),
            ("the end", good[..good.len() - 1].to_vec(), "the bundle has"),
            ("all but the header", good[..120].to_vec(), "the bundle has"),
            ("the image", foreign, "another version of the image"),
            ("the kind", b"<html>not found</html>".to_vec(), "not a metadata bundle"),
        ];
        for (what, bundle, problem) in cases {
            server.put(&name, bundle, what);
            for (line, expected) in lines.iter().zip(&expected) {
                let output = run(dir.path(), line);
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(output.status.success(), "{line}, {what}: {said}");
                assert!(output.stdout == *expected, "{line}, {what}: other contents");
                let is_told = said.contains(problem) && said.matches(WARNING).count() == 1;
                assert!(is_told && said.contains(&*server.url(&name)), "{line}, {what}: {said}");
                assert_eq!(said.lines().count(), 1, "{line}, {what}: {said}");
            }
        }
        // The image is replaced by one with another file, and its old bundle stays.
        server.put(&name, good, "bundle");
        let line = format!("cp source/etc/hostname {format}.img:/new");
        assert!(run(dir.path(), &line).status.success());
        server.put(format, fs::read(image(dir.path(), format)).unwrap(), "two");
        let output = run(dir.path(), &format!("cat {url} /new"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"image\n", "{said}");
        assert!(said.contains("ETag") && said.contains(WARNING), "{said}");
        server.remove(&name);
        assert_eq!(ok(dir.path(), &format!("cat {url} /new")), b"image\n");
    }
}

/// The bundle of a file belongs to the time of its last change, which the server sends.
#[test]
fn a_file_and_its_bundle_are_stored_together() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    for format in ["ext4", "xfs"] {
        let path = image(dir.path(), format);
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let said = ok(dir.path(), &format!("bundle {format}.img --json"));
        let report: serde_json::Value = serde_json::from_slice(&said).unwrap();
        assert_eq!(report["place"], format!("{format}.img.dwb"));
        let bundle = fs::read(dir.path().join(format!("{format}.img.dwb"))).unwrap();
        assert_eq!(report["bundle_bytes"], bundle.len());
        // Made again, it replaces itself.
        ok(dir.path(), &format!("bundle {format}.img"));
        let bytes = fs::read(&path).unwrap();
        let date = |second: u32| format!("Sun, 13 Sep 2020 12:26:{second:02} GMT");
        let name = format!("{format}-file");
        server.put_with(&name, bytes.clone(), Some("any"), Some(&date(40)));
        server.put_with(&format!("{name}.dwb"), bundle, Some("other"), None);
        let url = server.url(&name);
        assert_eq!(ok(dir.path(), &format!("cat {url} /etc/hostname")), b"image\n");
        let _ = server.take_requests();
        ok(dir.path(), &format!("ls -R {url}"));
        let requests = server.take_requests();
        assert_eq!(requests.len(), 2, "{requests:?}");
        server.put_with(&name, bytes, Some("any"), Some(&date(41)));
        let output = run(dir.path(), &format!("cat {url} /etc/hostname"));
        assert_eq!(output.stdout, b"image\n");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("time of the last change") && said.contains(WARNING), "{said}");
    }
}

#[test]
fn a_partition_has_a_bundle() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    let part = fs::read(image(dir.path(), "xfs")).unwrap();
    crate::disk::with_partition(&dir.path().join("disk"), &part);
    server.put("disk", fs::read(dir.path().join("disk")).unwrap(), "one");
    let url = server.url("disk");
    ok(dir.path(), &format!("bundle --partition 1 {url} --out disk.made"));
    server.put("disk.dwb", fs::read(dir.path().join("disk.made")).unwrap(), "one");
    let _ = server.take_requests();
    let found = ok(dir.path(), &format!("ls -R --partition 1 {url}"));
    assert!(found == ok(dir.path(), "ls -R xfs.img"));
    let requests = server.take_requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(run(dir.path(), &format!("check --partition 1 {url}")).status.success());
}

#[test]
fn requests_that_make_no_bundle_say_why() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    let url = server.url("ext4");
    assert!(fails(dir.path(), &format!("bundle {url}"), 2).contains("--out"));
    assert!(fails(dir.path(), &format!("bundle {url}?sig=secret"), 2).contains("--out"));
    fs::write(dir.path().join("mine"), "a file of the user").unwrap();
    let said = fails(dir.path(), "bundle ext4.img --out mine", 2);
    assert!(said.contains("not a metadata bundle"), "{said}");
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"a file of the user");
    server.put_with("bare", fs::read(image(dir.path(), "ext4")).unwrap(), None, None);
    let output = run(dir.path(), &format!("bundle {} --out b", server.url("bare")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("neither ETag"), "{said}");
    ok(dir.path(), "clone ext4.img overlay");
    assert!(fails(dir.path(), "bundle overlay", 2).contains("commit"));
    assert!(fails(dir.path(), "bundle ext4.img.zst", 2).contains("raw images"));
    assert!(!dir.path().join("b").exists() && !dir.path().join("overlay.dwb").exists());
}

/// A signature in the address is valid for the image only. No bundle is requested with it or without it.
#[test]
fn signed_addresses_are_read_without_bundles() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    add_bundle(dir.path(), &server, "ext4");
    let _ = server.take_requests();
    ok(dir.path(), &format!("ls {}?sig=secret", server.url("ext4")));
    let requests = server.take_requests();
    assert!(requests.iter().all(|request| request.path == "/ext4?sig=secret"), "{requests:?}");
}

/// A start that `mount --record` wrote: its data are in the bundle.
#[test]
fn the_data_of_a_recorded_start_follow_the_metadata() {
    let dir = scratch();
    let (server, _) = served(dir.path());
    for format in ["ext4", "xfs"] {
        let len = fs::metadata(image(dir.path(), format)).unwrap().len();
        fs::write(dir.path().join("record"), format!("# all\n0 {len}\n")).unwrap();
        let url = server.url(format);
        ok(dir.path(), &format!("bundle {url} --order record --out made"));
        let bundle = fs::read(dir.path().join("made")).unwrap();
        assert!(bundle.len() > 6 << 20, "{} bytes", bundle.len());
        server.put(&format!("{format}.dwb"), bundle, "one");
        let _ = server.take_requests();
        let found = ok(dir.path(), &format!("cat {url} /noise"));
        assert!(found == fs::read(dir.path().join("source/noise")).unwrap());
        let requests = server.take_requests();
        let of_image = requests.iter().filter(|request| !request.path.ends_with(".dwb"));
        assert_eq!(of_image.count(), 1, "{requests:?}");
    }
}
