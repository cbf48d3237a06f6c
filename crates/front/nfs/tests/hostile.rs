//! Hostile clients: invalid frames, messages, handles and numbers of connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nfs::NfsService;

use crate::common::{self, *};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Checks that the server still answers.
fn check(address: SocketAddr) {
    let mut client = NfsClient::connect(address);
    let root = client.mount(EXPORT).unwrap();
    client.getattr(&root).unwrap();
}

#[test]
fn invalid_frames_end_their_connection_only() {
    let image = MemoryImage::ext4();
    common::serve(&image, &options(), |address| {
        let largest = [&0x8011_3000_u32.to_be_bytes()[..], &[0; 100]].concat();
        for bytes in [
            vec![0xff; 4096],
            vec![0; 8192],
            [&0x7fff_ffff_u32.to_be_bytes()[..], &[7; 100]].concat(),
            [&0x8011_3001_u32.to_be_bytes()[..], &[7; 100]].concat(),
            record(b""),
            record(b"abc"),
            record(&[0; 40]),
        ] {
            let mut client = NfsClient::connect(address);
            client.try_send(&bytes);
            check(address);
        }
        // A connection that waits for the rest of a request does not block others, and ends with the server.
        let mut half = NfsClient::connect(address);
        half.send(&largest);
        check(address);
    });
    image.judge();
}

#[test]
fn a_frame_that_is_too_large_is_not_read() {
    let image = MemoryImage::ext4();
    common::serve(&image, &options(), |address| {
        let mut client = NfsClient::connect(address);
        client.send(&0x8fff_ffff_u32.to_be_bytes());
        assert_eq!(client.receive(), None, "the server closes the connection");
    });
}

#[test]
fn unknown_programs_versions_and_procedures_are_refused() {
    served(&options(), |client, _| {
        let mut refused = |program, version, procedure, words: &[u32]| {
            let message = client.message(program, version, procedure, &[]);
            let mut results = client.exchange(&message);
            for word in [&[0, 0, 0], words].concat() {
                assert_eq!(results.u32(), word, "{program} {version} {procedure}");
            }
            results.finish();
        };
        refused(100_000, 2, 0, &[1]);
        refused(NFS, 4, 0, &[2, 3, 3]);
        refused(MOUNT, 1, 0, &[2, 3, 3]);
        refused(NFS, 3, 22, &[3]);
        refused(MOUNT, 3, 6, &[3]);
        // Without arguments.
        (1..22).for_each(|procedure| refused(NFS, 3, procedure, &[4]));
        refused(MOUNT, 3, 1, &[4]);
    });
}

#[test]
fn handles_cannot_be_made_by_clients() {
    served(&options(), |client, root| {
        let file = client.file(root, "file");
        let ino = client.getattr(&file).unwrap().ino;
        for (handle, status) in [
            (vec![], BADHANDLE),
            (vec![0; 64], BADHANDLE),
            ([&ino.to_be_bytes()[..], &file[8..28], &[0; 16]].concat(), BADHANDLE),
            ([&root[..8], &file[8..]].concat(), BADHANDLE),
            ([&file[..], &[0; 4]].concat(), BADHANDLE),
        ] {
            assert_eq!(client.getattr(&handle), Err(status), "{handle:?}");
            assert_eq!(client.write(&handle, 0, b"x", 0), Err(status));
            assert_eq!(client.rename((root, "file"), (&handle, "x")), Err(status));
            assert_eq!(client.wcc[0], Wcc::default());
        }
        // Longer handles than the protocol has are invalid arguments.
        let message = client.message(NFS, 3, 1, &Message::default().opaque(&[0; 65]).0);
        let mut results = client.exchange(&message);
        assert_eq!([(); 4].map(|()| results.u32()), [0, 0, 0, 4]);
    });
}

#[test]
fn one_connection_too_many_closes_an_idle_one() {
    let image = MemoryImage::ext4();
    common::serve(&image, &options(), |address| {
        let mut used = NfsClient::connect(address);
        let root = used.mount(EXPORT).unwrap();
        let idle: Vec<_> = (0..100)
            .map(|number| {
                let stream = TcpStream::connect(address).unwrap();
                if number % 20 == 0 {
                    used.getattr(&root).unwrap();
                }
                stream
            })
            .collect();
        used.getattr(&root).expect("the connection in use is kept");
        check(address);
        drop(idle);
    });
    image.judge();
}

