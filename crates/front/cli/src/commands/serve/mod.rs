//! `diskwright serve`.

mod webdav;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::builder::BoolishValueParser;
use clap::{ArgGroup, Args, value_parser};
use diskwright::serve::{Address, Export, ExportPath, NfsAddresses, NfsExport, Service};
use diskwright::{Error, Outcome, Result, stop_on_signals};

use self::webdav::WebdavArgs;
use super::arguments::ImageArgs;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright serve root.img --nbd unix:/run/root.sock
  diskwright serve disk.img --partition 2 --nbd 127.0.0.1:10809 --read-only
  qemu-system-x86_64 -drive file=nbd+unix:///?socket=/run/root.sock,format=raw
  nbd-client -unix /run/root.sock /dev/nbd0
  diskwright serve root.img --vhost-user /run/root.vhost --queues 2
  qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=mem,size=1G,share=on \\
    -machine memory-backend=mem -chardev socket,id=root,path=/run/root.vhost \\
    -device vhost-user-blk-pci,chardev=root,num-queues=2
  diskwright serve root.img --ublk                      # a block device such as /dev/ublkb0
  diskwright serve root.img --nfs
  diskwright serve root.img --nfs 127.0.0.1:2049 --export /root --read-only
  nfs-ls 'nfs://127.0.0.1/root?nfsport=2049&mountport=2049'
  diskwright serve root.img --webdav                    # prints an address for browsers and WebDAV clients
  diskwright serve root.img --webdav 127.0.0.1:8080 --password-file password.txt --read-only

Clients of NBD, vhost-user and ublk read the raw bytes of the image, and can write them unless --read-only or \
--norecovery is given. All clients share one image: after a flush by one client, all clients see its data. A writable image \
is locked as by a mount. There are no passwords and no TLS: every client that can connect can read and write, so do not \
listen on untrusted networks. A vhost-user socket serves one virtual machine at a time, which must share its memory. --ublk \
needs root, Linux 6.5 or later and its module ublk_drv. Unmount a file system on a ublk device before you stop the server: \
the device disappears.

--nfs serves the files of the image, by NFSv3 on one TCP port. It prints an address for programs with libnfs, and the \
commands that mount it. By default it listens on 127.0.0.1 at a free port, the path of the export is a random secret, and \
every client that knows it has all rights. On Linux, only programs of this user and of root may connect to a loopback \
address. NFS sends everything in clear text.

--webdav serves the files of the image by HTTP: as WebDAV, and as pages for browsers. By default it listens on 127.0.0.1 at \
a free port, and the printed address contains a random secret. With --password-file clients send a password instead. HTTP \
sends everything in clear text.

Ctrl-C, SIGTERM or SIGHUP stops the server after all writes are durable.";

