//! Names of arbitrary bytes, and paths that lead outside.

use vfs::{NewInode, Paths};

use crate::common::*;

/// Returns the paths in a listing, without the secret.
fn listed(client: &DavClient, path: &str) -> Vec<String> {
    let text = client.propfind(path, "1").text();
    let hrefs = text.split("<D:href>").skip(1).map(|rest| rest.split('<').next().unwrap());
    hrefs.filter_map(|href| href.strip_prefix(&client.prefix)).map(Into::into).collect()
}

#[test]
fn names_of_any_bytes_can_be_used() {
    served(&options(), |client, image| {
        let fs = image.fs();
        let new = NewInode { permissions: 0o755, ..Default::default() };
        let dir = fs.mkdir(fs.root(), b"dir", &new).unwrap();
        let names: [&[u8]; 6] = [
            b"\xff\xfe",
            b"line\nbreak",
            b"100% & <b>'\"",
            "\u{f041}".as_bytes(),
            b"a\\b",
            b"\xe4",
        ];
        for name in names {
            fs.create(dir, name, &new).unwrap();
        }
        let shown: Vec<_> =
            listed(client, "/dir/").into_iter().filter(|path| path != "/dir/").collect();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
        for path in &shown {
            client.put(path, path.as_bytes());
        }
        assert_eq!(Paths::new(fs).read_dir(b"/dir").unwrap().len(), names.len(), "no new names");
        for name in names {
            let path = [b"/dir/", name].concat();
            let stored = Paths::new(fs).read(&path, 1000).unwrap();
            assert!(shown.iter().any(|path| path.as_bytes() == stored), "{name:?}");
        }
        // U+F0FF and U+F00A.
        assert!(shown.contains(&"/dir/%EF%83%BF%EF%83%BE".into()), "{shown:?}");
        assert!(shown.contains(&"/dir/line%EF%80%8Abreak".into()), "{shown:?}");
        // Raw bytes lead to the same file.
        assert_eq!(client.get("/dir/%E4").status, 200);
        assert_eq!(client.transfer("MOVE", &shown[0], "/dir/moved", true), 201);
    });
}

#[test]
fn no_path_leads_outside() {
    served(&options(), |client, image| {
        client.put("/inside", b"1");
        let before = Paths::new(image.fs()).read_dir(b"/").unwrap();
        for path in [
            "/../inside",
            "/%2e%2e/inside",
            "/%2e%2e%2finside",
            "/x/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
            "/..%2f..%2fetc/passwd",
            "/a%00b",
            "/%",
            "/%zz",
            "/%ef%80%af",
            "/%ef%80%ae%ef%80%ae/inside",
        ] {
            for method in ["GET", "DELETE", "PROPFIND", "MKCOL"] {
                let answer = client.request(method, path, &[], b"");
                let is_refused = matches!(answer.status, 400 | 403 | 404 | 409 | 502);
                let made = method == "MKCOL" && answer.status == 201;
                assert!(is_refused || made, "{method} {path}: {answer:?}");
                if made {
                    // Other characters of the range form names.
                    assert_eq!(client.status("DELETE", path), 204, "{path}");
                }
            }
            let status = client.transfer("COPY", "/inside", path, true);
            assert!(
                !(200..300).contains(&status) || client.status("DELETE", path) == 204,
                "{path}"
            );
        }
        assert_eq!(Paths::new(image.fs()).read_dir(b"/").unwrap(), before);
        let there =
            client.request("MOVE", "/inside", &[("Destination", "http://evil.example/x")], b"");
        assert_eq!(there.status, 502);
        let elsewhere = format!("http://{}/other/x", client.address);
        let there = client.request("MOVE", "/inside", &[("Destination", &elsewhere)], b"");
        assert!(matches!(there.status, 403 | 502), "{there:?}");
        let long = "n".repeat(256);
        assert_eq!(client.request("PUT", &format!("/{long}"), &[], b"").status, 414);
        assert_eq!(client.get("/inside").body, b"1");
    });
}

#[test]
fn large_directories_are_listed_completely() {
    served(&options(), |client, image| {
        let fs = image.fs();
        let new = NewInode { permissions: 0o644, ..Default::default() };
        let dir = fs.mkdir(fs.root(), b"dir", &new).unwrap();
        for number in 0..2000 {
            fs.create(dir, format!("file-{number}").as_bytes(), &new).unwrap();
        }
        let mut names = listed(client, "/dir/");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2001);
        let page = client.get("/dir/").text();
        assert_eq!(page.matches("<tr><td>").count(), 2000);
        let depth = client.propfind("/dir/", "infinity");
        assert!(depth.text().contains("propfind-finite-depth"), "{depth:?}");
    });
}
