//! Users of connections from this host.
//!
//! Linux lists the user of each TCP socket (`/proc/net/tcp` and `/proc/net/tcp6`, see proc(5)). Other hosts have no such
//! list, and programs of all their users may connect.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;

use crate::hint::Setting;

/// Users of this host whose programs may connect to a loopback address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalUsers {
    /// The user of this process, and the superuser.
    #[default]
    Own,
    /// The user of this process, the superuser, and the user with this number.
    OwnAnd(u32),
    /// All users.
    All,
}

/// Reason to refuse a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRefusal {
    peer: SocketAddr,
    /// User of the other end, or `None` if the other end is closed.
    user: Option<u32>,
}

impl Display for PeerRefusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { peer, user } = self;
        match user {
            Some(user) => write!(
                f,
                "refused the connection from {peer}: it belongs to user {user}, expected the user of the server or root; \
                 permit other users with {}",
                Setting::ALL_USERS
            ),
            None => write!(
                f,
                "refused the connection from {peer}: its user is unknown, because the other end is closed"
            ),
        }
    }
}

impl LocalUsers {
    /// Checks the user of a connection from `peer` that was accepted at `local`. Connections to other than loopback
    /// addresses pass, and all connections on hosts that do not list users.
    ///
    /// # Errors
    /// If these users do not include the one of the connection.
    pub fn check(self, local: SocketAddr, peer: SocketAddr) -> Result<(), PeerRefusal> {
        // The address of the peer does not count: clients choose any address of the host.
        if self == Self::All || !local.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        {
            let own = rustix::process::geteuid().as_raw();
            let may_connect = |user| [own, 0].contains(&user) || self == Self::OwnAnd(user);
            match table::user_of(peer, local) {
                Ok(Some(user)) if may_connect(user) => Ok(()),
                Ok(user) => Err(PeerRefusal { peer, user }),
                // Without /proc the host does not list users.
                Err(_) => Ok(()),
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = peer;
            Ok(())
        }
    }
}

#[cfg(target_os = "linux")]
mod table {
    use std::fmt::Write;
    use std::net::{IpAddr, SocketAddr};
    use std::{fs, io};

    /// Tables of IPv4 and IPv6. A socket of IPv6 may use IPv4 addresses.
    const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
    /// Maximum number of attempts to find a socket. The kernel may omit one while others change.
    const TRIES: u32 = 3;
    /// State of a connection with both ends open (`TCP_ESTABLISHED`). The kernel shows user 0 for closed sockets, so
    /// sockets in other states do not count.
    const ESTABLISHED: &str = "01";
    /// Conversions of four bytes of an address to a number. Tables are in the byte order of the kernel. An emulated
    /// program may have another one.
    pub(super) const ORDERS: [fn([u8; 4]) -> u32; 2] = [u32::from_le_bytes, u32::from_be_bytes];

    /// Returns the user of the open socket at `own` that is connected to `other`.
    pub(super) fn user_of(own: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
        for _ in 0..TRIES {
            for (at, name) in TABLES.iter().enumerate() {
                let is_v6 = at == 1;
                let table = match fs::read_to_string(name) {
                    Err(e) if is_v6 && e.kind() == io::ErrorKind::NotFound => continue,
                    table => table?,
                };
                let find = |number_of| {
                    let ends = [own, other].map(|end| hexadecimal(end, is_v6, number_of));
                    table.lines().find_map(|line| user_in(line, &ends))
                };
                if let Some(user) = ORDERS.into_iter().find_map(find) {
                    return Ok(Some(user));
                }
            }
        }
        Ok(None)
    }

    /// Returns the user in a line of a table, if it describes the open socket with these ends.
    pub(super) fn user_in(line: &str, [own, other]: &[String; 2]) -> Option<u32> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_it = words.next()? == own && words.next()? == other && words.next()? == ESTABLISHED;
        // Between them are queues, timers and retransmissions.
        words.nth(3)?.parse().ok().filter(|_| is_it)
    }

    /// Formats an address as in a table: numbers of 32 bits, and the port.
    pub(super) fn hexadecimal(
        address: SocketAddr,
        is_v6: bool,
        number_of: fn([u8; 4]) -> u32,
    ) -> String {
        let octets = match (address.ip().to_canonical(), is_v6) {
            (IpAddr::V4(ip), false) => ip.octets().to_vec(),
            (IpAddr::V4(ip), true) => ip.to_ipv6_mapped().octets().to_vec(),
            (IpAddr::V6(ip), _) => ip.octets().to_vec(),
        };
        let mut text = String::new();
        for bytes in octets.as_chunks().0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{:08X}", number_of(*bytes));
        }
        let _ = write!(text, ":{:04X}", address.port());
        text
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::table::{ORDERS, hexadecimal, user_in, user_of};
    use super::*;

    #[test]
    fn the_user_of_an_open_socket_is_found() {
        let [little, big] = ORDERS.map(|number_of| {
            ["127.0.0.1:40000", "127.0.0.1:2049"]
                .map(|address| hexadecimal(address.parse().unwrap(), false, number_of))
        });
        assert_eq!(little, ["0100007F:9C40", "0100007F:0801"]);
        assert_eq!(big, ["7F000001:9C40", "7F000001:0801"]);
        let ends = little;
        let [own, other] = &ends;
        let line = |state: &str| {
            format!(
                "   3: {own} {other} {state} 00000000:00000000 00:00000000 00000000  1000        0 77 1 0 20 4"
            )
        };
        assert_eq!(user_in(&line("01"), &ends), Some(1000));
        assert_eq!(user_in(&line("06"), &ends), None, "closed");
        assert_eq!(user_in(&line("01"), &[other.clone(), own.clone()]), None, "the other end");
        assert_eq!(user_in("  sl  local_address rem_address   st", &ends), None);
    }

    #[test]
    fn sockets_of_both_families_are_found_while_they_are_open() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            // Not every host has IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();
            assert_eq!(user_of(peer, local).unwrap(), Some(own), "{address}");
            assert_eq!(LocalUsers::Own.check(local, peer), Ok(()), "{address}");
            drop(client);
            assert_eq!(user_of(peer, local).unwrap(), None, "{address}");
            let refusal = LocalUsers::Own.check(local, peer).unwrap_err();
            assert!(refusal.to_string().contains("is closed"), "{refusal}");
            assert_eq!(LocalUsers::All.check(local, peer), Ok(()));
        }
    }
}
