//! Tables of results, as Markdown and JSON.

use serde::Serialize;

/// A table of formatted figures.
#[derive(Serialize)]
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{cells:?}");
        self.rows.push(cells);
    }

    /// Formats as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&mut self.columns.iter().copied());
        text += &format!("|{}\n", "--:|".repeat(self.columns.len()));
        for row in &self.rows {
            text += &line(&mut row.iter().map(String::as_str));
        }
        text
    }

    /// Formats as JSON for `bench-all`.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data serializes") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_table_is_markdown_or_json() {
        let mut table = Table::new(&["way", "us"]);
        table.row(vec!["tree".into(), "1.50".into()]);
        assert_eq!(table.markdown(), "| way | us |\n|--:|--:|\n| tree | 1.50 |\n");
        let value: serde_json::Value = serde_json::from_str(&table.json()).unwrap();
        assert_eq!(value["rows"][0][1], "1.50");
    }
}
