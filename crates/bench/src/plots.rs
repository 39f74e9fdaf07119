//! Self-contained SVG plots for pages.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use std::fmt::{Display, Write as _};
use std::ops::Range;

/// Ink of axes and text.
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const GRID: RGBColor = RGBColor(0xE2, 0xE2, 0xE2);
const FONT: &str = "sans-serif";
/// Width and height of a plot of lines.
const LINES_PIXELS: (u32, u32) = (460, 300);
/// Of the transports, in their table's order: told apart by those who don't see all colours, too.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];
/// Of the stages: waiting, Source, Process, Sink, Other.
const STAGE_COLOURS: [RGBColor; 5] = [
    RGBColor(0xC9, 0xCE, 0xD3),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0x6A, 0x3D, 0x9A),
];

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Outcome = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The colour of the transport at this position of the table.
pub fn colour(position: usize) -> RGBColor {
    COLOURS.get(position % COLOURS.len()).copied().unwrap_or(INK)
}

/// The same, for CSS.
pub fn css(colour: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

/// The colour of a stage, by its position.
pub fn stage_colour(position: usize) -> RGBColor {
    STAGE_COLOURS.get(position % STAGE_COLOURS.len()).copied().unwrap_or(INK)
}

/// A line of a plot.
pub struct Line {
    /// Which transport it is.
    pub colour: RGBColor,
    /// Dashed, not drawn through.
    pub dashed: bool,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines.
pub struct Lines<'l> {
    /// Above it.
    pub title: String,
    /// Below it.
    pub x_title: &'static str,
    /// Beside it.
    pub y_title: &'static str,
    /// Where the x axis has marks, and what they say.
    pub marks: Vec<(f64, String)>,
    /// A y axis by powers of ten; otherwise from 0.
    pub log: bool,
    /// What is drawn.
    pub lines: &'l [Line],
}

fn drawn(width: u32, height: u32, draw: impl FnOnce(&Area<'_>) -> Outcome) -> String {
    let mut svg = String::new();
    let outcome = {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        let outcome = draw(&root);
        outcome.and_then(|()| root.present())
    };
    match outcome {
        // It scales with the page.
        Ok(()) => in_ink_of_page(&svg).replacen(
            &format!("width=\"{width}\" height=\"{height}\""),
            "width=\"100%\" role=\"img\"",
            1,
        ),
        Err(why) => format!("<p class=\"reason\">no plot: {why}</p>"),
    }
}

/// Text, axes and grid in the colour of the text around: readable on a dark page, black where there is no page.
fn in_ink_of_page(svg: &str) -> String {
    // The grid's grey on white is this much of the ink.
    svg.replace("opacity=\"1\" stroke=\"#E2E2E2\"", "opacity=\"0.13\" stroke=\"currentColor\"")
        .replace("\"#222222\"", "\"currentColor\"")
}

/// An entry of a legend takes so much, and each letter of its name: the font is not known, so this is rather much.
const LEGEND_ENTRY_PIXELS: usize = 34;
const LEGEND_LETTER_PIXELS: usize = 7;
const LEGEND_ROW_PIXELS: usize = 18;

/// A plot of [`lines`] with the names of its colours below it, for who sees it by itself.
pub fn with_legend(svg: &str, names: &[(String, RGBColor)]) -> String {
    let (width, height) = (LINES_PIXELS.0 as usize, LINES_PIXELS.1 as usize);
    let (mut x, mut y) = (0, height);
    let mut legend = String::new();
    for (name, colour) in names {
        let room = LEGEND_ENTRY_PIXELS + LEGEND_LETTER_PIXELS * name.chars().count();
        if x > 0 && x + room > width {
            (x, y) = (0, y + LEGEND_ROW_PIXELS);
        }
        let _ = write!(
            legend,
            "<rect x=\"{}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n\
             <text x=\"{}\" y=\"{}\" font-family=\"{FONT}\" font-size=\"11\" fill=\"currentColor\">{}</text>\n",
            x + 12,
            css(*colour),
            x + 29,
            y + 10,
            escaped(name),
        );
        x += room;
    }
    let room = |height: usize| format!("viewBox=\"0 0 {width} {height}\"");
    svg.replacen(&room(height), &room(y + LEGEND_ROW_PIXELS + 2), 1).replacen(
        "</svg>",
        &format!("{legend}</svg>"),
        1,
    )
}

/// An axis with marks of our own: the library's know nothing of sizes, and it names no marks that one chooses.
struct Axis {
    range: Range<f64>,
    log: bool,
    marks: Vec<(f64, String)>,
}

impl Axis {
    /// With a mark at 0 and about five more.
    fn from_zero(most: f64) -> Axis {
        let marks = linear_marks(most).into_iter().map(|mark| (mark, short(mark))).collect();
        Axis { range: 0.0..most, log: false, marks }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let scale = |value: f64| if self.log { value.max(1e-12).ln() } else { value };
        let (from, to) = (scale(self.range.start), scale(self.range.end));
        let part = (scale(*value) - from) / (to - from);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.iter().map(|mark| mark.0).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        short(*value)
    }

    fn format_ext(&self, value: &f64) -> String {
        let mark = self.marks.iter().find(|mark| mark.0 == *value);
        mark.map_or(String::new(), |mark| mark.1.clone())
    }
}

/// 1, 2 and 5 of each power of ten in the range; of many, the powers alone.
fn log_marks(range: &Range<f64>) -> Vec<(f64, String)> {
    let powers = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let of = |steps: &[f64]| -> Vec<(f64, String)> {
        let marks =
            powers.clone().flat_map(|power| steps.iter().map(move |n| n * 10f64.powi(power)));
        marks.filter(|mark| range.contains(mark)).map(|mark| (mark, short(mark))).collect()
    };
    let marks = of(&[1.0, 2.0, 5.0]);
    if marks.len() > 9 { of(&[1.0]) } else { marks }
}

/// 0 and about five more steps up to this.
fn linear_marks(most: f64) -> Vec<f64> {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
    let step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most);
    (0..).map(|n| f64::from(n) * step).take_while(|mark| *mark <= most * 1.000_001).collect()
}

/// A number as short as its size allows, thousands as `k`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", (v / 1e3 * 100.0).round() / 100.0),
        v => format!("{}", (v * 100.0).round() / 100.0),
    }
}

