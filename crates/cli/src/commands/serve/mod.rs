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

Clients get the bytes of the image as they lie, and may write them unless --read-only is given. They share the image:
what one has flushed, all see. An image that they may write is locked as by a mount. Who can connect can read and write:
there are no passwords and no TLS, so do not listen where strangers can reach it. Ctrl-C, SIGTERM or SIGHUP ends it,
after all that was written is durable.";

/// Offer an image to virtual machines and kernels as a network block device (NBD)
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    image: ImageArgs,

    /// Where to listen: unix:PATH, or HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    nbd: Address,

    /// Let nobody write
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Outcome> {
    // Install the signal handler before a socket exists that a signal would leave behind.
    let stop = stop_on_signals()?;
    let options = args.image.options();
    let service = Service::open(&args.image.image, &options, &args.nbd, args.read_only)?;
    terminal::message(&format_args!("serves at {}; Ctrl-C ends it", service.address()));
    service.serve(stop)?;
    Ok(Outcome::Done)
}
