//! Contents of files: uploads, ranges, full images.

use std::io::{Read, Write};

use webdav::WebdavOptions;

use crate::common::*;

#[test]
fn files_are_read_as_they_were_stored() {
    served(&options(), |client, image| {
        for len in [0, 1, 4095, 262_144, 262_145, 3_000_001] {
            let data = noise(len);
            let answer = client.request("PUT", "/file", &[], &data);
            assert!(matches!(answer.status, 201 | 204), "{answer:?}");
            let got = client.get("/file");
            assert!(got.body == data, "{len} bytes");
            assert_eq!(
                got.header("etag"),
                answer.header("etag"),
                "the tag of the upload is that of the file"
            );
            assert!(contents(image, "/file").unwrap() == data);
        }
        assert_eq!(client.request("PUT", "/no/file", &[], b"x").status, 409);
        assert_eq!(client.get("/no/file").status, 404);
    });
}

#[test]
fn ranges_are_sent() {
    served(&options(), |client, _| {
        let data = noise(1_000_000);
        client.put("/file", &data);
        let range = |range: &str| client.request("GET", "/file", &[("Range", range)], b"");
        for (text, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=10-99999", 10..100_000),
            ("bytes=999999-", 999_999..1_000_000),
            ("bytes=-7", 999_993..1_000_000),
        ] {
            let answer = range(text);
            assert_eq!(answer.status, 206, "{text}");
            assert!(answer.body == data[expected], "{text}");
        }
        assert_eq!(range("bytes=0-1").header("content-range"), Some("bytes 0-1/1000000"));
        assert_eq!(range("bytes=0-1,5-6").status, 206);
        // Too many ranges could repeat the file.
        let many = format!("bytes={}", vec!["0-"; 1000].join(","));
        let answer = range(&many);
        assert!(answer.status == 200 && answer.body == data);
    });
}

#[test]
fn an_upload_that_breaks_off_leaves_the_old_file() {
    served(&options(), |client, image| {
        client.put("/old", b"old");
        let free = image.fs().statfs().unwrap().inodes_free;
        for path in ["/old", "/new"] {
            for head in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
                let (prefix, host) = (&client.prefix, client.address);
                let message =
                    format!("PUT {prefix}{path} HTTP/1.1\r\nHost: {host}\r\n{head}\r\n\r\n");
                let chunk = [&b"7a120\r\n"[..], &noise(500_000), b"\r\n"].concat();
                let mut stream = send(client.address, &[message.as_bytes(), &chunk].concat());
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut rest = Vec::new();
                // The server closes the connection, with or without an error.
                let _ = stream.read_to_end(&mut rest);
            }
        }
        assert_eq!(client.get("/old").body, b"old");
        assert_eq!(client.get("/new").status, 404);
        testkit::wait_until("the inodes of the uploads are free", || {
            image.fs().statfs().unwrap().inodes_free == free
        });
    });
}

#[test]
fn an_upload_keeps_owner_permissions_and_attributes() {
    served(&WebdavOptions { owner: (1000, 1001), ..options() }, |client, image| {
        client.put("/file", b"1");
        let fs = image.fs();
        let paths = vfs::Paths::new(fs);
        let first = paths.metadata(b"/file").unwrap();
        assert_eq!((first.uid, first.gid, first.permissions), (1000, 1001, 0o644));
        let change = vfs::SetAttributes {
            permissions: Some(0o4750),
            uid: Some(7),
            gid: Some(8),
            ..Default::default()
        };
        fs.set_attributes(first.ino, &change).unwrap();
        fs.set_xattr(first.ino, b"user.colour", b"red").unwrap();
        client.put("/file", b"22");
        let second = paths.metadata(b"/file").unwrap();
        assert_eq!(
            (second.uid, second.gid, second.permissions),
            (7, 8, 0o750),
            "without set-id bits"
        );
        assert_eq!(fs.get_xattr(second.ino, b"user.colour").unwrap(), b"red");
        assert_eq!(contents(image, "/file").unwrap(), b"22");
    });
}

#[test]
fn parts_of_files_are_changed() {
    served(&options(), |client, image| {
        client.put("/file", b"0123456789");
        let patch = |range: &str, body: &[u8]| {
            let headers = [
                ("X-Update-Range", range),
                ("Content-Type", "application/x-sabredav-partialupdate"),
            ];
            client.request("PATCH", "/file", &headers, body).status
        };
        assert_eq!(patch("bytes=2-4", b"abc"), 204);
        assert_eq!(patch("append", b"xyz"), 204);
        assert_eq!(contents(image, "/file").unwrap(), b"01abc56789xyz");
        let headers = [("Content-Range", "bytes 1-2/13")];
        assert_eq!(client.request("PUT", "/file", &headers, b"BC").status, 204);
        assert_eq!(contents(image, "/file").unwrap(), b"0BCbc56789xyz");
    });
}

#[test]
fn answered_changes_survive_a_crash() {
    served(&options(), |client, image| {
        client.put("/old", b"1");
        assert_eq!(client.status("MKCOL", "/dir/"), 201);
        assert_eq!(client.transfer("MOVE", "/old", "/dir/new", true), 201);
        let crashed = image.crashed();
        assert_eq!(contents(&crashed, "/dir/new").unwrap(), b"1");
        assert!(contents(&crashed, "/old").is_err());
        crashed.judge();
        client.put("/dir/new", &noise(100_000));
        let crashed = image.crashed();
        assert!(contents(&crashed, "/dir/new").unwrap() == noise(100_000));
        crashed.judge();
        assert_eq!(client.status("DELETE", "/dir/"), 204);
        let crashed = image.crashed();
        assert!(contents(&crashed, "/dir/new").is_err());
        crashed.judge();
    });
}

#[test]
fn a_full_image_is_reported() {
    served(&options(), |client, image| {
        let host = client.address;
        // With a length the answer comes before the data.
        let head = |headers: &str| {
            format!(
                "PUT {}/big HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n\r\n",
                client.prefix
            )
        };
        let asked = head("Content-Length: 1000000000\r\nExpect: 100-continue");
        assert_eq!(raw(host, asked.as_bytes()).unwrap().status, 507);
        // Without a length the image becomes full during the upload.
        let mut stream = send(host, head("Transfer-Encoding: chunked").as_bytes());
        let chunk = [&b"f4240\r\n"[..], &noise(1_000_000), b"\r\n"].concat();
        let mut sent = 0;
        while sent < 100 && stream.write_all(&chunk).is_ok() {
            sent += 1;
        }
        assert!(sent < 100, "64 MiB have no room for 100 MB");
        assert_eq!(client.get("/big").status, 404);
        testkit::wait_until("the space of the upload is free", || {
            let totals = image.fs().statfs().unwrap();
            totals.blocks_for_contents * u64::from(totals.block_size) > 30 << 20
        });
        client.put("/small", b"fits");
    });
}
