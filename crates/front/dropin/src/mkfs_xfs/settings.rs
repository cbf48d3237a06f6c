//! Suboptions of mkfs.xfs as given on the command line and in files of `-c`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, STATUSES};
use crate::invoked::say;
use crate::lists::{self, ListItem};

/// Suboption: `-d agcount=4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) letter: char,
    name: String,
    value: Option<String>,
}

impl Setting {
    pub(super) fn item(&self) -> ListItem<'_> {
        ListItem::new(&self.name, self.value.as_deref(), self.letter, STATUSES)
    }

    fn is_prototype(&self) -> bool {
        (self.letter, &*self.name) == ('p', "file")
    }

    fn is_same_option(&self, other: &Self) -> bool {
        (self.letter, &self.name) == (other.letter, &other.name)
    }
}

/// All suboptions, each at most once.
#[derive(Debug, Default)]
pub(super) struct Settings {
    list: Vec<Setting>,
    options: Option<PathBuf>,
    defaults: Option<PathBuf>,
    /// File that is written instead of a file system (`makecfg`).
    pub(super) new_config: Option<PathBuf>,
}

/// Sections of a file, with their option letters.
const SECTIONS: [(&str, char); 9] = [
    ("block", 'b'),
    ("data", 'd'),
    ("inode", 'i'),
    ("log", 'l'),
    ("metadata", 'm'),
    ("naming", 'n'),
    ("proto", 'p'),
    ("realtime", 'r'),
    ("sector", 's'),
];

impl Settings {
    /// Adds the suboptions of `-LETTER LIST`.
    pub(super) fn add(&mut self, letter: char, list: &str) -> Result<(), Failure> {
        for item in lists::items(list, letter, STATUSES) {
            let value = item.value().map(str::to_owned);
            self.push(Setting { letter, name: item.name.to_owned(), value })?;
        }
        Ok(())
    }

    /// Adds the suboptions of `-p LIST`. An unknown name is a file name.
    pub(super) fn add_prototype(&mut self, list: &str) -> Result<(), Failure> {
        for item in lists::items(list, 'p', STATUSES) {
            if matches!(item.name, "file" | "atime" | "slashes_are_spaces") {
                let value = item.value().map(str::to_owned);
                self.push(Setting { letter: 'p', name: item.name.to_owned(), value })?;
            } else if item.value().is_some() && self.list.iter().any(Setting::is_prototype) {
                return Err(item.unknown());
            } else {
                let word = item
                    .value()
                    .map_or_else(|| item.name.to_owned(), |value| format!("{}={value}", item.name));
                self.add_file(word)?;
            }
        }
        Ok(())
    }

    /// Adds the name of a prototype file or a directory.
    pub(super) fn add_file(&mut self, file: String) -> Result<(), Failure> {
        self.push(Setting { letter: 'p', name: "file".into(), value: Some(file) })
    }

    /// Adds the suboptions of `-c LIST`: names of files with further suboptions, and of one that is written.
    pub(super) fn add_files(&mut self, list: &str) -> Result<(), Failure> {
        for item in lists::items(list, 'c', STATUSES) {
            let place = match item.name {
                "options" => &mut self.options,
                "defaults" => &mut self.defaults,
                "makecfg" => &mut self.new_config,
                _ => return Err(item.unknown()),
            };
            if place.replace(item.text()?.into()).is_some() {
                return Err(item.wrong("option respecified"));
            }
        }
        Ok(())
    }

    fn push(&mut self, setting: Setting) -> Result<(), Failure> {
        if self.list.iter().any(|known| known.is_same_option(&setting)) {
            return Err(setting.item().wrong("option respecified"));
        }
        self.list.push(setting);
        Ok(())
    }

