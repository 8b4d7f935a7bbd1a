//! Which columns of a table are shown: those that leave names their room.

use super::table::{room, table};

/// A column of a table of things: its header, the width from which on it is shown, its text. With 0 it is shown always; others give way
/// where names would have too little room, the one that asks for most first.
pub(super) type Column<F> = (&'static str, u16, F);

/// Columns of which each has a text of its own.
pub(super) type Columns<T> = &'static [Column<fn(&T) -> String>];

/// A column with the text of each row.
pub(super) struct Filled {
    pub(super) header: &'static str,
    from: u16,
    pub(super) cells: Vec<String>,
}

/// The columns that a table of this width may have; those without any text are left out.
pub(super) fn fill<T, F: Fn(&T) -> String>(columns: &[Column<F>], things: &[&T], width: u16) -> Vec<Filled> {
    let wide_enough = columns.iter().filter(|&&(_, from, _)| width >= from);
    let filled = wide_enough.map(|(header, from, text)| {
        let cells = things.iter().map(|thing| text(thing)).collect();
        Filled { header, from: *from, cells }
    });
    filled.filter(|column| column.cells.iter().any(|text| !text.is_empty())).collect()
}

/// A table of as many of the columns as leave names their room. `names` are the headers of those that hold text, not numbers.
pub(super) fn fitted(mut columns: Vec<Filled>, names: &[&str], width: u16) -> String {
    loop {
        let headers: Vec<_> = columns.iter().map(|column| column.header).collect();
        let left: Vec<_> = (0..headers.len()).filter(|&i| names.contains(&headers[i])).collect();
        let number = columns.iter().map(|column| column.cells.len()).max().unwrap_or_default();
        let cell = |column: &Filled, row: usize| column.cells.get(row).cloned().unwrap_or_default();
        let rows: Vec<Vec<_>> = (0..number).map(|row| columns.iter().map(|c| cell(c, row)).collect()).collect();
        let optional = columns.iter().enumerate().filter(|(_, column)| column.from > 0);
        match optional.max_by_key(|&(at, column)| (column.from, at)).map(|(at, _)| at) {
            Some(at) if room(&headers, &left, &rows) > usize::from(width) => drop(columns.remove(at)),
            _ => return table(&headers, &left, rows, width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: Columns<u64> = &[
        ("Name", 0, |_| "get_interaction (element_management.c:2510)".to_owned()),
        ("Number", 0, |n| n.to_string()),
        ("Square", 2, |n| (n * n).to_string()),
        ("Nothing", 0, |_| String::new()),
        ("Cube", 90, |n| (n * n * n).to_string()),
    ];

    fn shown(width: u16) -> String {
        fitted(fill(COLUMNS, &[&2, &3], width), &["Name"], width)
    }

    #[test]
    fn names_keep_their_room_and_others_give_way() {
        let headers = |width| shown(width).lines().next().map(|line| line.split_whitespace().count());
        assert_eq!([120, 80, 50].map(headers), [Some(4), Some(3), Some(2)]);
        assert!(shown(50).contains("(element_management.c:2510)"), "{}", shown(50));
        assert!(shown(50).lines().all(|line| line.chars().count() <= 50), "{}", shown(50));
        // What nothing can make room for is broken.
        assert!(shown(40).lines().count() > shown(120).lines().count());
    }
}
