//! Tables of text: rows of cells, one below the other.

use std::fmt::Write as _;

/// A line for each row, its columns as wide as their widest cells. These columns are aligned to the left,
/// the others, numbers, to the right.
pub fn aligned(rows: &[Vec<String>], left: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match left.contains(&column) {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let text = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows =
            [["a", "1", "x"], ["long", "100", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows, &[0, 2]), "a       1  x\nlong  100\n");
        assert_eq!(aligned(&[], &[]), "");
    }
}
