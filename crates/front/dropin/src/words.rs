//! Argument parser like getopt(3): letters may be combined, and options may follow operands.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::{Arg, Parser};

use crate::failure::{Failure, Statuses};
use crate::supported::Options;
use crate::target::ImageTarget;

/// Parsed argument.
#[derive(Debug)]
pub(crate) enum Word {
    /// Option letter.
    Option(char),
    /// Operand.
    Operand(OsString),
}

/// Arguments of a program.
pub(crate) struct Words {
    parser: Parser,
    statuses: Statuses,
    /// Table of options.
    options: &'static Options,
    /// Last option as written.
    last: String,
}

impl Words {
    /// Creates a parser with a table. Options not in the table are unknown.
    pub(crate) fn new(
        arguments: Vec<OsString>,
        statuses: Statuses,
        options: &'static Options,
    ) -> Self {
        Self { parser: Parser::from_args(arguments), statuses, options, last: String::new() }
    }

    /// Returns the next argument.
    pub(crate) fn next(&mut self) -> Result<Option<Word>, Failure> {
        Ok(match self.parser.next().map_err(|e| self.statuses.usage(e))? {
            None => None,
            Some(Arg::Short(letter)) => {
                self.last = format!("-{letter}");
                if !self.options.has(letter) {
                    return Err(self.unknown());
                }
                Some(Word::Option(letter))
            }
            Some(Arg::Long(name)) => {
                self.last = format!("--{name}");
                let known = self.options.long.iter().find(|(word, _)| *word == name);
                Some(Word::Option(known.ok_or_else(|| self.unknown())?.1))
            }
            Some(Arg::Value(value)) => Some(Word::Operand(value)),
        })
    }

    /// Stores an operand as the only image.
    pub(crate) fn only(
        &self,
        image: &mut Option<PathBuf>,
        operand: OsString,
    ) -> Result<(), Failure> {
        if image.is_none() {
            *image = Some(operand.into());
            return Ok(());
        }
        let extra = operand.to_string_lossy();
        Err(self.statuses.usage(format_args!("only one image is supported: {extra}")))
    }

    /// Returns the image, which is required.
    pub(crate) fn named(&self, image: Option<PathBuf>) -> Result<PathBuf, Failure> {
        image.ok_or_else(|| self.statuses.usage("no image given"))
    }

    /// Returns the required image with the offset of its file system.
    pub(crate) fn target(&self, image: Option<PathBuf>) -> Result<ImageTarget, Failure> {
        ImageTarget::parse(self.named(image)?.into(), self.statuses)
    }

    /// Returns the value of the last option.
    pub(crate) fn value(&mut self) -> Result<OsString, Failure> {
        self.parser.value().map_err(|_| self.wrong("needs a value"))
    }

    /// Same as [`Self::value`], as text.
    pub(crate) fn text(&mut self) -> Result<String, Failure> {
        self.value()?.into_string().map_err(|_| self.wrong("needs a value that is text"))
    }

    /// Same as [`Self::value`], as bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Failure> {
        Ok(self.value()?.into_encoded_bytes())
    }

    /// Same as [`Self::value`], as a path.
    pub(crate) fn path(&mut self) -> Result<PathBuf, Failure> {
        self.value().map(PathBuf::from)
    }

    /// Same as [`Self::value`], parsed by [`FromStr`].
    pub(crate) fn parsed<T: FromStr>(&mut self) -> Result<T, Failure> {
        let text = self.text()?;
        text.parse().map_err(|_| self.wrong(format_args!("cannot be {text:?}")))
    }

    /// Same as [`Self::value`], parsed by a function.
    pub(crate) fn by<T>(&mut self, parse: fn(&str) -> Result<T, String>) -> Result<T, Failure> {
        let text = self.text()?;
        parse(&text).map_err(|why| self.wrong(format_args!("{text}: {why}")))
    }

    /// Creates the failure for an invalid use of the last option.
    pub(crate) fn wrong(&self, what: impl Display) -> Failure {
        self.statuses.usage(format_args!("{} {what}", self.last))
    }

    /// Creates the failure for the last option if it is not supported.
    pub(crate) fn refused(&self, why: &str) -> Failure {
        self.statuses.refused(&self.last, why)
    }

    /// Creates the failure for an unknown option.
    pub(crate) fn unknown(&self) -> Failure {
        self.statuses.usage(format_args!("unknown option {}", self.last))
    }
}
