//! Lists of options as values: `name=value,name`.

use crate::failure::{Failure, Statuses};

/// One of a list: what is called how, and what it is to be.
pub(crate) struct Item<'a> {
    pub(crate) name: &'a str,
    value: Option<&'a str>,
    option: char,
    statuses: Statuses,
}

/// The items of the value of `option`.
pub(crate) fn items(
    list: &str,
    option: char,
    statuses: Statuses,
) -> impl Iterator<Item = Item<'_>> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(move |item| {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        };
        Item { name, value, option, statuses }
    })
}

impl<'a> Item<'a> {
    /// One that does not come from a list.
    pub(crate) fn new(
        name: &'a str,
        value: Option<&'a str>,
        option: char,
        statuses: Statuses,
    ) -> Self {
        Self { name, value, option, statuses }
    }

    /// Its value, if it has one.
    pub(crate) fn value(&self) -> Option<&'a str> {
        self.value
    }

    /// Its value, which it must have.
    pub(crate) fn text(&self) -> Result<&'a str, Failure> {
        self.value.filter(|value| !value.is_empty()).ok_or_else(|| self.wrong("needs a value"))
    }

    /// Its value by a function.
    pub(crate) fn by<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let text = self.text()?;
        parse(text).map_err(|why| self.wrong(&format!("cannot be {text:?}: {why}")))
    }

    /// Its value as yes or no: `0` or `1`, and yes without one.
    pub(crate) fn switch(&self) -> Result<bool, Failure> {
        match self.value {
            None | Some("1") => Ok(true),
            Some("0") => Ok(false),
            Some(_) => Err(self.wrong("is 0 or 1")),
        }
    }

    /// What is wrong with it.
    pub(crate) fn wrong(&self, what: &str) -> Failure {
        self.statuses.usage(format_args!("-{} {} {what}", self.option, self.name))
    }

    /// It is there in the namesake, and not here.
    pub(crate) fn refused(&self, why: &str) -> Failure {
        self.statuses.refused(format_args!("-{} {}", self.option, self.name), why)
    }

    /// There is no such item.
    pub(crate) fn unknown(&self) -> Failure {
        self.statuses.usage(format_args!("-{} has nothing called {}", self.option, self.name))
    }
}
