//! `kauri bench compare`: significant differences between two results of `kauri bench run`.

use clap::{Arg, ArgMatches, Command};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bench::run::changes::{Comparison, Figures, compare};

/// The command line's form.
pub fn command() -> Command {
    Command::new("compare")
        .about("Compares two results of 'kauri bench run'")
        .long_about(
            "Compares two results that 'kauri bench run --json' wrote, or two servers of one result with --labels. \
             A figure counts as changed if a rank-sum test over the rounds is significant at the 1 % level and the \
             medians differ by 2 % or more. The test needs at least five rounds. The exit status is 0 if no figure \
             is worse, 1 if a figure is worse, 2 if the results cannot be compared.",
        )
        .arg(Arg::new("before").required(true).value_name("A.json").help("Result to compare with"))
        .arg(
            Arg::new("after")
                .value_name("B.json")
                .help("Result to compare")
                .required_unless_present("labels")
                .conflicts_with("labels"),
        )
        .arg(
            Arg::new("labels")
                .long("labels")
                .value_name("A,B")
                .help("Compare these two servers of one result"),
        )
}

/// Compares and prints what has changed. Whether something has become worse.
pub fn run(matches: &ArgMatches) -> Result<bool> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let before = text("before").unwrap_or_default();
    let comparison = match text("labels") {
        Some(labels) => of_labels(&read(before)?, labels)?,
        None => {
            let after = text("after").unwrap_or_default();
            compare([before, after], &read(before)?, &read(after)?)?
        }
    };
    print!("{}", comparison.table());
    Ok(comparison.is_worse())
}

fn of_labels(figures: &Figures, labels: &str) -> Result<Comparison> {
    let Some((a, b)) = labels.split_once(',') else {
        return Err(failed(format!("--labels takes two, separated by a comma, not '{labels}'")));
    };
    compare([a, b], &figures.of_server(a)?, &figures.of_server(b)?)
}

fn read(path: &str) -> Result<Figures> {
    let text = std::fs::read_to_string(path)
        .map_err(|why| failed(format!("cannot read '{path}': {why}")))?;
    Figures::parse(path, &text)
}

fn failed(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::OperationFailed, why)
}
