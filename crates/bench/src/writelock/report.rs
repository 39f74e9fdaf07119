//! The table, the JSON and the picture of the write-lock experiment.

use super::{Point, Scatter};
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
    /// Reads a second where nothing was written, of the points of this scatter.
    pub fn base(&self, scatter: Scatter) -> Option<f64> {
        let base = self.points.iter().find(|p| p.scatter == scatter && p.rate == 0.0);
        base.map(|p| p.reads_per_s)
    }

    /// The part of it that a point keeps.
    pub fn kept(&self, point: &Point) -> Option<f64> {
        self.base(point.scatter).filter(|base| *base > 0.0).map(|base| point.reads_per_s / base)
    }
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
    let kept = mode.kept(point).map_or("-".to_owned(), |part| format!("{:.1}%", part * 100.0));
    let device = point.device.map_or("-".to_owned(), |device| device.reads.to_string());
    format!(
        "{:<14} {:<5} {:>7} {:>9.1} {:>10.0} {:>6} {:>9.1} {:>9.1} {:>8.1} {:>7} {:>8} {:>5}",
        mode.name,
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
            mode.points.iter().for_each(|point| write_point(&mut points.document(), mode, point));
        }
    })
}

fn write_point(out: &mut DocWriter<'_>, mode: &Mode, point: &Point) {
    out.put("writes", point.scatter.name());
    out.put("writesAskedPerSecond", point.rate);
    out.put("writesPerSecond", point.writes_per_s);
    out.put("writesSent", point.writes as i64);
    out.put("documentsWithLostWrites", point.lost as i64);
    out.put("readsPerSecond", point.reads_per_s);
    if let Some(kept) = mode.kept(point) {
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
