//! The syntax of LVM's metadata: sections, values and lists.

/// Maximum depth of sections. The metadata has four levels.
const DEPTH_MAX: usize = 8;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Number(i64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Value>),
}

/// A section: values and further sections by name, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Values.
    pub values: Vec<(String, Value)>,
    /// Sections.
    pub sections: Vec<(String, Section)>,
}

impl Section {
    /// Returns the value with this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the section with this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Self> {
        self.sections.iter().find(|(key, _)| key == name).map(|(_, section)| section)
    }

    /// Returns a string.
    ///
    /// # Errors
    /// A description if it is missing or has another type.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        match self.value(name) {
            Some(Value::Text(text)) => Ok(text),
            found => Err(format!("{name} is {found:?}, expected a string")),
        }
    }

    /// Returns a number that is not negative.
    ///
    /// # Errors
    /// A description if it is missing or has another type.
    pub fn number(&self, name: &str) -> Result<u64, String> {
        match self.value(name) {
            Some(Value::Number(number)) if *number >= 0 => Ok(number.unsigned_abs()),
            found => Err(format!("{name} is {found:?}, expected a number")),
        }
    }

    /// Returns a list. A single value is a list with one element.
    ///
    /// # Errors
    /// A description if it is missing.
    pub fn list(&self, name: &str) -> Result<&[Value], String> {
        match self.value(name) {
            Some(Value::List(list)) => Ok(list),
            Some(single) => Ok(std::slice::from_ref(single)),
            None => Err(format!("{name} is missing")),
        }
    }

    /// Returns whether a list contains a string.
    #[must_use]
    pub fn lists(&self, name: &str, text: &str) -> bool {
        let is = |value: &Value| matches!(value, Value::Text(found) if found == text);
        self.list(name).is_ok_and(|list| list.iter().any(is))
    }
}

/// Parses text.
///
/// # Errors
/// A description of the first problem, with its line.
pub fn parse(text: &[u8]) -> Result<Section, String> {
    // The text ends with a NUL.
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = str::from_utf8(&text[..end]).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut parser = Parser { text, at: 0 };
    let section = parser.section(0);
    section.map_err(|problem| {
        let line = text[..parser.at].bytes().filter(|byte| *byte == b'\n').count() + 1;
        format!("line {line}: {problem}")
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips space and comments, and returns the next byte.
    fn next(&mut self) -> Option<u8> {
        loop {
            match self.peek()? {
                b'#' => self.skip(|byte| byte != b'\n'),
                byte if byte.is_ascii_whitespace() => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn skip(&mut self, accept: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&accept) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> &'a str {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || b"_-.+/".contains(&byte));
        &self.text[start..self.at]
    }

    /// Parses entries up to the end of a section, or of the text at depth 0.
    fn section(&mut self, depth: usize) -> Result<Section, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} nested sections"));
        }
        let mut section = Section::default();
        loop {
            match (self.next(), depth) {
                (None, 0) => return Ok(section),
                (None, _) => return Err("the text ends within a section".into()),
                (Some(b'}'), 1..) => {
                    self.at += 1;
                    return Ok(section);
                }
                _ => {}
            }
            let name = self.word().to_owned();
            match (name.is_empty(), self.next()) {
                (false, Some(b'{')) => {
                    self.at += 1;
                    section.sections.push((name, self.section(depth + 1)?));
                }
                (false, Some(b'=')) => {
                    self.at += 1;
                    section.values.push((name, self.value()?));
                }
                (_, found) => return Err(unexpected(found, "a name with a value or section")),
            }
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        if self.next() != Some(b'[') {
            return self.single();
        }
        self.at += 1;
        let mut list = Vec::new();
        loop {
            match self.next() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::List(list));
                }
                Some(b',') => self.at += 1,
                _ => list.push(self.single()?),
            }
        }
    }

    fn single(&mut self) -> Result<Value, String> {
        match self.next() {
            Some(b'"') => self.string(),
            Some(b'0'..=b'9' | b'-') => {
                let word = self.word();
                word.parse().map(Value::Number).map_err(|_| format!("{word:?} is not an integer"))
            }
            found => Err(unexpected(found, "a value")),
        }
    }

    fn string(&mut self) -> Result<Value, String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(['"', '\\']) else {
                return Err("the text ends within a string".into());
            };
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Ok(Value::Text(text));
            }
            let Some(escaped) = self.text[self.at..].chars().next() else {
                return Err("the text ends within a string".into());
            };
            text.push(escaped);
            self.at += escaped.len_utf8();
        }
    }
}

fn unexpected(found: Option<u8>, expected: &str) -> String {
    match found {
        None => format!("the text ends, expected {expected}"),
        Some(byte) => format!("found {:?}, expected {expected}", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_values_and_lists_are_read() {
        let text = b"# c\nvg {\nid = \"a\\\"b\" # d\nflags = []\nn = [1, \"x\", -2]\nin-1 {\nk=7\n}\n}\nv = 1\n\0rest";
        let root = parse(text).unwrap();
        let vg = root.section("vg").unwrap();
        assert_eq!(vg.text("id"), Ok("a\"b"));
        assert_eq!(vg.list("flags"), Ok(&[][..]));
        let list = [Value::Number(1), Value::Text("x".into()), Value::Number(-2)];
        assert_eq!(vg.list("n"), Ok(&list[..]));
        assert!(vg.lists("n", "x") && !vg.lists("n", "y"));
        assert_eq!(vg.section("in-1").unwrap().number("k"), Ok(7));
        assert_eq!(root.number("v"), Ok(1));
        assert!(vg.number("id").is_err() && vg.text("none").is_err());
    }

    #[test]
    fn text_that_is_cut_short_or_too_deep_is_an_error() {
        for (text, problem) in [
            ("vg {\nid = 1\n", "line 3: the text ends within a section"),
            ("vg {\nid = \"a", "line 2: the text ends within a string"),
            ("a = \"\\", "line 1: the text ends within a string"),
            ("a = [1, ", "line 1: the text ends, expected a value"),
            ("a", "line 1: the text ends, expected a name with a value or section"),
            ("}", "line 1: found '}', expected a name with a value or section"),
            ("a = 1x", "line 1: \"1x\" is not an integer"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), problem, "{text}");
        }
        let deep = "a{".repeat(100_000);
        assert!(parse(deep.as_bytes()).unwrap_err().contains("nested"));
        assert!(parse(b"\xff").is_err());
    }
}
