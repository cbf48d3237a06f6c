//! `diskwright serve`.

use std::path::PathBuf;
use std::thread::available_parallelism;

use clap::{ArgGroup, Args, value_parser};
use diskwright::serve::{Address, Export, Service};
use diskwright::{Outcome, Result, stop_on_signals};

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

Clients read the raw bytes of the image, and can write them unless --read-only or --norecovery is given. All clients share \
one image: after a flush by one client, all clients see its data. A writable image is locked as by a mount. There are no \
passwords and no TLS: every client that can connect can read and write, so do not listen on untrusted networks. A \
vhost-user socket serves one virtual machine at a time, which must share its memory. --ublk needs root, Linux 6.5 or later \
and its module ublk_drv. Ctrl-C, SIGTERM or SIGHUP stops the server after all writes are durable. Unmount a file system on \
a ublk device before: the device disappears.";

/// Serve an image as a block device to virtual machines and kernels, by NBD, vhost-user or ublk
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
    #[arg(long, value_name = "NUMBER", conflicts_with = "nbd", value_parser = value_parser!(u8).range(1..=64))]
    queues: Option<u8>,

    /// Reject writes of all clients
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Outcome> {
    // Install the signal handler before a socket exists that a signal would leave behind.
    let stop = stop_on_signals()?;
    let options = args.image.options()?;
    let service = Service::open(&args.image.image, &options, &export(args), args.read_only)?;
    service.serve(stop, &mut |address| {
        terminal::message(&format_args!("serving at {address}; stop it with Ctrl-C"));
    })?;
    Ok(Outcome::Done)
}

fn export(args: &ServeArgs) -> Export {
    let default = || available_parallelism().map_or(1, |count| count.get().min(8) as u8);
    let queues = args.queues.unwrap_or_else(default);
    match (&args.nbd, &args.vhost_user) {
        (Some(address), _) => Export::Nbd(address.clone()),
        (_, Some(socket)) => {
            Export::VhostUser { socket: socket.clone(), queues: usize::from(queues) }
        }
        (None, None) => Export::Ublk { queues: u16::from(queues) },
    }
}
