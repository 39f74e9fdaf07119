//! The measurements as a text table and as JSON.

use super::Kind;
use crate::columns::aligned;
use std::fmt::Write as _;

/// What a figure of pmlog should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Nothing is promised.
    None,
}

impl Goal {
    fn is_met(self, figure: f64) -> Option<bool> {
        match self {
            Goal::AtMost(most) => Some(figure <= most),
            Goal::AtLeast(least) => Some(figure >= least),
            Goal::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtMost(most) => format!("<= {most}"),
            Goal::AtLeast(least) => format!(">= {least}"),
            Goal::None => "-".to_owned(),
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub name: String,
    /// In what.
    pub unit: &'static str,
    /// What pmlog should reach.
    pub goal: Goal,
    /// pmlog's figure.
    pub pmlog: Option<f64>,
    /// WiredTiger's.
    pub wiredtiger: Option<f64>,
    /// What WiredTiger is known to give (from, to); the comparison is void if it is off by more than
    /// [`ANCHOR_TOLERANCE`].
    pub anchor: Option<(f64, f64)>,
    /// What else there is to say.
    pub note: String,
}

/// How far WiredTiger may be from what is known of it.
pub const ANCHOR_TOLERANCE: f64 = 0.3;

impl Line {
    /// A measurement without figures yet.
    pub fn new(name: impl Into<String>, unit: &'static str, goal: Goal) -> Line {
        Line {
            name: name.into(),
            unit,
            goal,
            pmlog: None,
            wiredtiger: None,
            anchor: None,
            note: String::new(),
        }
    }

    /// With what is known of WiredTiger.
    pub fn anchored(mut self, from: f64, to: f64) -> Line {
        self.anchor = Some((from, to));
        self
    }

    /// Sets an engine's figure.
    pub fn set(&mut self, kind: Kind, figure: f64) {
        match kind {
            Kind::PmLog => self.pmlog = Some(figure),
            Kind::WiredTiger => self.wiredtiger = Some(figure),
        }
    }

    /// Adds to the note.
    pub fn remark(&mut self, text: &str) {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(text);
    }

    /// Whether the goal is met, where there is a goal and a figure.
    pub fn is_met(&self) -> Option<bool> {
        self.goal.is_met(self.pmlog?)
    }

    /// Whether WiredTiger is as it is known, where that is known and was measured.
    pub fn is_as_known(&self) -> Option<bool> {
        let ((from, to), figure) = (self.anchor?, self.wiredtiger?);
        let range = from * (1.0 - ANCHOR_TOLERANCE)..=to * (1.0 + ANCHOR_TOLERANCE);
        Some(range.contains(&figure))
    }
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// The table as text.
pub fn render(lines: &[Line]) -> String {
    let heads =
        ["measured", "unit", "goal", "pmlog", "", "wiredTiger", "pmlog/wT"].map(str::to_owned);
    let mut rows = vec![heads.to_vec()];
    for line in lines {
        let verdict = match line.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let ratio = line.pmlog.zip(line.wiredtiger).map(|(one, two)| one / two);
        rows.push(vec![
            line.name.clone(),
            line.unit.to_owned(),
            line.goal.text(),
            figure(line.pmlog),
            verdict.to_owned(),
            figure(line.wiredtiger),
            figure(ratio.filter(|ratio| ratio.is_finite())),
        ]);
    }
    let mut out = aligned(&rows, &[0, 1, 4]);
    for line in lines.iter().filter(|line| !line.note.is_empty()) {
        let _ = writeln!(out, "  {}: {}", line.name, line.note);
    }
    out.push_str(&check(lines));
    out
}

/// The check of WiredTiger against what is known of it.
fn check(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut void = false;
    for line in lines {
        let (Some((from, to)), Some(known)) = (line.anchor, line.is_as_known()) else { continue };
        void |= !known;
        let range = if from == to { format!("{from}") } else { format!("{from} to {to}") };
        let word = if known { "within" } else { "NOT within" };
        let _ = writeln!(
            out,
            "check: {}: wiredTiger {} {}, known {range}: {word} 30 %",
            line.name,
            figure(line.wiredtiger),
            line.unit
        );
    }
    match (out.is_empty(), void) {
        (true, _) => out.push_str("check: WiredTiger was not measured; no comparison\n"),
        (false, true) => out.push_str(
            "check: VOID as a comparison where WiredTiger is not within 30 % of what is known of it\n",
        ),
        (false, false) => out.push_str("check: WiredTiger is as it is known; the comparison counts\n"),
    }
    out
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => out.push(' '),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

fn json_number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or("null".to_owned(), |value| format!("{value}"))
}

/// The table as a JSON array, an object a line.
pub fn json(lines: &[Line]) -> String {
    let objects: Vec<String> = lines
        .iter()
        .map(|line| {
            let (goal, limit) = match line.goal {
                Goal::AtMost(most) => ("atMost", Some(most)),
                Goal::AtLeast(least) => ("atLeast", Some(least)),
                Goal::None => ("none", None),
            };
            let met = line.is_met().map_or("null".to_owned(), |met| met.to_string());
            let known = line.is_as_known().map_or("null".to_owned(), |known| known.to_string());
            format!(
                "{{\"name\":{},\"unit\":{},\"goal\":\"{goal}\",\"limit\":{},\"pmlog\":{},\
                 \"met\":{met},\"wiredTiger\":{},\"wiredTigerAsKnown\":{known},\"note\":{}}}",
                json_text(&line.name),
                json_text(line.unit),
                json_number(limit),
                json_number(line.pmlog),
                json_number(line.wiredtiger),
                json_text(&line.note),
            )
        })
        .collect();
    format!("[{}]\n", objects.join(",\n "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_and_anchors_are_judged() {
        let mut line = Line::new("write amplification", "x", Goal::AtMost(1.05)).anchored(2.0, 2.0);
        assert_eq!((line.is_met(), line.is_as_known()), (None, None));
        line.set(Kind::PmLog, 1.04);
        line.set(Kind::WiredTiger, 2.5);
        assert_eq!((line.is_met(), line.is_as_known()), (Some(true), Some(true)));
        line.set(Kind::PmLog, 1.06);
        line.set(Kind::WiredTiger, 2.7);
        assert_eq!((line.is_met(), line.is_as_known()), (Some(false), Some(false)));
        let text = render(&[line.clone()]);
        assert!(text.contains("MISSED") && text.contains("VOID"), "{text}");
        line.remark("a \"note\"");
        let json = json(&[line]);
        assert!(json.contains("\"met\":false") && json.contains("a \\\"note\\\""), "{json}");
    }
}
