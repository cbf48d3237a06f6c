//! The man page of one command.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::after_help;

/// Returns the program and all its commands, including nested ones, except hidden ones.
pub(crate) fn commands(program: Command) -> Vec<Command> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut found = Vec::new();
    collect(program, &mut found);
    found
}

fn collect(command: Command, found: &mut Vec<Command>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below.clone(), found);
    }
    found.push(command);
}

/// A page of section 1 of the manual.
pub(crate) struct Page {
    command: Command,
}

impl Page {
    pub(crate) fn new(command: Command) -> Self {
        Self { command }
    }

    /// Writes the page into a directory.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let text = self.text()?;
        fs::write(directory.join(Man::new(self.command.clone()).get_filename()), text)
    }

    /// Returns the text of the page. The text after the options is formatted manually: examples and tables are copied
    /// verbatim.
    pub(crate) fn text(&self) -> io::Result<Vec<u8>> {
        let command = &self.command;
        let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION"));
        let man = Man::new(command.clone())
            .source(format!("Diskwright {version}"))
            .manual("Diskwright's Manual");
        let mut text = Vec::new();
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        if command.get_arguments().any(|argument| !argument.is_hide_set()) {
            man.render_options_section(&mut text)?;
        }
        if command.get_subcommands().any(|below| !below.is_hide_set()) {
            man.render_subcommands_section(&mut text)?;
        }
        let after = command.get_after_long_help().or(command.get_after_help());
        if let Some(after) = after {
            after_help::render(&after.to_string(), &mut text)?;
        }
        see_also(command, &mut text);
        Ok(text)
    }
}

fn see_also(command: &Command, text: &mut Vec<u8>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    if name != "diskwright" {
        text.extend_from_slice(b".SH \"SEE ALSO\"\n.BR diskwright (1)\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_examples_as_they_are() {
        let commands: Vec<_> =
            crate::PROGRAMS.iter().flat_map(|(_, program)| commands(program())).collect();
        let names: Vec<_> =
            commands.iter().filter_map(Command::get_display_name).map(str::to_owned).collect();
        for name in
            ["diskwright-build", "diskwright-mount", "diskwright-workload", "diskwright-bench-find"]
        {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        for command in commands {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let text = String::from_utf8(Page::new(command).text().unwrap()).unwrap();
            let lines: Vec<_> = text.lines().collect();
            for example in after.lines().filter(|line| line.starts_with("  diskwright")) {
                let at = lines.iter().position(|line| *line == after_help::escaped(example));
                let at = at.unwrap_or_else(|| panic!("{example}: {text}"));
                let mode = lines[..at].iter().rev().find(|line| [".nf", ".fi"].contains(line));
                assert_eq!(mode, Some(&".nf"), "{example}: {text}");
            }
        }
    }

    #[test]
    fn pages_and_completions_are_where_programs_look() {
        let home = tempfile::tempdir().unwrap();
        crate::write_all(home.path()).unwrap();
        let share = home.path().join("share");
        let page = fs::read_to_string(share.join("man/man1/diskwright-build.1")).unwrap();
        assert!(page.contains("\\-\\-size"), "{page}");
        for (program, word) in [("diskwright", "lsattr"), ("diskwright-bench", "stress-orphan")] {
            for shell in crate::SHELLS {
                let path = crate::completions(shell, program);
                let text = fs::read_to_string(share.join(&path)).unwrap();
                assert!(text.contains(word) && text.contains("cache-size"), "{path}");
            }
        }
    }
}
