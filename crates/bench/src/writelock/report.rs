//! The table, the JSON and the plot of the write-lock experiment.

use super::disk::DeviceReads;
use super::{Point, Scatter};
use crate::compare::median;
use kauri_bson::{DocBuf, DocWriter};
use std::fmt::Write;

/// The measurements of one mode.
#[derive(Clone, Debug)]
pub struct Mode {
    /// Its name.
    pub name: String,
    /// Its points, in order.
    pub points: Vec<Point>,
}

impl Mode {
    /// Reads a second where nothing was written: the median of the points of this scatter and round.
    pub fn base(&self, scatter: Scatter, round: usize) -> Option<f64> {
        let of_base = |p: &&Point| p.scatter == scatter && p.round == round && p.rate == 0.0;
        let reads: Vec<f64> = self.points.iter().filter(of_base).map(|p| p.reads_per_s).collect();
        (!reads.is_empty()).then(|| median(reads))
    }

    /// The part of its round's base that a point keeps.
    pub fn kept(&self, point: &Point) -> Option<f64> {
        let base = self.base(point.scatter, point.round).filter(|base| *base > 0.0);
        base.map(|base| point.reads_per_s / base)
    }

    /// One point for each scatter and rate: medians of all rounds, sums of what was counted.
    pub fn summary(&self) -> Vec<Summary> {
        let mut all: Vec<Summary> = Vec::new();
        for first in &self.points {
            let same = |p: &Point| p.scatter == first.scatter && p.rate == first.rate;
            if all.iter().any(|summary| same(&summary.point)) {
                continue;
            }
            let points: Vec<&Point> = self.points.iter().filter(|p| same(p)).collect();
            let of = |figure: fn(&Point) -> f64| median(points.iter().map(|p| figure(p)));
            let point = Point {
                writes: points.iter().map(|p| p.writes).sum(),
                writes_per_s: of(|p| p.writes_per_s),
                lost: points.iter().map(|p| p.lost).sum(),
                reads_per_s: of(|p| p.reads_per_s),
                read_p50_us: of(|p| p.read_p50_us),
                read_p99_us: of(|p| p.read_p99_us),
                read_max_ms: points.iter().map(|p| p.read_max_ms).fold(0.0, f64::max),
                read_errors: points.iter().map(|p| p.read_errors).sum(),
                misses: points.iter().map(|p| p.misses).sum(),
                device: points.iter().filter_map(|p| p.device).reduce(DeviceReads::plus),
                ..first.clone()
            };
            let kept: Vec<f64> = points.iter().filter_map(|p| self.kept(p)).collect();
            let kept = (!kept.is_empty()).then(|| median(kept));
            all.push(Summary { point, kept, points: points.len() });
        }
        all
    }
}

/// All points of one mode, scatter and rate.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Medians; of misses, device reads, writes, errors and losses the sums.
    pub point: Point,
    /// The median of the parts of the base that the points keep.
    pub kept: Option<f64>,
    /// How many there are.
    pub points: usize,
}

/// The line above the table.
pub fn heading() -> String {
    format!(
        "{:<14} {:<5} {:>7} {:>9} {:>10} {:>6} {:>9} {:>9} {:>8} {:>7} {:>8} {:>5}",
        "mode",
        "write",
        "asked/s",
        "writes/s",
        "reads/s",
        "kept",
        "p50 us",
        "p99 us",
        "max ms",
        "misses",
        "device",
        "lost"
    )
}

/// A point's line.
pub fn line(mode: &Mode, point: &Point) -> String {
    row(&mode.name, point, mode.kept(point))
}

/// The lines of all points taken together.
pub fn summary_lines(modes: &[Mode]) -> Vec<String> {
    let lines = |mode: &Mode| -> Vec<String> {
        mode.summary().iter().map(|s| row(&mode.name, &s.point, s.kept)).collect()
    };
    modes.iter().flat_map(lines).collect()
}

fn row(name: &str, point: &Point, kept: Option<f64>) -> String {
    let kept = kept.map_or("-".to_owned(), |part| format!("{:.1}%", part * 100.0));
    let device = point.device.map_or("-".to_owned(), |device| device.reads.to_string());
    format!(
        "{:<14} {:<5} {:>7} {:>9.1} {:>10.0} {:>6} {:>9.1} {:>9.1} {:>8.1} {:>7} {:>8} {:>5}",
        name,
        point.scatter.name(),
        point.rate,
        point.writes_per_s,
        point.reads_per_s,
        kept,
        point.read_p50_us,
        point.read_p99_us,
        point.read_max_ms,
        point.misses,
        device,
        point.lost,
    )
}

/// All figures as a document.
pub fn document(modes: &[Mode], about: &[(&str, String)]) -> DocBuf {
    DocBuf::build(|out| {
        about.iter().for_each(|(name, value)| out.put(name, value.as_str()));
        let mut list = out.array("modes");
        for mode in modes {
            let mut entry = list.document();
            entry.put("mode", mode.name.as_str());
            let mut points = entry.array("points");
            mode.points.iter().for_each(|point| {
                write_point(&mut points.document(), point, mode.kept(point));
            });
            drop(points);
            let mut summary = entry.array("summary");
            mode.summary()
                .iter()
                .for_each(|s| write_point(&mut summary.document(), &s.point, s.kept));
        }
    })
}