    /// Reads the files and returns all suboptions. The command line overrides `defaults`. A suboption of `options` that
    /// is also given elsewhere is an error.
    pub(super) fn read(mut self) -> Result<Vec<Setting>, Failure> {
        if let Some(file) = self.defaults.take() {
            let given = std::mem::take(&mut self.list);
            for setting in parse_file(&file, "defaults config file")? {
                if !given.iter().any(|known| known.is_same_option(&setting)) {
                    self.push(setting)?;
                }
            }
            self.list.extend(given);
        }
        if let Some(file) = self.options.take() {
            for setting in parse_file(&file, "config file")? {
                self.push(setting)?;
            }
        }
        Ok(self.list)
    }
}

fn parse_file(file: &Path, what: &str) -> Result<Vec<Setting>, Failure> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|e| {
        STATUSES.failed(format_args!("Unable to open {what} {name}. Aborting. ({e})"))
    })?;
    let settings = parse(&text).map_err(|wrong| {
        let Wrong { line, option } = wrong;
        let option = option.map(|option| format!("{name}: invalid config file option: {option}\n"));
        STATUSES.failed(format_args!(
            "{}{name}: Unrecognised input on line {line}. Aborting.",
            option.unwrap_or_default()
        ))
    })?;
    say(format_args!("Parameters parsed from {what} {name} successfully"));
    Ok(settings)
}

/// Invalid line.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    line: usize,
    option: Option<String>,
}

/// Parses sections of lines `NAME=VALUE` or `NAME: VALUE`. Comments start with `#` or `;` at the start of a line, or
/// with `;` after white space.
fn parse(text: &str) -> Result<Vec<Setting>, Wrong> {
    let (mut settings, mut section) = (Vec::new(), "");
    for (at, line) in text.lines().enumerate() {
        let line_number = at + 1;
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = name.0;
            continue;
        }
        let pair =
            line.find(['=', ':']).map(|at| (line[..at].trim_end(), line[at + 1..].trim_start()));
        let Some((name, value)) = pair.filter(|(name, _)| !name.is_empty()) else {
            return Err(Wrong { line: line_number, option: None });
        };
        let known = SECTIONS.iter().find(|(known, _)| section.eq_ignore_ascii_case(known));
        let Some((_, letter)) = known else {
            let option = Some(format!("[{section}]: {name}={value}"));
            return Err(Wrong { line: line_number, option });
        };
        settings.push(Setting { letter: *letter, name: name.into(), value: Some(value.into()) });
    }
    Ok(settings)
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with(['#', ';']) {
        return "";
    }
    let end = line.match_indices(';').find(|(at, _)| line[..*at].ends_with([' ', '\t']));
    end.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(letter: char, name: &str, value: &str) -> Setting {
        Setting { letter, name: name.into(), value: Some(value.into()) }
    }

    #[test]
    fn files_have_sections_and_comments() {
        let text = "# lts\n\n[metadata]\ncrc=1 ; yes\n; no\nbigtime: 0\n[Data]\nagcount = 3\n";
        let expected =
            [setting('m', "crc", "1"), setting('m', "bigtime", "0"), setting('d', "agcount", "3")];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("").unwrap(), []);
        let wrong = |text: &str| parse(text).unwrap_err();
        assert_eq!(wrong("[data]\nagcount\n"), Wrong { line: 2, option: None });
        let option = Some("[quota]: uquota=1".to_owned());
        assert_eq!(wrong("[quota]\nuquota=1\n"), Wrong { line: 2, option });
        assert_eq!(wrong("a=1").option.as_deref(), Some("[]: a=1"));
        assert_eq!(wrong("[data\na=1").line, 1);
    }

    #[test]
    fn messages_are_not_repeated() {
        let mut settings = Settings::default();
        settings.add('d', "agcount=3,size=1g").unwrap();
        settings.add('l', "size=64m").unwrap();
        let failure = settings.add('d', "agcount=3").unwrap_err();
        assert_eq!(failure.message, "-d agcount option respecified");
        settings.add_prototype("a=b,atime=1").unwrap();
        assert!(settings.add_prototype("other").unwrap_err().message.contains("-p file"));
        assert_eq!(settings.list[3..], [setting('p', "file", "a=b"), setting('p', "atime", "1")]);
    }
}
