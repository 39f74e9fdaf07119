//! Compared measurements take turns, so that disturbances of the machine affect all of them.

use super::rows::Row;
use std::fmt::Display;

/// Measures each case once a round, in the opposite order in every other round. A case that fails is not
/// tried again; its row says why.
pub fn in_turns<C, R, E: Display>(
    cases: Vec<C>,
    rounds: usize,
    mut attempt: impl FnMut(&C, usize) -> Result<R, E>,
) -> Vec<Row<C, R>> {
    let mut rows: Vec<Row<C, R>> =
        cases.into_iter().map(|case| Row { case, rounds: Ok(Vec::new()) }).collect();
    for round in 0..rounds {
        let mut order: Vec<&mut Row<C, R>> = rows.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for row in order {
            let Ok(done) = &mut row.rounds else { continue };
            match attempt(&row.case, round) {
                Ok(figures) => done.push(figures),
                Err(why) => row.rounds = Err(why.to_string()),
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate_and_a_failure_is_kept_with_its_reason() {
        let mut asked = Vec::new();
        let rows = in_turns(vec!["a", "b", "c"], 3, |case, round| {
            asked.push(format!("{case}{round}"));
            match (*case, round) {
                ("b", 1) => Err("b is not there"),
                _ => Ok(round),
            }
        });
        assert_eq!(asked, ["a0", "b0", "c0", "c1", "b1", "a1", "a2", "c2"]);
        let rounds: Vec<_> = rows.into_iter().map(|row| row.rounds).collect();
        assert_eq!(
            rounds,
            [Ok(vec![0, 1, 2]), Err("b is not there".to_owned()), Ok(vec![0, 1, 2])]
        );
    }
}
