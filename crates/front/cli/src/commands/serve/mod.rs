//! `diskwright serve`.

use clap::Args;
use diskwright::serve::{Address, Service};
use diskwright::{Outcome, Result, stop_on_signals};

use super::arguments::ImageArgs;
use crate::terminal;

const NOTES: &str = "\
Examples:
  diskwright serve root.img --nbd unix:/run/root.sock
  diskwright serve disk.img --partition 2 --nbd 127.0.0.1:10809 --read-only
  qemu-system-x86_64 -drive file=nbd+unix:///?socket=/run/root.sock,format=raw
  nbd-client -unix /run/root.sock /dev/nbd0

Clients read the raw bytes of the image, and can write them unless --read-only or --norecovery is given. All clients share \
one image: after a flush by one client, all clients see its data. A writable image is locked as by a mount. There are no \
passwords and no TLS: every client that can connect can read and write, so do not listen on untrusted networks. Ctrl-C, \
SIGTERM or SIGHUP stops the server after all writes are durable.";

/// Serve an image as a network block device (NBD) to virtual machines and kernels
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Listen on this address: unix:PATH or HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    nbd: Address,

    /// Reject writes of all clients
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Outcome> {
    // Install the signal handler before a socket exists that a signal would leave behind.
    let stop = stop_on_signals()?;
    let options = args.image.options();
    let service = Service::open(&args.image.image, &options, &args.nbd, args.read_only)?;
    terminal::message(&format_args!("serving at {}; stop it with Ctrl-C", service.address()));
    service.serve(stop)?;
    Ok(Outcome::Done)
}
