//! The words of a prototype file.

/// Position in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    at: usize,
    line: usize,
}

impl Words {
    pub(super) fn new() -> Self {
        Self { at: 0, line: 1 }
    }

    /// Returns the line of the last word, starting at 1.
    pub(super) fn line(self) -> usize {
        self.line
    }

    /// Returns the next word; skips comments.
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        loop {
            match bytes.get(self.at)? {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                byte if byte.is_ascii_whitespace() => self.at += 1,
                b':' => self.at += len_until(&bytes[self.at..], |byte| byte == b'\n'),
                _ => break,
            }
        }
        let rest = &bytes[self.at..];
        let len = len_until(rest, |byte| byte.is_ascii_whitespace());
        self.at += len;
        Some(&rest[..len])
    }
}

fn len_until(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| is_end(*byte)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_comments_separate_words() {
        let text = b" a\tb : c d\n:e\n\n f$ $";
        let mut words = Words::new();
        let mut found = Vec::new();
        while let Some(word) = words.next(text) {
            found.push((words.line(), std::str::from_utf8(word).unwrap()));
        }
        assert_eq!(found, [(1, "a"), (1, "b"), (4, "f$"), (4, "$")]);
    }
}
