//! Checks histories of appends to lists, in the text form of `kauri_consistency::history`.
//!
//! `check_lists FILE…`: the files are parts of one history. Writes a line for each fault, with the transactions that
//! prove it, then the number of transactions. Fails if there is a fault.

use kauri_consistency::cycles::{Order, Promise};
use kauri_consistency::history;
use kauri_consistency::lists::{Fault, Transaction, check_each};
use std::process::ExitCode;

/// Faults that are shown in full.
const SHOWN_MAX: usize = 20;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("check_lists: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let mut all: Vec<(Transaction, Order)> = Vec::new();
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let part = history::parse(&text);
        all.extend(part.map_err(|of| format!("{file}: line {} is no transaction", of.line))?);
    }
    let (transactions, orders): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let order = |index: usize| orders.get(index).copied().unwrap_or(Order::RealTime);
    let faults = check_each(&transactions, Promise::STRICT_SERIALIZABLE, order);
    for fault in faults.iter().take(SHOWN_MAX) {
        println!("{fault:?}");
        for index in named(fault) {
            println!("  {index} {:?} {:?}", order(index), transactions.get(index));
        }
    }
    println!("{} transactions, {} faults", transactions.len(), faults.len());
    Ok(faults.is_empty())
}

/// The transactions of a fault.
fn named(fault: &Fault) -> Vec<usize> {
    match fault {
        Fault::Phantom { reader, .. }
        | Fault::Duplicate { reader, .. }
        | Fault::AbortedRead { reader, .. }
        | Fault::IntermediateRead { reader, .. }
        | Fault::Internal { reader, .. } => vec![*reader],
        Fault::IncompatibleOrder { readers: (one, other), .. } => vec![*one, *other],
        Fault::Lost { writer, .. } => vec![*writer],
        Fault::Cycle(cycle) => cycle.edges.iter().map(|(index, _)| *index).collect(),
    }
}
