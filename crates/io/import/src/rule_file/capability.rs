//! File capabilities: text form and extended attribute.

/// Names of capabilities, indexed by their numbers in the kernel's `linux/capability.h`.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The extended attribute for file capabilities.
pub(crate) const XATTR_NAME: &[u8] = b"security.capability";

/// Revisions of its value, and the flag that makes the capabilities effective.
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
const EFFECTIVE: u32 = 1;

/// Capabilities of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCapabilities {
    permitted: u64,
    inheritable: u64,
    effective: u64,
    root_id: Option<u32>,
}

impl FileCapabilities {
    /// Parses the syntax of `setcap`, such as `cap_net_raw,cap_net_admin+ep`, `all=eip` or `cap_chown=p cap_kill+i`. A
    /// final `[rootid=1000]` is the root user of the user namespace, as in `getcap -n`.
    ///
    /// # Errors
    /// A sentence with the expected syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        let mut words = text.split_ascii_whitespace().peekable();
        if words.peek().is_none() {
            return Err("write capabilities such as cap_net_raw+ep".into());
        }
        while let Some(word) = words.next() {
            if let Some(id) = word.strip_prefix("[rootid=").and_then(|w| w.strip_suffix(']')) {
                let id = id.parse().ok().filter(|_| words.peek().is_none());
                let problem = "[rootid=NUMBER] must come last";
                found.root_id = Some(id.ok_or_else(|| format!("{word:?}: {problem}"))?);
                break;
            }
            found.clause(word)?;
        }
        let granted = found.permitted | found.inheritable;
        if found.effective != 0 && found.effective != granted {
            return Err(format!(
                "{text:?}: either all capabilities of a file are effective (e) or none"
            ));
        }
        Ok(found)
    }

    /// Returns the capabilities with a set bit, all of them effective.
    pub(crate) fn effective(bits: u64) -> Self {
        Self { permitted: bits, effective: bits, ..Self::default() }
    }

    /// Parses a list of capabilities with its operators.
    fn clause(&mut self, word: &str) -> Result<(), String> {
        let operators = ['=', '+', '-'];
        let problem = || {
            format!("{word:?} is not a capability clause: write it like cap_net_raw,cap_chown+ep")
        };
        let start = word.find(operators).ok_or_else(problem)?;
        let (list, mut rest) = word.split_at(start);
        let every = (1 << NAMES.len()) - 1;
        let caps = match list {
            "" if rest.starts_with('=') => every,
            list if list.eq_ignore_ascii_case("all") => every,
            list => list.split(',').try_fold(0, |caps, name| Ok::<_, String>(caps | bit(name)?))?,
        };
        while let Some(operator) = rest.chars().next() {
            let after = &rest[1..];
            let len = after.find(operators).unwrap_or(after.len());
            let flags = &after[..len];
            if !flags.chars().all(|flag| "eip".contains(flag))
                || flags.is_empty() && operator != '='
            {
                return Err(problem());
            }
            for (flag, set) in [
                ('e', &mut self.effective),
                ('i', &mut self.inheritable),
                ('p', &mut self.permitted),
            ] {
                match (operator, flags.contains(flag)) {
                    ('=', is_raised) => *set = *set & !caps | if is_raised { caps } else { 0 },
                    ('+', true) => *set |= caps,
                    ('-', true) => *set &= !caps,
                    _ => {}
                }
            }
            rest = &after[len..];
        }
        Ok(())
    }

    /// Returns the value of the attribute: revision 3 with a root user, otherwise 2.
    pub fn to_xattr(self) -> Vec<u8> {
        let revision = if self.root_id.is_some() { REVISION_3 } else { REVISION_2 };
        let effective = if self.effective != 0 { EFFECTIVE } else { 0 };
        let halves = |set: u64| [set as u32, (set >> 32) as u32];
        let (permitted, inheritable) = (halves(self.permitted), halves(self.inheritable));
        let mut words = vec![revision | effective];
        for half in 0..2 {
            words.extend([permitted[half], inheritable[half]]);
        }
        words.extend(self.root_id);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Merges two sets, for tables that list capabilities one by one.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            permitted: self.permitted | other.permitted,
            inheritable: self.inheritable | other.inheritable,
            effective: self.effective | other.effective,
            root_id: other.root_id.or(self.root_id),
        }
    }

    /// Returns whether the kernel accepts them: all effective or none.
    pub(crate) fn is_whole(self) -> bool {
        self.effective == 0 || self.effective == self.permitted | self.inheritable
    }
}

fn bit(name: &str) -> Result<u64, String> {
    let lower = name.to_ascii_lowercase();
    let number = match lower.strip_prefix("cap_") {
        Some(rest) => NAMES.iter().position(|known| *known == rest),
        None => lower.parse().ok().filter(|number| *number < NAMES.len()),
    };
    number.map(|number| 1 << number).ok_or_else(|| {
        format!(
            "{name:?} is not a capability: write a name such as cap_net_raw, see capabilities(7)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Result<String, String> {
        let value = FileCapabilities::parse(text)?.to_xattr();
        Ok(value.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    #[test]
    fn text_becomes_what_the_kernel_keeps() {
        // Values written by setcap.
        let raw = "0100000200200000000000000000000000000000";
        assert_eq!(hex("cap_net_raw+ep").unwrap(), raw);
        assert_eq!(hex("CAP_NET_RAW=ep").unwrap(), raw);
        assert_eq!(hex("13=pe").unwrap(), raw);
        assert_eq!(hex("all=eip cap_chown-eip").unwrap(), hex("=eip cap_chown=").unwrap());
        assert_eq!(hex("cap_bpf+i").unwrap(), "0000000200000000000000000000000080000000");
        assert_eq!(
            hex("cap_net_raw+ep [rootid=1000]").unwrap(),
            "0100000300200000000000000000000000000000e8030000"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "cap_net_raw", "cap_nothing+ep", "cap_chown+", "cap_chown+x", "41+p"] {
            assert!(hex(text).is_err(), "{text}");
        }
        assert!(hex("cap_chown+p cap_kill+ep").unwrap_err().contains("either all capabilities"));
        assert!(hex("[rootid=1] cap_kill+p").unwrap_err().contains("must come last"));
        assert!(hex("+ep").is_err());
    }
}
