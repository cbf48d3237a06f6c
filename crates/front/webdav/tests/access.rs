//! Conditions of access.

use std::time::Instant;

use webdav::{WebdavAccess, WebdavOptions};

use crate::common::*;

#[test]
fn only_the_secret_leads_to_the_files() {
    served(&options(), |client, _| {
        client.put("/motd", b"Welcome.\n");
        assert_eq!(client.get("/motd").body, b"Welcome.\n");
        let at = |method: &str, path: &str| {
            client.exact(method, path, &[("Host", client.address.to_string())], b"")
        };
        let secret = client.prefix.trim_start_matches('/');
        let other = format!("{}0", &secret[..31]);
        let other = if other == secret { format!("{}1", &secret[..31]) } else { other };
        for path in ["/", "/motd", "//", &format!("/{other}/motd"), &format!("/x/../{secret}/motd")]
        {
            for method in ["GET", "PUT", "PROPFIND", "DELETE", "LOCK"] {
                let answer = at(method, path);
                assert_eq!(
                    (answer.status, answer.text().as_str()),
                    (404, "not found\n"),
                    "{method} {path}"
                );
            }
        }
        // Some clients ask for the capabilities of the root first. The answer contains nothing of the image.
        for path in ["/", "*", "/nothing"] {
            let answer = at("OPTIONS", path);
            assert_eq!((answer.status, answer.header("dav")), (200, Some("1,2")), "{path}");
        }
        assert_eq!(client.get("/motd").status, 200);
    });
}

#[test]
fn other_hosts_and_origins_are_refused() {
    served(&WebdavOptions { host_names: vec!["nas".into()], ..options() }, |client, _| {
        let with = |headers: &[(&str, String)]| {
            client.exact("PROPFIND", &format!("{}/", client.prefix), headers, b"").status
        };
        let port = client.address.port();
        for host in
            ["127.0.0.1".into(), format!("localhost:{port}"), "[::1]:1".into(), "nas".into()]
        {
            assert_eq!(with(&[("Host", host.clone())]), 207, "{host}");
            assert_eq!(with(&[("Host", host.clone()), ("Origin", format!("http://{host}"))]), 207);
            assert_eq!(with(&[("Host", host), ("Origin", "http://evil.example".into())]), 403);
        }
        for host in ["evil.example", "localhost.evil.example", "nas.evil.example"] {
            assert_eq!(with(&[("Host", format!("{host}:{port}"))]), 403, "{host}");
        }
        assert_eq!(with(&[("Host", "localhost".into()), ("Origin", "null".into())]), 403);
        assert_eq!(with(&[]), 400);
    });
}

#[test]
fn passwords_are_required() {
    let access = WebdavAccess::Password("correct horse".into());
    served(&WebdavOptions::new(access), |client, _| {
        assert_eq!(client.prefix, "");
        let answer = client.get("/");
        assert_eq!(answer.status, 401);
        assert!(
            answer.header("www-authenticate").unwrap().starts_with("Basic realm="),
            "{answer:?}"
        );
        // `anyone:correct horse` and `anyone:wrong horse`.
        let with =
            |basic: &str| client.request("GET", "/", &[("Authorization", basic)], b"").status;
        assert_eq!(with("Basic YW55b25lOmNvcnJlY3QgaG9yc2U="), 200);
        let began = Instant::now();
        assert_eq!(with("Basic YW55b25lOndyb25nIGhvcnNl"), 401);
        assert!(began.elapsed().as_millis() >= 900, "guesses take time");
        assert_eq!(with("Bearer correct horse"), 401);
    });
}

#[test]
fn a_read_only_server_changes_nothing() {
    on_both(|image| {
        serve(image, &options(), |client| client.put("/motd", b"Welcome.\n"));
        let before = image.crashed();
        serve(image, &WebdavOptions { read_only: true, ..options() }, |client| {
            assert_eq!(client.get("/motd").body, b"Welcome.\n");
            for method in ["PUT", "DELETE", "PROPPATCH", "MKCOL", "PATCH"] {
                assert_eq!(client.status(method, "/motd"), 403, "{method}");
            }
            for method in ["COPY", "MOVE"] {
                assert_eq!(client.transfer(method, "/motd", "/new", true), 403, "{method}");
            }
            let lock = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
                        <D:locktype><D:write/></D:locktype></D:lockinfo>";
            assert_eq!(client.request("LOCK", "/new", &[], lock.as_bytes()).status, 403);
            assert_eq!(client.get("/new").status, 404);
        });
        assert_eq!(contents(&before, "/motd").unwrap(), contents(image, "/motd").unwrap());
    });
}
