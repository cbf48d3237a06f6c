//! Programs of libnfs as clients.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use testkit::require;

use crate::common::{self, *};

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

fn url(address: SocketAddr, path: &str) -> String {
    let port = address.port();
    format!("nfs://127.0.0.1{EXPORT}{path}?nfsport={port}&mountport={port}")
}

#[test]
fn the_programs_of_libnfs_list_read_and_copy() {
    require!(Tool("nfs-ls"), Tool("nfs-cat"), Tool("nfs-cp"));
    on_both(|image| {
        common::serve(image, &options(), |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            let dir = client.mkdir(&root, "dir", 0o755).unwrap().0;
            let file = client.file(&dir, "motd");
            client.write(&file, 0, b"Welcome.\n", 2).unwrap();

            let listed = run(testkit::command("nfs-ls").arg("-R").arg(url(address, "")));
            let listed = String::from_utf8(listed).unwrap();
            assert!(listed.contains("dir") && listed.contains("motd"), "{listed}");
            let listed = run(testkit::command("nfs-ls").arg(url(address, "/dir")));
            let listed = String::from_utf8(listed).unwrap();
            assert!(listed.contains("-rw-r--r--") && listed.contains(" 9 motd"), "{listed}");
            let read = run(testkit::command("nfs-cat").arg(url(address, "/dir/motd")));
            assert_eq!(read, b"Welcome.\n");

            let folder = testkit::scratch();
            let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
            let data: Vec<u8> =
                (0..3_000_001_u32).map(|number| (number ^ number >> 11) as u8).collect();
            fs::write(&source, &data).unwrap();
            run(testkit::command("nfs-cp").arg(&source).arg(url(address, "/dir/copied")));
            run(testkit::command("nfs-cp").arg(url(address, "/dir/copied")).arg(&copy));
            assert!(fs::read(&copy).unwrap() == data);
        });
    });
}
