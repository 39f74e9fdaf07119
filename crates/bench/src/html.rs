//! Common parts of HTML pages: style, tables, legends. External text is escaped here or by
//! [`escaped`](crate::plots::escaped).

use crate::plots::{css, escaped};
use plotters::style::RGBColor;
use std::fmt::{Display, Write as _};

/// What pages look like.
pub const STYLE: &str = "
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1440px; margin: 2em auto; padding: 0 1.5em }
h1 { font-size: 1.7em; margin-bottom: .2em } h2 { margin-top: 2em; border-bottom: 1px solid #ccc } h3 { margin: 1.5em 0 .3em }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); gap: 12px }
.plots > * { border: 1px solid #e2e2e2; border-radius: 4px; align-self: start }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: .5em 0 }
th, td { padding: 2px 9px; text-align: right; white-space: nowrap; border-bottom: 1px solid #eee }
th { position: sticky; top: 0; background: #f4f4f4; border-bottom: 1px solid #bbb } .l { text-align: left }
.paper { background: #fbf7ec; border-left: 4px solid #d9b95b; padding: .4em 1em; margin: 1em 0 } .paper th { background: #f3ecd8 }
h1 + p { max-width: 70em } .note { color: #555; max-width: 70em; margin: .3em 0 }
.reason { color: #8a1c1c; text-align: left } .scroll { overflow-x: auto; max-height: 640px; overflow-y: auto }
.legend { margin: .4em 0 } .legend span { margin-right: 1.2em; white-space: nowrap } .legend i { display: inline-block; width: 14px; height: 14px;
border-radius: 3px; margin-right: 5px; vertical-align: -2px } dt { float: left; clear: left; min-width: 11em; color: #555 } dd { margin-left: 11.5em }
pre { font-size: 12.5px; line-height: 1.35; overflow-x: auto }
@media (prefers-color-scheme: dark) {
body { color: #ddd; background: #17191c } h2 { border-color: #444 } .plots > * { border-color: #363a3f } .note, dt { color: #a5a9ae }
th, td { border-color: #2c2f33 } th { background: #24272b; border-color: #555 } .reason { color: #ff9d94 }
.paper { background: #28241a; border-color: #a4863b } .paper th { background: #372f1c } a { color: #8ab8ff } }
";

/// Names and their colours.
pub fn legend(entries: impl Iterator<Item = (String, RGBColor)>) -> String {
    let entry = |(name, colour): (String, RGBColor)| {
        format!("<span><i style=\"background:{}\"></i>{}</span>", css(colour), escaped(name))
    };
    format!("<div class=\"legend\">{}</div>\n", entries.map(entry).collect::<String>())
}

/// A table; the first `left` columns are text. A row that is shorter than the head ends with a reason.
pub fn table(head: &[impl Display], left: usize, rows: &[Vec<String>]) -> String {
    let class = |column: usize| if column < left { " class=\"l\"" } else { "" };
    let cells = |tag: &str, cells: &[String]| -> String {
        let mut out = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let _ = if cells.len() < head.len() && column + 1 == cells.len() {
                let rest = head.len() - column;
                write!(out, "<td class=\"reason\" colspan=\"{rest}\">{}</td>", escaped(cell))
            } else {
                write!(out, "<{tag}{}>{}</{tag}>", class(column), escaped(cell))
            };
        }
        out
    };
    let names: Vec<String> = head.iter().map(ToString::to_string).collect();
    let mut out = format!("<div class=\"scroll\"><table>\n<tr>{}</tr>\n", cells("th", &names));
    for row in rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells("td", row));
    }
    out + "</table></div>\n"
}

/// Text as a terminal shows it.
pub fn preformatted(text: &str) -> String {
    format!("<pre>{}</pre>\n", escaped(text))
}

/// The beginning of a page, as far as below its heading.
pub fn head(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    )
}

/// Names and what they stand for.
pub fn definitions<'d>(entries: impl Iterator<Item = (&'d str, String)>) -> String {
    let entry = |(name, value): (&str, String)| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value))
    };
    format!("<dl>\n{}</dl>\n", entries.map(entry).collect::<String>())
}
