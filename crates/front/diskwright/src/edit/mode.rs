//! Modes in the syntax of `chmod`: octal or symbolic.

use vfs::FileType;

/// Change of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Clause>);

/// All permission bits.
const ALL: u16 = 0o7777;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Clause {
    /// Exactly these bits.
    Octal(u16),
    Symbolic {
        /// Affected classes: the bits of user, group and others, including theirs of 0o7000.
        who: u16,
        operator: u8,
        what: ModeBits,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeBits {
    /// Permission bits for all classes, and whether `X` is included.
    Bits { bits: u16, conditional_execute: bool },
    /// Copy of the bits of a class, given as a shift.
    CopyOf(u16),
}

impl ModeChange {
    /// Parses `755`, `u+rwx,go-w`, `a=rX`, `g=u`, `+t`. Without letters before the operator, all classes are affected,
    /// because an image has no umask.
    ///
    /// # Errors
    /// A message with the expected syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let problem = || {
            format!(
                "{text:?} is not a mode: write octal digits such as 0755, or changes such as \
                 u+rwx,go-w"
            )
        };
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok().filter(|&bits| bits <= ALL);
            return bits.map(|bits| Self(vec![Clause::Octal(bits)])).ok_or_else(problem);
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_clauses(part.as_bytes(), &mut clauses).ok_or_else(problem)?;
        }
        Ok(Self(clauses))
    }

    /// Returns the new permission bits.
    pub fn apply(&self, permissions: u16, file_type: FileType) -> u16 {
        self.0.iter().fold(permissions & ALL, |bits, clause| clause.apply(bits, file_type))
    }
}

/// Parses one comma-separated part: classes, followed by operators with permissions.
fn parse_clauses(part: &[u8], clauses: &mut Vec<Clause>) -> Option<()> {
    let letters = part.iter().take_while(|&b| b"ugoa".contains(b)).count();
    let who = part[..letters].iter().fold(0, |who, letter| {
        who | match letter {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            _ => ALL,
        }
    });
    let who = if letters == 0 { ALL } else { who };
    let mut rest = &part[letters..];
    if rest.is_empty() {
        return None;
    }
    while let Some((&operator, after)) = rest.split_first() {
        if !b"+-=".contains(&operator) {
            return None;
        }
        let len = after.iter().take_while(|b| !b"+-=".contains(b)).count();
        clauses.push(Clause::Symbolic { who, operator, what: ModeBits::parse(&after[..len])? });
        rest = &after[len..];
    }
    Some(())
}

impl ModeBits {
    fn parse(letters: &[u8]) -> Option<Self> {
        match letters {
            b"u" => return Some(Self::CopyOf(6)),
            b"g" => return Some(Self::CopyOf(3)),
            b"o" => return Some(Self::CopyOf(0)),
            _ => {}
        }
        let (mut bits, mut conditional_execute) = (0, false);
        for letter in letters {
            match letter {
                b'r' => bits |= 0o444,
                b'w' => bits |= 0o222,
                b'x' => bits |= 0o111,
                b'X' => conditional_execute = true,
                b's' => bits |= 0o6000,
                b't' => bits |= 0o1000,
                _ => return None,
            }
        }
        Some(Self::Bits { bits, conditional_execute })
    }
}

impl Clause {
    fn apply(&self, old: u16, file_type: FileType) -> u16 {
        let (who, operator, what) = match *self {
            Self::Octal(bits) => return bits,
            Self::Symbolic { who, operator, what } => (who, operator, what),
        };
        let bits = match what {
            ModeBits::CopyOf(shift) => (old >> shift & 7) * 0o111,
            ModeBits::Bits { bits, conditional_execute } => {
                let executes = file_type == FileType::Directory || old & 0o111 != 0;
                bits | if conditional_execute && executes { 0o111 } else { 0 }
            }
        };
        // The sticky bit belongs to all classes: "u+t" has no effect, "+t" and "o+t" set it.
        let bits = bits & who;
        match operator {
            b'+' => old | bits,
            b'-' => old & !bits,
            _ if file_type == FileType::Directory => {
                // As in chmod, "=" preserves a directory's special bits unless it lists them.
                old & (!who | 0o6000) | bits
            }
            _ => old & !who | bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_mean_what_chmod_takes_them_for() {
        for (text, before, after) in [
            ("755", 0o600, 0o755),
            ("04711", 0, 0o4711),
            ("u+x", 0o644, 0o744),
            ("+x", 0o644, 0o755),
            ("go-rwx", 0o777, 0o700),
            ("a=r", 0o4755, 0o444),
            ("u=rw,go=", 0o755, 0o600),
            ("g=u", 0o741, 0o771),
            ("o=g-w", 0o770, 0o775),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u+s,g+s,+t", 0o755, 0o7755),
            ("u=rwx+s", 0o644, 0o4744),
            ("-w", 0o666, 0o444),
        ] {
            let mode = ModeChange::parse(text).unwrap();
            assert_eq!(mode.apply(before, FileType::Regular), after, "{text} on {before:o}");
        }
        let mode = ModeChange::parse("g=rX").unwrap();
        assert_eq!(mode.apply(0o2700, FileType::Directory), 0o2750);
        for bad in ["", "8", "77777", "u", "u+q", "x+r", "u+r,", "u+ug", "0x1"] {
            assert!(ModeChange::parse(bad).is_err(), "{bad:?}");
        }
    }
}
