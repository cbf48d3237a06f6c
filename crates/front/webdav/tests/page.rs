//! The page for browsers.

use vfs::{FileSystem, NewInode};
use webdav::{Archive, ArchiveSource, WebdavOptions};

use crate::common::*;

#[test]
fn pages_escape_names_and_run_no_scripts() {
    served(&options(), |client, image| {
        let fs = image.fs();
        let new = NewInode { permissions: 0o755, ..Default::default() };
        let dir = fs.mkdir(fs.root(), b"<script>alert(1)<", &new).unwrap();
        for name in
            [&b"<img src=x onerror=alert(1)>"[..], b"\" onclick=\"x", b"javascript:x", b"a\xffb"]
        {
            fs.create(dir, name, &new).unwrap();
        }
        fs.mkdir(dir, b"sub dir", &new).unwrap();
        let answer = client.get("/%3Cscript%3Ealert(1)%3C/");
        let page = answer.text();
        assert_eq!(answer.status, 200);
        assert!(
            !page.contains("<script") && !page.contains("<img") && !page.contains("\" onclick"),
            "{page}"
        );
        assert!(
            page.contains("&lt;img src=x onerror=alert(1)&gt;")
                && page.contains("href=\"./sub%20dir/\"")
        );
        assert!(page.contains("href=\"./javascript%3Ax\""), "{page}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("script"), "{policy}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        for link in page.split("href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert_eq!(
                client.get(&format!("/%3Cscript%3Ealert(1)%3C/{link}")).status,
                200,
                "{link}"
            );
        }
        // Documents of the image have no access to the other files.
        client.put("/page.html", b"<script>fetch('.')</script>");
        let policy = client.get("/page.html");
        assert!(
            policy.header("content-security-policy").unwrap().starts_with("sandbox;"),
            "{policy:?}"
        );
        assert_eq!(
            client.get("/%3Cscript%3Ealert(1)%3C").status,
            302,
            "to the address with a slash"
        );
        assert_eq!(client.request("HEAD", "/", &[], b"").status, 200);
    });
}

/// Writes a number of pieces, then fails if requested.
#[derive(Debug)]
struct Pieces {
    count: usize,
    fails: bool,
}

impl ArchiveSource for Pieces {
    fn start(&self, _: &dyn FileSystem, path: &[u8]) -> std::io::Result<Box<dyn Archive>> {
        assert_eq!(path, b"/dir");
        Ok(Box::new(Pieces { count: self.count, fails: self.fails }))
    }
}

impl Archive for Pieces {
    fn step(&mut self, _: &dyn FileSystem, out: &mut Vec<u8>) -> std::io::Result<bool> {
        if self.count == 0 && self.fails {
            return Err(std::io::Error::other("unreadable"));
        }
        out.extend_from_slice(&[b'x'; 1000]);
        self.count = self.count.saturating_sub(1);
        Ok(self.count > 0 || self.fails)
    }
}

#[test]
fn archives_are_streamed() {
    for fails in [false, true] {
        let archives = std::sync::Arc::new(Pieces { count: 5000, fails });
        let options = WebdavOptions { archives: Some(archives), ..options() };
        let image = MemoryImage::ext4();
        serve(&image, &options, |client| {
            client.status("MKCOL", "/dir/");
            assert!(client.get("/dir/").text().contains("href=\"./?tar\""));
            let message =
                format!("GET {}/dir/?tar HTTP/1.1\r\nHost: localhost\r\n\r\n", client.prefix);
            let mut stream = send(client.address, message.as_bytes());
            stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            let mut received = Vec::new();
            let _ = std::io::Read::read_to_end(&mut stream, &mut received);
            let is_complete = received.ends_with(b"0\r\n\r\n");
            assert_eq!(is_complete, !fails, "an archive that breaks off is not complete");
            let text = String::from_utf8_lossy(&received[..500]);
            assert!(text.contains("application/x-tar") && text.contains("dir.tar"), "{text}");
        });
        image.judge();
    }
}
