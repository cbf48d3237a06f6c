//! Option lists: `name=value,name`.

use crate::failure::{Failure, Statuses};

/// Item of a list, with the option for messages.
pub(crate) struct ListItem<'a> {
    pub(crate) name: &'a str,
    value: Option<&'a str>,
    option: char,
    statuses: Statuses,
}

/// Parses the items of the value of `option`.
pub(crate) fn items(
    list: &str,
    option: char,
    statuses: Statuses,
) -> impl Iterator<Item = ListItem<'_>> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(move |item| {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        };
        ListItem { name, value, option, statuses }
    })
}

impl<'a> ListItem<'a> {
    /// Creates an item outside of a list.
    pub(crate) fn new(
        name: &'a str,
        value: Option<&'a str>,
        option: char,
        statuses: Statuses,
    ) -> Self {
        Self { name, value, option, statuses }
    }

    /// Returns the value, if there is one.
    pub(crate) fn value(&self) -> Option<&'a str> {
        self.value
    }

    /// Returns the required value.
    pub(crate) fn text(&self) -> Result<&'a str, Failure> {
        self.value.filter(|value| !value.is_empty()).ok_or_else(|| self.wrong("needs a value"))
    }

    /// Parses the required value with a function.
    pub(crate) fn by<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let text = self.text()?;
        parse(text).map_err(|why| self.wrong(&format!("cannot be {text:?}: {why}")))
    }

    /// Parses the value as a boolean: `0` or `1`; the default is true.
    pub(crate) fn switch(&self) -> Result<bool, Failure> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => Err(self.wrong("must be 0 or 1")),
        }
    }

    /// Creates the failure for an invalid item.
    pub(crate) fn wrong(&self, what: &str) -> Failure {
        self.statuses.usage(format_args!("-{} {} {what}", self.option, self.name))
    }

    /// Creates the failure for an item of the original that is not supported.
    pub(crate) fn refused(&self, why: &str) -> Failure {
        self.statuses.refused(format_args!("-{} {}", self.option, self.name), why)
    }

    /// Creates the failure for an unknown item.
    pub(crate) fn unknown(&self) -> Failure {
        self.statuses.usage(format_args!("-{} has no suboption {}", self.option, self.name))
    }
}
