//! Number of request rounds to a remote server.

use std::fs;
use std::time::Duration;

use testkit::{WebServer, scratch};

use super::{ok, serve_many, served};

/// Duration of each request: long enough that requests made together overlap.
const DELAY: Duration = Duration::from_millis(10);

#[test]
fn the_first_file_of_a_cold_image_takes_few_requests() {
    let dir = scratch();
    let (server, images) = served(dir.path());
    for format in images {
        server.delay(DELAY);
        let _ = server.take_requests();
        let _ = server.take_rounds();
        let url = server.url(format);
        assert_eq!(ok(dir.path(), &format!("cat --no-bundle {url} /etc/hostname")), b"image\n");
        let (requests, rounds) = (server.take_requests().len(), server.take_rounds());
        eprintln!(
            "{format}: {requests} requests in {rounds} rounds for a small file of a cold image"
        );
        assert!(rounds < 10, "{requests} requests in {rounds} rounds on {format}");
        // The search for a metadata bundle, which does not exist, takes one request.
        assert_eq!(ok(dir.path(), &format!("cat {url} /etc/hostname")), b"image\n");
        let bundles = server.take_requests().into_iter();
        let bundles = bundles.filter(|request| request.path.ends_with(".dwb")).count();
        assert_eq!(bundles, 1, "{format}");
    }
}

#[test]
fn a_search_with_reading_ahead_waits_less_often() {
    let dir = scratch();
    let many = dir.path().join("many");
    for number in 0..60 {
        let sub = many.join(format!("dir-{number}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..400 {
            fs::write(sub.join(format!("a-file-with-a-longer-name-{file}")), "").unwrap();
        }
    }
    let server = WebServer::new();
    server.delay(DELAY);
    for format in ["ext4", "xfs"] {
        serve_many(dir.path(), &server, format);
        let url = server.url(format);
        let line = format!("find {url}");
        let count = |line: &str| {
            let _ = server.take_requests();
            let _ = server.take_rounds();
            let found = ok(dir.path(), line);
            (found, server.take_requests().len(), server.take_rounds())
        };
        let (found, requests_without, without) = count(&format!("{line} --no-read-ahead"));
        let (found_ahead, requests, with) = count(&line);
        assert!(found == found_ahead);
        let told = format!(
            "{format}: {requests_without} requests in {without} rounds without reading ahead, {requests} in {with} with"
        );
        eprintln!("{told}");
        // Larger images gain more: regions are fetched whole, and this image has few.
        assert!(with * 3 <= without, "{told}");
    }
}
