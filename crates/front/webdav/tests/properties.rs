//! Properties and times.

use vfs::Paths;

use crate::common::*;

fn update(properties: &str) -> String {
    format!(
        "<?xml version='1.0'?><D:propertyupdate xmlns:D='DAV:' xmlns:Z='urn:schemas-microsoft-com:' \
         xmlns:x='http://example.net/'><D:set><D:prop>{properties}</D:prop></D:set></D:propertyupdate>"
    )
}

const DATE: &str = "Mon, 12 Jan 1998 09:25:56 GMT";
const SECONDS: i64 = 884_597_156;

#[test]
fn times_are_set() {
    served(&options(), |client, image| {
        client.put("/file", b"1");
        client.status("MKCOL", "/dir/");
        let times = || Paths::new(image.fs()).metadata(b"/file").unwrap();
        let set = |path: &str, properties: String| {
            client.request("PROPPATCH", path, &[], update(&properties).as_bytes())
        };
        let answer = set("/file", format!("<D:getlastmodified>{DATE}</D:getlastmodified>"));
        assert_eq!(answer.status, 207);
        let text = answer.text();
        assert!(text.contains("200 OK") && text.contains("getlastmodified"), "{text}");
        assert!(text.contains("\"DAV:\"") && !text.contains("diskwright"), "{text}");
        assert_eq!(times().mtime.sec, SECONDS);
        assert_eq!(client.get("/file").header("last-modified"), Some(DATE));

        client.put("/file", b"2");
        assert_ne!(times().mtime.sec, SECONDS);
        let answer = set(
            "/file",
            format!(
                "<Z:Win32LastModifiedTime>{DATE}</Z:Win32LastModifiedTime>\
                 <Z:Win32LastAccessTime>{DATE}</Z:Win32LastAccessTime>\
                 <Z:Win32FileAttributes>00000020</Z:Win32FileAttributes>"
            ),
        );
        let text = answer.text();
        assert!(text.contains("200 OK") && !text.contains("diskwright"), "{text}");
        assert_eq!((times().mtime.sec, times().atime.sec), (SECONDS, SECONDS));
        let answer = set("/dir/", format!("<D:getlastmodified>{DATE}</D:getlastmodified>"));
        assert!(answer.text().contains("200 OK"));
        assert_eq!(Paths::new(image.fs()).metadata(b"/dir").unwrap().mtime.sec, SECONDS);

        let wrong = "<D:getlastmodified>today</D:getlastmodified><x:colour>red</x:colour>";
        let text = set("/file", wrong.into()).text();
        assert!(text.contains("409 Conflict") && text.contains("424 Failed Dependency"), "{text}");
        assert!(!client.propfind("/file", "0").text().contains(">red<"), "nothing was set");
        assert!(set("/file", "<D:getetag>1</D:getetag>".into()).text().contains("403 Forbidden"));
    });
}

#[test]
fn properties_are_stored_with_the_file() {
    served(&options(), |client, image| {
        client.put("/file", b"1");
        let body = update("<x:colour>r&amp;d <x:shade>dark</x:shade></x:colour><x:size>9</x:size>");
        let text = client.request("PROPPATCH", "/file", &[], body.as_bytes()).text();
        assert!(text.contains("200 OK"), "{text}");
        assert_eq!(client.transfer("COPY", "/file", "/copy", true), 201);
        assert_eq!(client.transfer("MOVE", "/file", "/moved", true), 201);
        client.put("/moved", b"2");
        let crashed = image.crashed();
        serve(&crashed, &options(), |client| {
            for path in ["/copy", "/moved"] {
                let text = client.propfind(path, "0").text();
                assert!(text.contains("r&amp;d") && text.contains("dark"), "{text}");
            }
            let wanted = "<D:propfind xmlns:D='DAV:'><D:prop><size xmlns='http://example.net/'/>\
                          </D:prop></D:propfind>";
            let text =
                client.request("PROPFIND", "/copy", &[("Depth", "0")], wanted.as_bytes()).text();
            assert!(text.contains(">9<") && !text.contains("dark"), "{text}");
            let remove = body.replace("D:set>", "D:remove>");
            client.request("PROPPATCH", "/copy", &[], remove.as_bytes());
            let text = client.propfind("/copy", "0").text();
            assert!(!text.contains("dark") && !text.contains(">9<"), "{text}");
        });
        crashed.judge();
    });
}

#[test]
fn space_and_attributes_are_reported() {
    served(&options(), |client, _| {
        client.put("/file", b"12345");
        let wanted = "<D:propfind xmlns:D='DAV:'><D:prop><D:quota-available-bytes/><D:quota-used-bytes/>\
                      <D:getcontentlength/><D:getetag/><D:supportedlock/></D:prop></D:propfind>";
        let text = client.request("PROPFIND", "/", &[("Depth", "1")], wanted.as_bytes()).text();
        let number = |name: &str| -> u64 {
            let rest =
                text.split(&format!("<D:{name}>")).nth(1).unwrap_or_else(|| panic!("{text}"));
            rest.split('<').next().unwrap().parse().unwrap()
        };
        let available = number("quota-available-bytes");
        assert!((1 << 20..64 << 20).contains(&available), "{available}");
        assert!(number("quota-used-bytes") < 64 << 20);
        assert_eq!(number("getcontentlength"), 5);
        let tag = client.get("/file").header("etag").unwrap().to_owned();
        assert!(text.contains(&tag) || text.contains(&tag.replace('"', "&quot;")), "{tag}: {text}");
        let changed = client.request("GET", "/file", &[("If-None-Match", &tag)], b"").status;
        assert_eq!(changed, 304);
        client.put("/file", b"54321");
        assert_ne!(client.get("/file").header("etag"), Some(tag.as_str()));
        let old = client.request("PUT", "/file", &[("If-Match", &tag)], b"x").status;
        assert_eq!(old, 412, "a change of another client is not lost");
    });
}

#[test]
fn properties_need_no_namespace() {
    served(&options(), |client, _| {
        client.put("/file", b"1");
        let body = update("<bare xmlns=''>value</bare>");
        let text = client.request("PROPPATCH", "/file", &[], body.as_bytes()).text();
        assert!(text.contains("200 OK"), "{text}");
        let wanted = "<propfind xmlns='DAV:'><prop><bare xmlns=''/></prop></propfind>";
        let answer = client.request("PROPFIND", "/file", &[("Depth", "0")], wanted.as_bytes());
        assert!(answer.text().contains(">value<"), "{}", answer.text());
    });
}
