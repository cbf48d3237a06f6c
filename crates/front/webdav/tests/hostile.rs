//! Clients that send anything.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::*;

/// Returns bytes until the server closes the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    received
}

#[test]
fn invalid_requests_get_errors() {
    served(&options(), |client, _| {
        client.put("/file", b"1");
        let host = client.address;
        let prefix = &client.prefix;
        let status = |message: &str| raw(host, message.as_bytes()).map(|answer| answer.status);
        assert_eq!(status("GARBAGE\r\n\r\n"), Some(400));
        assert_eq!(status("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n"), Some(400));
        let huge =
            format!("GET {prefix}/ HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
        assert_eq!(status(&huge), Some(431));
        let many =
            format!("GET {prefix}/ HTTP/1.1\r\nHost: {host}\r\n{}\r\n", "X: y\r\n".repeat(200));
        assert_eq!(status(&many), Some(431));
        let path = format!("GET {prefix}/{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "a/".repeat(30_000));
        assert!(matches!(status(&path), Some(414 | 431)));
        let both = format!(
            "PUT {prefix}/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n0\r\n\r\nDELETE {prefix}/file HTTP/1.1\r\nHost: {host}\r\n\r\n"
        );
        status(&both);
        assert_eq!(client.get("/file").body, b"1", "no request is hidden in a body");
        let lengths = format!(
            "PUT {prefix}/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"
        );
        assert_eq!(status(&lengths), Some(400));
        for method in ["BREW", "TRACE", "CONNECT", "REPORT", "MKCALENDAR", "SEARCH", "POST"] {
            let answer = client.request(method, "/file", &[], b"");
            assert!((400..=501).contains(&answer.status), "{method}: {answer:?}");
        }
        assert_eq!(client.get("/file").body, b"1");
    });
}

#[test]
fn xml_of_clients_is_limited() {
    served(&options(), |client, _| {
        client.put("/file", b"1");
        let nested = [vec!["<a>"; 9000].concat(), vec!["</a>"; 9000].concat()].concat();
        let bomb = "<!DOCTYPE a [<!ENTITY a 'aaaaaaaaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>\
                    <!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;'><!ENTITY d '&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;'>\
                    ]><a>&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;</a>";
        for method in ["PROPFIND", "PROPPATCH", "LOCK"] {
            for body in [nested.as_bytes(), bomb.as_bytes(), b"<a>", b"\0\xff", b"<a/>"] {
                let answer = client.request(method, "/file", &[("Depth", "0")], body);
                assert_eq!(answer.status, 400, "{method}: {answer:?}");
            }
            let large = vec![b' '; 100_000];
            assert_eq!(client.request(method, "/file", &[], &large).status, 413);
        }
        let large = vec![b' '; 100_000];
        assert_eq!(client.request("DELETE", "/file", &[], &large).status, 413);
        assert_eq!(client.get("/file").body, b"1");
    });
}

#[test]
fn a_thousand_connections_do_not_exclude_others() {
    served(&options(), |client, _| {
        client.put("/file", b"1");
        // Fewer are open at a time than files of a process. The server closes the oldest ones anyway.
        let mut open = VecDeque::new();
        for number in 0..1000 {
            let half = format!("GET {}/file HTTP/1.1\r\nHost: ", client.prefix);
            open.push_back(send(
                client.address,
                if number % 2 == 0 { half.as_bytes() } else { b"" },
            ));
            if open.len() > 300 {
                open.pop_front();
            }
        }
        let began = Instant::now();
        assert_eq!(client.get("/file").body, b"1");
        client.put("/new", b"2");
        assert!(began.elapsed() < Duration::from_secs(20));
    });
}

#[test]
fn clients_that_stall_are_disconnected() {
    let image = MemoryImage::ext4();
    serve(&image, &options(), |client| {
        let began = Instant::now();
        let host = client.address;
        let head = format!(
            "PUT {}/stalled HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\nabc",
            client.prefix
        );
        let stalled = send(host, head.as_bytes());
        let dribbling = send(host, head.replace("stalled", "slow").as_bytes());
        let mut writer = dribbling.try_clone().unwrap();
        // One byte a second does not count as progress.
        let slow = std::thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_secs(1));
                if began.elapsed() > Duration::from_secs(100) {
                    break;
                }
            }
        });
        rest(stalled);
        rest(dribbling);
        slow.join().unwrap();
        let elapsed = began.elapsed();
        assert!(
            elapsed > Duration::from_secs(20) && elapsed < Duration::from_secs(90),
            "{elapsed:?}"
        );
        for path in ["/stalled", "/slow"] {
            assert_eq!(client.get(path).status, 404);
        }
    });
    image.judge();
}

#[test]
fn clients_that_do_not_read_end_with_the_server() {
    served(&options(), |client, _| {
        client.put("/file", &noise(8_000_000));
        let message = format!("GET {}/file HTTP/1.1\r\nHost: localhost\r\n\r\n", client.prefix);
        let clients: Vec<_> = (0..20).map(|_| send(client.address, message.as_bytes())).collect();
        // Threads of the file system are free for others.
        assert!(client.get("/file").body == noise(8_000_000));
        std::mem::forget(clients);
    });
}

#[test]
fn damage_is_reported_and_ends_all_changes() {
    testkit::require!(Tool("debugfs"));
    let image = MemoryImage::ext4();
    serve(&image, &options(), |client| {
        client.put("/damaged", b"1");
        client.put("/file", b"1");
    });
    // No file type has this mode.
    let image = image.changed_by_debugfs("set_inode_field damaged mode 0170644");
    let outcome = serve(&image, &options(), |client| {
        client.put("/before", b"1");
        assert_eq!(client.get("/damaged").status, 500);
        assert_eq!(
            client.request("PUT", "/new", &[], b"2").status,
            403,
            "nothing is written any more"
        );
        assert_eq!(client.get("/file").body, b"1");
    });
    assert!(outcome.is_damaged);
}
