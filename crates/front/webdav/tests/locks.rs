//! Locks of clients.

use webdav::WebdavOptions;

use crate::common::*;

const EXCLUSIVE: &str = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
                         <D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>";

fn lock(client: &DavClient, path: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
    let answer = client.request("LOCK", path, headers, EXCLUSIVE.as_bytes());
    match answer.status {
        200 | 201 => Ok(answer.header("lock-token").unwrap().to_owned()),
        status => Err(status),
    }
}

#[test]
fn locked_files_change_with_the_token_only() {
    served(&options(), |client, _| {
        client.status("MKCOL", "/dir/");
        client.put("/dir/file", b"1");
        let token = lock(client, "/dir/", &[("Depth", "infinity")]).unwrap();
        assert_eq!(client.request("PUT", "/dir/file", &[], b"2").status, 423);
        assert_eq!(client.status("DELETE", "/dir/"), 423);
        assert_eq!(client.transfer("MOVE", "/dir/", "/new/", true), 423);
        assert_eq!(lock(client, "/dir/file", &[]), Err(423));
        // Other spellings of a name share its locks.
        client.put("/%EF%83%BF", b"1");
        let other = lock(client, "/%FF", &[]).unwrap();
        assert_eq!(client.request("PUT", "/%EF%83%BF", &[], b"2").status, 423);
        assert_eq!(client.request("UNLOCK", "/%FF", &[("Lock-Token", &other)], b"").status, 204);

        let own = format!("({token})");
        assert_eq!(client.request("PUT", "/dir/file", &[("If", &own)], b"2").status, 204);
        assert!(client.propfind("/dir/file", "0").text().contains("activelock"));
        let refreshed =
            client.request("LOCK", "/dir/", &[("If", &own), ("Timeout", "Second-99")], b"");
        assert!(refreshed.status == 200 && refreshed.text().contains("Second-99"), "{refreshed:?}");
        assert_eq!(
            client.request("UNLOCK", "/dir/", &[("Lock-Token", "<urn:x>")], b"").status,
            409
        );
        assert_eq!(client.request("UNLOCK", "/dir/", &[("Lock-Token", &token)], b"").status, 204);
        assert_eq!(client.request("PUT", "/dir/file", &[], b"3").status, 204);
    });
}

#[test]
fn locks_expire_and_have_a_limit() {
    served(&WebdavOptions { sync: false, ..options() }, |client, _| {
        client.put("/file", b"1");
        lock(client, "/file", &[("Timeout", "Second-1")]).unwrap();
        assert_eq!(client.request("PUT", "/file", &[], b"2").status, 423);
        testkit::wait_until("the lock expires", || {
            client.request("PUT", "/file", &[], b"2").status == 204
        });
        let made = (0..1100).filter(|n| lock(client, &format!("/lock-{n}"), &[]).is_ok()).count();
        assert_eq!(made, 1024);
    });
}

#[test]
fn a_lock_creates_a_missing_file() {
    served(&options(), |client, image| {
        let token = lock(client, "/new", &[]).unwrap();
        assert_eq!(contents(image, "/new").unwrap(), b"");
        let own = format!("({token})");
        assert_eq!(client.request("PUT", "/new", &[("If", &own)], b"1").status, 204);
        assert_eq!(lock(client, "/no/new", &[]), Err(409));
    });
}
