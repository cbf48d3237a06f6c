//! Property lists of macOS in XML.

use serde_json::{Map, Value};
use xml::reader::{EventReader, XmlEvent};

/// Maximum depth of elements.
const DEPTH_MAX: usize = 32;

/// A list or dictionary that is being read.
struct Open {
    value: Value,
    /// The key that precedes the next value of a dictionary.
    key: String,
}

impl Open {
    fn add(&mut self, value: Value) {
        match &mut self.value {
            Value::Array(values) => values.push(value),
            Value::Object(values) => drop(values.insert(std::mem::take(&mut self.key), value)),
            _ => {}
        }
    }
}

/// Reads a property list. Dates, data and fractions become texts.
///
/// # Errors
/// The reason why it is none.
pub(super) fn parse(document: &[u8]) -> Result<Value, String> {
    // The first level collects the value of the whole document.
    let mut open = vec![Open { value: Value::Array(Vec::new()), key: String::new() }];
    let mut text = String::new();
    for event in EventReader::new(document) {
        match event.map_err(|e| e.to_string())? {
            XmlEvent::StartElement { name, .. } => {
                text.clear();
                let container = match name.local_name.as_str() {
                    "dict" => Some(Value::Object(Map::new())),
                    "array" => Some(Value::Array(Vec::new())),
                    _ => None,
                };
                open.extend(container.map(|value| Open { value, key: String::new() }));
            }
            XmlEvent::Characters(part) | XmlEvent::CData(part) => text.push_str(&part),
            XmlEvent::EndElement { name } => end(&name.local_name, &mut text, &mut open)?,
            _ => {}
        }
        if open.len() > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels"));
        }
    }
    match open.swap_remove(0).value {
        Value::Array(mut values) if values.len() == 1 => Ok(values.swap_remove(0)),
        _ => Err("no value; expected one".to_owned()),
    }
}

/// Adds the value of an element that ends.
fn end(name: &str, text: &mut String, open: &mut Vec<Open>) -> Result<(), String> {
    let value = match name {
        "plist" => return Ok(()),
        "key" => {
            if let Some(last) = open.last_mut() {
                last.key = std::mem::take(text);
            }
            return Ok(());
        }
        "dict" | "array" => open.pop().map_or(Value::Null, |ended| ended.value),
        "true" => true.into(),
        "false" => false.into(),
        "integer" => text.trim().parse::<u64>().map_or_else(|_| text.as_str().into(), Value::from),
        _ => std::mem::take(text).into(),
    };
    open.last_mut().ok_or("an end without a start")?.add(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_all_types_are_read() {
        let document = br#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
    <key>Name</key>
    <string>A &amp; B</string>
    <key>Empty</key>
    <string></string>
    <key>Size</key>
    <integer>500277792768</integer>
    <key>Delta</key>
    <integer>-1</integer>
    <key>List</key>
    <array><string>disk0</string><true/><false/><dict/></array>
    <key>Date</key>
    <date>2024-02-29T00:00:00Z</date>
</dict>
</plist>"#;
        let expected = json!({
            "Name": "A & B", "Empty": "", "Size": 500_277_792_768_u64, "Delta": "-1",
            "List": ["disk0", true, false, {}], "Date": "2024-02-29T00:00:00Z",
        });
        assert_eq!(parse(document).unwrap(), expected);
    }

    #[test]
    fn invalid_documents_are_errors() {
        let deep = format!("<plist>{}{}</plist>", "<array>".repeat(99), "</array>".repeat(99));
        for invalid in ["", "<plist></plist>", "<plist><dict>", "text", deep.as_str()] {
            assert!(parse(invalid.as_bytes()).is_err(), "{invalid}");
        }
    }
}
