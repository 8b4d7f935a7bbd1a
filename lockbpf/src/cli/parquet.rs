//! A table as a Parquet file: zstd pages, a dictionary where values recur, types that every engine reads.

use crate::fleet::{Column, SCHEMA, Table, Words};
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::Result;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use bytes::Bytes;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// Rows that are written, and can be read, at one time: engines read groups of about so many side by side.
pub(super) const GROUP: usize = 1 << 17;

/// A file to which a table is written, at once or part by part.
pub(super) struct Writer<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Writer<W> {
    /// A file for tables with the columns of this one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn new(table: &Table, out: W) -> Result<Self> {
        let schema = Arc::new(parse_message_type(&schema(table))?);
        let about = vec![KeyValue::new("lockbpf.schema".to_owned(), SCHEMA.to_owned())];
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_key_value_metadata(Some(about))
            .build();
        Ok(Self(SerializedFileWriter::new(out, schema, Arc::new(properties))?))
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn add(&mut self, table: &Table) -> Result<()> {
        let rows = table.rows();
        for first in (0..rows).step_by(GROUP) {
            let mut group = self.0.next_row_group()?;
            for (_, column) in &table.columns {
                if let Some(mut writer) = group.next_column()? {
                    values(column, first..rows.min(first + GROUP), &mut writer)?;
                    writer.close()?;
                }
            }
            group.close()?;
        }
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(self) -> Result<W> {
        self.0.into_inner()
    }
}

/// The table's columns in Parquet's own words.
fn schema(table: &Table) -> String {
    let fields = table.columns.iter().map(|(name, column)| match column {
        Column::Whole(_) => format!("optional int64 {name};"),
        Column::Moment(_) => format!("optional int64 {name} (timestamp(micros,true));"),
        Column::Decimal(_) => format!("optional double {name};"),
        Column::Flag(_) => format!("optional boolean {name};"),
        Column::Text(_) => format!("optional binary {name} (string);"),
        Column::Texts(_) => {
            format!("required group {name} (list) {{ repeated group list {{ required binary element (string); }} }}")
        }
    });
    format!("message {} {{ {} }}", table.name, fields.collect::<Vec<_>>().join(" "))
}

fn values(column: &Column, rows: Range<usize>, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
    match column {
        Column::Whole(values) | Column::Moment(values) => optional::<Int64Type, _>(&values[rows], |&n| n, writer),
        Column::Decimal(values) => optional::<DoubleType, _>(&values[rows], |&n| n, writer),
        Column::Flag(values) => optional::<BoolType, _>(&values[rows], |&b| b, writer),
        Column::Text(words) => texts(words, rows, writer),
        Column::Texts(values) => lists(&values[rows], writer),
    }
}

/// Values of which some may be missing: those have definition level 0.
fn optional<T: DataType, V>(
    values: &[Option<V>],
    stored: impl Fn(&V) -> T::T,
    writer: &mut SerializedColumnWriter<'_>,
) -> Result<()> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.iter().flatten().map(stored).collect();
    writer.typed::<T>().write_batch(&present, Some(&levels), None).map(drop)
}

/// The words of rows.
fn texts(words: &Words, rows: Range<usize>, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
    let stored: Vec<Option<ByteArray>> = words.words().iter().map(|word| word.clone().map(ByteArray::from)).collect();
    let of_rows = || words.rows()[rows.clone()].iter().map(|&row| stored.get(row as usize).and_then(Option::as_ref));
    let levels: Vec<i16> = of_rows().map(|word| i16::from(word.is_some())).collect();
    let present: Vec<ByteArray> = of_rows().flatten().cloned().collect();
    writer.typed::<ByteArrayType>().write_batch(&present, Some(&levels), None).map(drop)
}

/// Lists: an empty one has definition level 0; each element but a list's first repeats at level 1.
fn lists(values: &[Vec<Bytes>], writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
    let (mut defined, mut repeated) = (Vec::new(), Vec::new());
    for list in values {
        defined.extend(std::iter::repeat_n(1_i16, list.len()).chain(list.is_empty().then_some(0)));
        repeated.extend((0..list.len().max(1)).map(|at| i16::from(at > 0)));
    }
    let elements: Vec<ByteArray> = values.iter().flatten().map(|text| text.clone().into()).collect();
    writer.typed::<ByteArrayType>().write_batch(&elements, Some(&defined), Some(&repeated)).map(drop)
}
