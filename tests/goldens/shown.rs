//! What of an output is compared, where that is more than it says or in a form that nobody can read.

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;

/// The data of a page: a value a line, and lists of plain values on one. The report among them has goldens of its own.
pub(crate) fn data(page: &str) -> String {
    let data = page.split_once(r#"id="data">"#).and_then(|(_, rest)| rest.split_once("</script>"));
    let mut data: Value = serde_json::from_str(data.expect("the page has data").0).expect("the data is JSON");
    data.as_object_mut().expect("the data are an object").remove("report");
    let mut text = String::new();
    write(&data, 0, &mut text);
    text + "\n"
}

fn write(value: &Value, depth: usize, text: &mut String) {
    let is_plain = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_));
    let (open, close, rows) = match value {
        Value::Array(list) if !list.iter().all(is_plain) => {
            ('[', ']', list.iter().map(|value| (String::new(), value)).collect::<Vec<_>>())
        }
        Value::Object(fields) if !fields.is_empty() => {
            ('{', '}', fields.iter().map(|(name, value)| (format!("{name:?}: "), value)).collect())
        }
        plain => return *text += &plain.to_string(),
    };
    text.push(open);
    for (at, (name, value)) in rows.iter().enumerate() {
        *text += &format!("{}\n{}{name}", if at > 0 { "," } else { "" }, " ".repeat(depth + 1));
        write(value, depth + 1, text);
    }
    *text += &format!("\n{}{close}", " ".repeat(depth));
}

/// The rows of a recording's tables.
pub(crate) fn tables(folder: &Path) -> String {
    let entries = |folder: &Path| {
        let mut paths: Vec<_> = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
        paths.sort_unstable();
        paths
    };
    let mut text = String::new();
    for table in entries(folder) {
        for path in entries(&table) {
            text += &format!("{}\n", path.strip_prefix(folder).expect("it is in the folder").display());
            let reader = SerializedFileReader::new(File::open(&path).expect("a file")).expect("it is a Parquet file");
            for row in reader.get_row_iter(None).expect("it has rows") {
                text += &format!("{}\n", row.expect("a row"));
            }
        }
    }
    text
}
