//! Measures two servers in turns, so that disturbances of the machine affect both.

use crate::load::Report;
use std::io;

/// The reports of both, and their ratios.
#[derive(Default)]
pub struct Comparison {
    /// The server's reports, round by round.
    pub server: Vec<Report>,
    /// The floor's reports, round by round.
    pub floor: Vec<Report>,
}

/// Runs both in turns, so many rounds, the order changing from round to round.
pub fn alternate(
    rounds: usize,
    mut server: impl FnMut() -> io::Result<Report>,
    mut floor: impl FnMut() -> io::Result<Report>,
) -> io::Result<Comparison> {
    let mut comparison = Comparison::default();
    for round in 0..rounds {
        if round % 2 == 0 {
            comparison.floor.push(floor()?);
            comparison.server.push(server()?);
        } else {
            comparison.server.push(server()?);
            comparison.floor.push(floor()?);
        }
    }
    Ok(comparison)
}

/// The middle one of these figures; 0 if there are none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), middle.checked_sub(1).and_then(|below| sorted.get(below))) {
        (Some(above), Some(below)) if sorted.len().is_multiple_of(2) => (above + below) / 2.0,
        (Some(figure), _) => *figure,
        (None, _) => 0.0,
    }
}

impl Comparison {
    /// The median over rounds of a figure of each.
    pub fn medians(&self, figure: impl Fn(&Report) -> f64) -> (f64, f64) {
        let of = |reports: &[Report]| median(reports.iter().map(&figure));
        (of(&self.server), of(&self.floor))
    }

    /// The median over rounds of the ratio of a figure, server to floor, round by round.
    pub fn ratio(&self, figure: impl Fn(&Report) -> f64) -> f64 {
        let pairs = self.server.iter().zip(&self.floor);
        median(pairs.map(|(server, floor)| figure(server) / figure(floor).max(1e-9)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
        let report = |ms| Report { wall: Duration::from_millis(ms), ..Report::default() };
        let (mut servers, mut floors) = ([30, 20, 900].into_iter(), [10, 10, 10].into_iter());
        let comparison = alternate(
            3,
            || Ok(report(servers.next().unwrap_or(0))),
            || Ok(report(floors.next().unwrap_or(0))),
        )
        .unwrap();
        let wall = |report: &Report| report.wall.as_secs_f64() * 1e3;
        assert_eq!(comparison.medians(wall), (30.0, 10.0));
        assert!((comparison.ratio(wall) - 3.0).abs() < 1e-9);
    }
}