fn write_point(out: &mut DocWriter<'_>, point: &Point, kept: Option<f64>) {
    out.put("round", point.round as i64);
    out.put("writes", point.scatter.name());
    out.put("writesAskedPerSecond", point.rate);
    out.put("writesPerSecond", point.writes_per_s);
    out.put("writesSent", point.writes as i64);
    out.put("documentsWithLostWrites", point.lost as i64);
    out.put("readsPerSecond", point.reads_per_s);
    if let Some(kept) = kept {
        out.put("readsKept", kept);
    }
    out.put("readP50Micros", point.read_p50_us);
    out.put("readP99Micros", point.read_p99_us);
    out.put("readMaxMillis", point.read_max_ms);
    out.put("readErrors", point.read_errors as i64);
    out.put("misses", point.misses);
    out.put("cacheReads", point.cache_reads.0);
    out.put("cacheReadBytes", point.cache_reads.1);
    if let Some(device) = point.device {
        out.put("deviceReads", device.reads);
        out.put("deviceReadBytes", device.bytes);
    }
    if let Some(bytes) = point.process_read_bytes {
        out.put("processReadBytes", bytes);
    }
    out.put("readersWaitedForLock", point.lock_waits.0);
    out.put("readersWaitedMicros", point.lock_waits.1);
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 60.0;
const COLOURS: [&str; 5] = ["#c0392b", "#e67e22", "#2471a3", "#1e8449", "#6c3483"];

/// Reads against writes a second, a colour for each mode, as a picture in SVG.
pub fn plot(modes: &[Mode], scatter: Scatter) -> String {
    let points = |mode: &Mode| -> Vec<(f64, f64)> {
        let of_scatter = mode.points.iter().filter(|p| p.scatter == scatter);
        of_scatter.map(|p| (p.writes_per_s, p.reads_per_s)).collect()
    };
    let all: Vec<(f64, f64)> = modes.iter().flat_map(points).collect();
    let x_max = all.iter().map(|p| p.0).fold(1.0, f64::max);
    let y_max = all.iter().map(|p| p.1).fold(1.0, f64::max);
    let x = |value: f64| MARGIN + value / x_max * (WIDTH - 2.0 * MARGIN);
    let y = |value: f64| HEIGHT - MARGIN - value / y_max * (HEIGHT - 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let (left, right, bottom, top) = (x(0.0), x(x_max), y(0.0), y(y_max));
    let _ = writeln!(
        out,
        "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{left}\" y=\"{}\">reads/s, up to {y_max:.0}</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{} writes/s, up to {x_max:.0}</text>",
        top - 10.0,
        bottom + 30.0,
        scatter.name(),
    );
    for (number, mode) in modes.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        for (writes, reads) in points(mode) {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>",
                x(writes),
                y(reads)
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" fill=\"{colour}\" text-anchor=\"end\">{}</text>",
            WIDTH - 10.0,
            20.0 + 16.0 * number as f64,
            mode.name
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: usize, rate: f64, reads_per_s: f64) -> Point {
        Point {
            round,
            scatter: Scatter::Cold,
            rate,
            writes: 3,
            writes_per_s: rate,
            lost: 1,
            reads_per_s,
            read_p50_us: 1.0,
            read_p99_us: 2.0,
            read_max_ms: reads_per_s,
            read_errors: 1,
            misses: 10,
            cache_reads: (0, 0),
            device: None,
            process_read_bytes: None,
            lock_waits: (0, 0),
        }
    }

    #[test]
    fn points_are_compared_with_their_own_round() {
        let hot = Point { scatter: Scatter::Hot, ..point(0, 0.0, 7.0) };
        let points = vec![
            point(0, 0.0, 90.0),
            point(0, 48.0, 50.0),
            point(0, 0.0, 110.0),
            hot,
            point(1, 0.0, 1000.0),
            point(1, 48.0, 900.0),
            point(2, 0.0, 10.0),
            point(2, 48.0, 6.0),
            point(3, 48.0, 6.0),
        ];
        let mode = Mode { name: "document/on".to_owned(), points };
        let kept: Vec<_> = [1, 5, 7, 8].map(|at| mode.kept(&mode.points[at])).into();
        assert_eq!(kept, [Some(0.5), Some(0.9), Some(0.6), None]);
        let summary = mode.summary();
        assert_eq!(summary.iter().map(|all| all.points).collect::<Vec<_>>(), [4, 4, 1]);
        let writing = &summary[1];
        assert_eq!((writing.kept, writing.point.reads_per_s), (Some(0.6), 28.0));
        assert_eq!((writing.point.lost, writing.point.misses, writing.point.writes), (4, 40, 12));
        assert_eq!(writing.point.read_max_ms, 900.0, "the longest of all");
        assert_eq!(summary[2].kept, Some(1.0), "reads beside hot writes have a base of their own");
    }
}
