//! Data model of a dump and its output.

use std::fmt::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::text::escaped;

/// Value of a field or list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpValue {
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
    /// Yes or no.
    Bool(bool),
    /// Values in order.
    List(Vec<DumpValue>),
    /// Named values in order.
    Fields(Fields),
}

/// Named values in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(&'static str, DumpValue)>);

impl Fields {
    /// Appends a value.
    pub(in crate::dump) fn add(&mut self, name: &'static str, value: impl Into<DumpValue>) {
        self.0.push((name, value.into()));
    }

    /// Returns whether the output needs more than one line.
    fn is_deep(&self) -> bool {
        let is_deep = |value: &DumpValue| match value {
            DumpValue::Fields(_) => true,
            DumpValue::List(list) => list.iter().any(|item| matches!(item, DumpValue::Fields(_))),
            _ => false,
        };
        self.0.iter().any(|(_, value)| is_deep(value))
    }

    /// Appends a number in hexadecimal.
    pub(in crate::dump) fn hex(&mut self, name: &'static str, value: impl fmt::LowerHex) {
        self.add(name, format!("{value:#x}"));
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl From<$type> for DumpValue {
            fn from(number: $type) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64);

impl From<zerocopy::little_endian::U16> for DumpValue {
    fn from(number: zerocopy::little_endian::U16) -> Self {
        Self::Number(number.get().into())
    }
}

impl From<zerocopy::little_endian::U32> for DumpValue {
    fn from(number: zerocopy::little_endian::U32) -> Self {
        Self::Number(number.get().into())
    }
}

impl From<zerocopy::little_endian::U64> for DumpValue {
    fn from(number: zerocopy::little_endian::U64) -> Self {
        Self::Number(number.get())
    }
}

impl From<zerocopy::big_endian::U16> for DumpValue {
    fn from(number: zerocopy::big_endian::U16) -> Self {
        Self::Number(number.get().into())
    }
}

impl From<zerocopy::big_endian::U32> for DumpValue {
    fn from(number: zerocopy::big_endian::U32) -> Self {
        Self::Number(number.get().into())
    }
}

impl From<zerocopy::big_endian::U64> for DumpValue {
    fn from(number: zerocopy::big_endian::U64) -> Self {
        Self::Number(number.get())
    }
}

impl From<bool> for DumpValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<String> for DumpValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for DumpValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Fields> for DumpValue {
    fn from(fields: Fields) -> Self {
        Self::Fields(fields)
    }
}

impl<T: Into<DumpValue>> From<Vec<T>> for DumpValue {
    fn from(list: Vec<T>) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}

impl Serialize for DumpValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Number(number) => number.serialize(serializer),
            Self::Bool(value) => value.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Fields(fields) => fields.serialize(serializer),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Formats one line per value, with nested values indented. Text is escaped for a terminal.
impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields(f, self, 0)
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &Fields, indent: usize) -> fmt::Result {
    let width = fields.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    for (name, value) in &fields.0 {
        write!(f, "{:indent$}{name}:", "")?;
        match value {
            DumpValue::Fields(inner) => {
                f.write_char('\n')?;
                write_fields(f, inner, indent + 2)?;
            }
            DumpValue::List(list)
                if list.iter().any(|item| matches!(item, DumpValue::Fields(_))) =>
            {
                f.write_char('\n')?;
                for item in list {
                    match item {
                        DumpValue::Fields(inner) if inner.is_deep() => {
                            write_fields(f, inner, indent + 2)?;
                        }
                        item => writeln!(f, "{:1$}{2}", "", indent + 2, Inline(item))?,
                    }
                }
            }
            DumpValue::Text(text) if text.contains('\n') => {
                f.write_char('\n')?;
                for line in text.lines() {
                    writeln!(f, "{:1$}{2}", "", indent + 2, escaped(line.as_bytes()))?;
                }
            }
            value => writeln!(f, "{:1$}{2}", "", width - name.len(), Inline(value))?,
        }
    }
    Ok(())
}

/// Formats a value on one line.
struct Inline<'a>(&'a DumpValue);

impl fmt::Display for Inline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DumpValue::Text(text) => escaped(text.as_bytes()).fmt(f),
            DumpValue::Number(number) => number.fmt(f),
            DumpValue::Bool(value) => f.write_str(if *value { "yes" } else { "no" }),
            DumpValue::List(list) => separated(f, list.iter(), |f, item| Inline(item).fmt(f)),
            DumpValue::Fields(fields) => separated(f, fields.0.iter(), |f, (name, value)| {
                write!(f, "{name}={}", Inline(value))
            }),
        }
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: impl Iterator<Item = T>,
    each: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (position, item) in items.enumerate() {
        if position > 0 {
            f.write_char(' ')?;
        }
        each(f, item)?;
    }
    Ok(())
}