/// Lines, as SVG.
pub fn lines(plot: &Lines<'_>) -> String {
    let all = || plot.lines.iter().flat_map(|line| &line.points);
    let most = all().map(|point| point.1).fold(0.0, f64::max);
    let least = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let (first, last) = match (plot.marks.first(), plot.marks.last()) {
        (Some(first), Some(last)) if most > 0.0 => (first.0, last.0),
        _ => return "<p class=\"reason\">nothing measured</p>".to_owned(),
    };
    let margin = ((last - first) * 0.04).max(0.1);
    let x = Axis { range: first - margin..last + margin, log: false, marks: plot.marks.clone() };
    let y = if plot.log {
        let range = least.max(1e-3) / 1.3..most * 1.3;
        let marks = log_marks(&range);
        Axis { range, log: true, marks }
    } else {
        Axis::from_zero(most * 1.08)
    };
    drawn(LINES_PIXELS.0, LINES_PIXELS.1, |root| draw_lines(root, plot, x, y))
}

fn draw_lines(root: &Area<'_>, plot: &Lines<'_>, x: Axis, y: Axis) -> Outcome {
    let mut chart = ChartBuilder::on(root)
        .caption(&plot.title, (FONT, 16).into_font().color(&INK))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(plot.x_title)
        .y_desc(plot.y_title)
        .label_style((FONT, 13).into_font().color(&INK))
        .axis_desc_style((FONT, 13).into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for line in plot.lines {
        let style = line.colour.stroke_width(2);
        let points = line.points.iter().copied();
        if line.dashed {
            chart.draw_series(DashedLineSeries::new(points, 5, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(points, style))?;
            let dot = |point| Circle::new(point, 3, line.colour.filled());
            chart.draw_series(line.points.iter().copied().map(dot))?;
        }
    }
    Ok(())
}

/// A bar of one or more parts, one behind the other.
pub struct Bar {
    /// Beside it.
    pub name: String,
    /// Length and colour.
    pub parts: Vec<(f64, RGBColor)>,
    /// From where to where the lengths of single measurements reach.
    pub spread: Option<(f64, f64)>,
}

const BAR_PIXELS: u32 = 28;

/// Bars, the first at the top, as SVG. `unit` is what their lengths are.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let length = |bar: &Bar| bar.parts.iter().map(|part| part.0).sum::<f64>();
    let reach = |bar: &Bar| length(bar).max(bar.spread.map_or(0.0, |spread| spread.1));
    let most = bars.iter().map(reach).fold(0.0, f64::max);
    if most <= 0.0 {
        return "<p class=\"reason\">nothing measured</p>".to_owned();
    }
    let count = bars.len() as f64;
    // Room for the number behind the longest.
    let end = most * 1.17;
    let x = Axis::from_zero(end);
    let y = Axis { range: 0.0..count, log: false, marks: Vec::new() };
    drawn(460, 92 + BAR_PIXELS * bars.len() as u32, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, (FONT, 16).into_font().color(&INK))
            .margin(8)
            .x_label_area_size(42)
            .y_label_area_size(150)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(unit)
            .disable_y_axis()
            .disable_y_mesh()
            .label_style((FONT, 13).into_font().color(&INK))
            .axis_desc_style((FONT, 13).into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (position, bar) in bars.iter().enumerate() {
            draw_bar(root, &mut chart, count - position as f64, bar, length(bar))?;
        }
        Ok(())
    })
}

