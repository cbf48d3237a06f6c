//! A line that asks for something.

/// What is asked for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) words: Vec<String>,
}

impl Request {
    /// `None` for a line that says nothing. Words may stand in quotation marks, which are doubled inside.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let mut words = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let word;
            (word, rest) = match rest.strip_prefix('"') {
                Some(inside) => quoted(inside)?,
                None => {
                    let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                    (word.to_owned(), rest)
                }
            };
            rest = rest.trim_start();
            words.push(word);
        }
        let name = words.remove(0);
        Ok(Some(Self { name, words }))
    }

    /// The words, if there are as many as this.
    pub(super) fn exactly<const N: usize>(&self) -> Result<[&str; N], String> {
        let words = self.words.iter().map(String::as_str).collect::<Vec<_>>();
        let found = words.len();
        words.try_into().map_err(|_| format!("{} has {N} words after it, not {found}", self.name))
    }
}

/// What is inside of quotation marks, and what is behind them.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut word = String::new();
    let mut rest = text;
    loop {
        let (before, behind) =
            rest.split_once('"').ok_or("a quotation mark has no other one behind it")?;
        word.push_str(before);
        match behind.strip_prefix('"') {
            Some(behind) => {
                word.push('"');
                rest = behind;
            }
            None => return Ok((word, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_have_spaces_in_quotation_marks() {
        let request = Request::parse("  write \"a b\" \"say \"\"so\"\"\"  c ").unwrap().unwrap();
        assert_eq!(request.name, "write");
        assert_eq!(request.words, ["a b", "say \"so\"", "c"]);
        assert!(request.exactly::<2>().unwrap_err().contains("2 words"));
        assert!(Request::parse("# write").unwrap().is_none());
        assert!(Request::parse(" ").unwrap().is_none());
        assert!(Request::parse("cat \"x").is_err());
    }
}