/// Serve an image as a block device by NBD, vhost-user or ublk, or its files by NFS or WebDAV
#[derive(Debug, Args)]
#[command(after_help = NOTES, group = ArgGroup::new("export").required(true))]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Listen on this address: unix:PATH or HOST:PORT
    #[arg(long, value_name = "ADDRESS", group = "export")]
    nbd: Option<Address>,

    /// Be the disk of a virtual machine (vhost-user-blk) at this Unix socket. Linux only
    #[arg(long, value_name = "SOCKET", group = "export")]
    vhost_user: Option<PathBuf>,

    /// Be a block device of this machine's kernel. Linux 6.5 or later, as root
    #[arg(long, group = "export")]
    ublk: bool,

    /// Number of queues for --vhost-user and --ublk: 1 to 64. Default: one for each processor, at most 8
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["nbd", "nfs", "webdav"], value_parser = value_parser!(u8).range(1..=64))]
    queues: Option<u8>,

    /// Serve the files of the image by NFSv3 at this address: IP or IP:PORT. Default: 127.0.0.1 and a free port
    #[arg(long, value_name = "ADDRESS", groups = ["export", "files"], num_args = 0..=1, default_missing_value = "127.0.0.1", value_parser = ip_address)]
    nfs: Option<SocketAddr>,

    /// Serve the files of the image by WebDAV, and to browsers, at this address: IP or IP:PORT. Default: 127.0.0.1 and a
    /// free port
    #[arg(long, value_name = "ADDRESS", groups = ["export", "files"], num_args = 0..=1, default_missing_value = "127.0.0.1", value_parser = ip_address)]
    webdav: Option<SocketAddr>,

    /// Path that clients of --nfs mount. Handles of files stay valid if the server restarts with the same path. Default: a
    /// random secret
    #[arg(long = "export", id = "export-path", value_name = "PATH", requires = "nfs", conflicts_with_all = ["nbd", "vhost_user", "ublk", "webdav"])]
    export_path: Option<ExportPath>,

    /// Permit addresses for --nfs and --webdav that other hosts can reach. Hosts between read and change everything
    #[arg(long, requires = "files", conflicts_with_all = ["nbd", "vhost_user", "ublk"])]
    allow_remote: bool,

    /// Permit programs of all users of this host to connect to --nfs and --webdav at a loopback address. Without this option
    /// only those of this user and of root may, on Linux
    #[arg(long, requires = "files", conflicts_with_all = ["nbd", "vhost_user", "ublk"])]
    all_users: bool,

    /// Show all files as files of this user to clients of --nfs. Changes keep the owners in the image. The default on macOS
    /// and Windows
    #[arg(long, value_name = "yes|no", requires = "nfs", num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = BoolishValueParser::new(), conflicts_with_all = ["nbd", "vhost_user", "ublk", "webdav"])]
    map_user: Option<bool>,

    /// Check permissions for the users that clients of --nfs claim to be
    #[arg(long, requires = "nfs", conflicts_with_all = ["nbd", "vhost_user", "ublk", "webdav"])]
    check_permissions: bool,

    /// Let clients of --nfs continue before changes of names and attributes are durable, those of --webdav before any
    /// change is
    #[arg(long = "async", id = "async", requires = "files", conflicts_with_all = ["nbd", "vhost_user", "ublk"])]
    is_async: bool,

    #[command(flatten)]
    webdav_options: WebdavArgs,

    /// Reject writes of all clients
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Outcome> {
    // Install the signal handler before a socket exists that a signal would leave behind.
    let stop = stop_on_signals()?;
    let options = args.image.options()?;
    let service = Service::open(&args.image.image, &options, &export(args)?, args.read_only)?;
    let is_remote = |address: Option<SocketAddr>| address.is_some_and(|at| !at.ip().is_loopback());
    if let Some(addresses) = service.nfs_addresses() {
        if is_remote(args.nfs) {
            terminal::message(
                &"warning: other hosts can read and change the files; NFS does not encrypt",
            );
        }
        print(addresses)?;
    }
    if let Some(addresses) = service.webdav_addresses() {
        if is_remote(args.webdav) {
            terminal::message(
                &"warning: hosts on the way can read and change the files; HTTP does not encrypt",
            );
        }
        terminal::with_output(|out| writeln!(out, "{}", addresses.url).map_err(Error::Output))?;
    }
    service.serve(stop, &mut |address| {
        terminal::message(&format_args!("serving at {address}; stop it with Ctrl-C"));
    })?;
    Ok(Outcome::Done)
}

/// Prints the addresses for clients, so that programs can read them.
fn print(addresses: &NfsAddresses) -> Result<()> {
    let NfsAddresses { url, linux_command, macos_command, .. } = addresses;
    terminal::with_output(|out| {
        writeln!(out, "{url}\nLinux: {linux_command} DIRECTORY\nmacOS: {macos_command} DIRECTORY")
            .map_err(Error::Output)
    })
}

/// Parses an IP address with or without a port.
fn ip_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let with_port = |ip: IpAddr| SocketAddr::new(ip, 0);
    let parsed = text.parse().or_else(|_| text.parse().map(with_port));
    parsed.map_err(|_| "expected IP or IP:PORT, as in 127.0.0.1:2049 or [::1]:2049".into())
}

fn export(args: &ServeArgs) -> Result<Export> {
    if let Some(address) = args.nfs {
        let mut export = NfsExport::new(address);
        export.path.clone_from(&args.export_path);
        export.allow_remote = args.allow_remote;
        export.all_users = args.all_users;
        export.check_permissions = args.check_permissions;
        export.map_user = args.map_user.unwrap_or(export.map_user && !args.check_permissions);
        export.sync = !args.is_async;
        return Ok(Export::Nfs(export));
    }
    if let Some(address) = args.webdav {
        let mut export = args.webdav_options.export(address)?;
        export.allow_remote = args.allow_remote;
        export.all_users = args.all_users;
        export.sync = !args.is_async;
        return Ok(Export::Webdav(export));
    }
    let default = || available_parallelism().map_or(1, |count| count.get().min(8) as u8);
    let queues = args.queues.unwrap_or_else(default);
    Ok(match (&args.nbd, &args.vhost_user) {
        (Some(address), _) => Export::Nbd(address.clone()),
        (_, Some(socket)) => {
            Export::VhostUser { socket: socket.clone(), queues: usize::from(queues) }
        }
        (None, None) => Export::Ublk { queues: u16::from(queues) },
    })
}