type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

fn draw_bar<'b>(
    root: &Area<'b>,
    chart: &mut Plane<'_, 'b>,
    top: f64,
    bar: &Bar,
    length: f64,
) -> Outcome {
    let mut from = 0.0;
    for (part, colour) in &bar.parts {
        let to = from + part;
        let corners = [(from, top - 0.15), (to, top - 0.85)];
        chart.draw_series([Rectangle::new(corners, colour.filled())])?;
        from = to;
    }
    if let Some((least, most)) = bar.spread {
        let ends = [least, most].map(|x| vec![(x, top - 0.35), (x, top - 0.65)]);
        let between = vec![(least, top - 0.5), (most, top - 0.5)];
        let whisker = ends.into_iter().chain([between]);
        chart.draw_series(whisker.map(|points| PathElement::new(points, INK.stroke_width(1))))?;
    }
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let style = |side| (FONT, 13).into_font().color(&INK).pos(Pos::new(side, VPos::Center));
    let digits = if length >= 100.0 {
        0
    } else if length >= 1.0 {
        1
    } else {
        3
    };
    let end = length.max(bar.spread.map_or(0.0, |spread| spread.1));
    let (x, y) = chart.backend_coord(&(end, top - 0.5));
    root.draw(&Text::new(format!("{length:.digits$}"), (x + 5, y), style(HPos::Left)))?;
    let (x, y) = chart.backend_coord(&(0.0, top - 0.5));
    root.draw(&Text::new(bar.name.clone(), (x - 6, y), style(HPos::Right)))
}

/// The plots of a page, each as the text of a file of its own.
pub fn on_page(page: &str) -> impl Iterator<Item = String> + '_ {
    page.split("<svg").skip(1).filter_map(|rest| {
        let (plot, _) = rest.split_once("</svg>")?;
        Some(format!("<svg{plot}</svg>\n"))
    })
}

/// Text for HTML.
pub fn escaped(text: impl Display) -> String {
    text.to_string()
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_handful_of_marks() {
        assert_eq!(linear_marks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear_marks(0.9), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8]);
        for most in [0.003, 1.0, 7.7, 123.0, 16_000.0, 3.3e6] {
            assert!((3..=7).contains(&linear_marks(most).len()), "{most}");
        }
        let names = |range| log_marks(&range).into_iter().map(|mark| mark.1).collect::<Vec<_>>();
        assert_eq!(names(8.0..300.0), ["10", "20", "50", "100", "200"]);
        assert_eq!(names(8.0..30_000.0), ["10", "100", "1k", "10k"]);
    }

    #[test]
    fn a_logarithmic_axis_gives_each_power_the_same_room() {
        let axis = Axis { range: 1.0..1000.0, log: true, marks: vec![(10.0, "ten".to_owned())] };
        let places = [1.0, 10.0, 100.0, 1000.0].map(|value| axis.map(&value, (300, 0)));
        assert_eq!(places, [300, 200, 100, 0]);
        assert_eq!((axis.format_ext(&10.0), axis.format_ext(&20.0)), ("ten".into(), "".into()));
    }

    #[test]
    fn a_plot_by_itself_names_its_lines() {
        let line = Line { colour: colour(0), dashed: false, points: vec![(1.0, 2.0), (2.0, 3.0)] };
        let plot = Lines {
            title: "a <&\" title".to_owned(),
            x_title: "x",
            y_title: "y",
            marks: vec![(1.0, "1".to_owned()), (2.0, "2".to_owned())],
            log: false,
            lines: &[line],
        };
        let plain = lines(&plot);
        // No colour of a light page is left, and the grid is fainter than the text.
        assert!(!plain.contains("#222222") && !plain.contains("#E2E2E2"), "{plain}");
        assert!(plain.contains("fill=\"currentColor\"") && plain.contains("opacity=\"0.13\""));
        assert!(plain.contains("a &lt;&amp;&quot; title"), "{plain}");
        let short = with_legend(&plain, &[("TCP <&\"".to_owned(), colour(0))]);
        assert!(short.contains(">TCP &lt;&amp;&quot;</text>"), "{short}");
        assert!(short.contains("viewBox=\"0 0 460 320\"") && short.trim_end().ends_with("</svg>"));
        // Names that have no room beside each other lie in rows, within the plot.
        let long = [(); 3].map(|()| ("n".repeat(40), colour(1)));
        assert!(with_legend(&plain, &long).contains("viewBox=\"0 0 460 356\""));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.254, 12.0, 1500.0, 2e6].map(short), ["0", "0.25", "12", "1.5k", "2M"]);
    }
}
