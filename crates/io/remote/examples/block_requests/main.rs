//! Compares servers of block devices by random requests of 4 KiB, one and sixteen at a time, in turns:
//!
//! ```sh
//! cargo run --release -p diskwright-remote --features vhost-user --example block_requests -- \
//!     SECONDS ROUNDS vhost:SOCKET nbd:SOCKET…
//! ```
//!
//! The clients wait for notifications and replies without polling. Contents of the devices are lost.

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/vhost_user/driver.rs"]
mod driver;
#[cfg(target_os = "linux")]
mod nbd;
#[cfg(target_os = "linux")]
mod vhost;

/// Length of a request in bytes.
#[cfg(target_os = "linux")]
const REQUEST_BYTES: u64 = 4096;

/// Client of a server, which keeps `depth` requests in flight.
#[cfg(target_os = "linux")]
trait Client {
    /// Performs requests at random offsets until the deadline, and waits for all of them. Returns their number.
    fn run(&mut self, writes: bool, depth: u16, until: std::time::Instant) -> u64;
}

#[cfg(target_os = "linux")]
fn main() {
    use std::path::Path;
    use std::time::{Duration, Instant};
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, rounds, servers @ ..] = &*words else {
        panic!("usage: block_requests SECONDS ROUNDS vhost:SOCKET nbd:SOCKET…");
    };
    let time = Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let rounds: usize = rounds.parse().expect("rounds");
    let mut clients: Vec<Box<dyn Client>> = Vec::new();
    for server in servers {
        clients.push(match server.split_once(':').expect("protocol:socket") {
            ("vhost", socket) => Box::new(vhost::VhostClient::connect(Path::new(socket))),
            (_, socket) => Box::new(nbd::NbdClient::connect(Path::new(socket)).expect("connect")),
        });
    }
    for (name, writes, depth) in
        [("reads", false, 1), ("reads", false, 16), ("writes", true, 1), ("writes", true, 16)]
    {
        let mut rates = vec![Vec::new(); clients.len()];
        // The first round is a warm-up.
        for round in 0..=rounds {
            for (client, rates) in clients.iter_mut().zip(&mut rates) {
                let start = Instant::now();
                let count = client.run(writes, depth, start + time);
                if round > 0 {
                    rates.push(count as f64 / start.elapsed().as_secs_f64());
                }
            }
        }
        for (server, rates) in servers.iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            let (median, last) = (rates[rates.len() / 2], rates.len() - 1);
            println!(
                "{name} {depth:2} in flight  {median:9.0}/s  ({:.0} to {:.0})  {server}",
                rates[0], rates[last]
            );
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