#[test]
fn a_server_with_half_requests_ends_soon() {
    let image = MemoryImage::ext4();
    let mut began = Instant::now();
    common::serve(&image, &options(), |address| {
        let mut half = NfsClient::connect(address);
        half.send(&[0x80, 0, 0]);
        std::mem::forget(half);
        check(address);
        began = Instant::now();
    });
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

/// Changes of valid messages get replies or errors, and leave a sound image.
#[test]
fn changed_messages_are_harmless() {
    on_both(|image| {
        let service =
            NfsService::new(image.fs(), nfs::NfsOptions { sync: false, ..options() }).unwrap();
        let messages = valid_messages(&service);
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let mut answered = 0;
        for round in 0..20_000 {
            let mut message = messages[round % messages.len()].clone();
            for _ in 0..=next(3) {
                let at = next(message.len());
                message[at] = match next(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => message[at] ^ 1 << next(8),
                    _ => next(256) as u8,
                };
            }
            if next(8) == 0 {
                message.truncate(next(message.len()));
            }
            answered += usize::from(service.answer(CLIENT, &message).is_some());
        }
        assert!(answered > 10_000, "{answered}");
        service.sync().unwrap();
        assert!(!service.is_damaged());
    });
}

/// Returns messages for all procedures with valid handles, which were answered once.
fn valid_messages(service: &NfsService<'_>) -> Vec<Vec<u8>> {
    let head = |xid: u32, program: u32, procedure: u32| {
        let credentials = Message::default().u32(0).opaque(b"m").u32(0).u32(0).u32(1).u32(7);
        let head = Message::default().u32(xid).u32(0).u32(2).u32(program).u32(3).u32(procedure);
        head.u32(1).opaque(&credentials.0).u32(0).u32(0)
    };
    let answer = |message: &Message| service.answer(CLIENT, &message.0).unwrap();
    let mounted = answer(&head(1, MOUNT, 1).opaque(EXPORT.as_bytes()));
    // After the record mark, six words of RPC and the status there is a handle of 44 bytes.
    let root = mounted[36..80].to_vec();
    let attributes =
        |message: Message| message.u32(1).u32(0o755).u32(0).u32(0).u32(0).u32(0).u32(0);
    let made = answer(&attributes(head(2, NFS, 8).opaque(&root).opaque(b"file").u32(1)));
    // After the status there is also the presence of the handle.
    let file = made[40..84].to_vec();
    let (name, other) = (&b"file"[..], &b"other"[..]);
    let in_root = |procedure, name: &[u8]| head(9, NFS, procedure).opaque(&root).opaque(name);
    let of = |procedure, handle: &[u8]| head(9, NFS, procedure).opaque(handle);
    let mut messages = vec![
        of(1, &file),
        attributes(of(2, &file)).u32(0),
        in_root(3, name),
        of(4, &file).u32(0x3f),
        of(5, &file),
        of(6, &file).u64(0).u32(1 << 20),
        of(7, &file).u64(100).u32(40).u32(0).opaque(&[7; 40]),
        attributes(in_root(8, name).u32(0)),
        in_root(8, name).u32(2).u64(77),
        attributes(in_root(9, b"dir")),
        attributes(in_root(10, b"link")).opaque(b"target"),
        attributes(in_root(11, b"fifo").u32(7)),
        attributes(in_root(11, b"device").u32(4)).u32(1).u32(2),
        in_root(12, b"link"),
        in_root(13, b"dir"),
        in_root(14, b"fifo").opaque(&root).opaque(other),
        of(15, &file).opaque(&root).opaque(other),
        of(16, &root).u64(0).u64(0).u32(4096),
        of(17, &root).u64(0).u64(0).u32(4096).u32(4096),
        of(18, &root),
        of(19, &root),
        of(20, &root),
        of(21, &file).u64(0).u32(0),
        head(9, MOUNT, 1).opaque(b"/export/dir"),
        head(9, MOUNT, 5),
    ];
    for message in &mut messages {
        let reply = answer(message);
        assert_eq!(reply[24..28], [0; 4], "accepted");
    }
    messages.into_iter().map(|message| message.0).collect()
}
