//! One measurement by several client processes at once.
//!
//! A client process is this program with a hidden command. It reads the length of an [`Order`] on a line of its own
//! and the order, connects, and prints `ready`. `go` with a time of the monotonic clock, which all processes of a
//! host share, lets it begin at that time; `stop` ends it early. During the measurement it prints `so far` with the
//! number of counted operations every few seconds, and at the end one line ([`super::order::told`]).
//!
//! Invariants: no process begins before all are connected, and all begin at the same time. A failing process ends
//! the measurement with its message. A process ends when its input ends, whatever it waits for: so no process
//! outlives the program that started it. Inserts that some processes have done and others have not are completed
//! after the measurement: afterwards all numbers below [`CoreWorkload::next_insert`] have a record.
//!
//! This module must not know which servers take turns.

use super::failed;
use super::order::{Order, parse_told, told};
use super::phase::{Figures, Measurement, SoFar};
use super::subject::{Outcome, Subject};
use crate::cpu::cpu_time;
use crate::workload::{CoreWorkload, ProcessShare, Properties, Settings};
use kauri_base::Result;
use kauri_transport::monotonic_ns;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::Duration;

/// How often a client process tells how far it is: what is made of that is not much older.
const HEARD_EACH: Duration = Duration::from_millis(250);
/// From the word to begin to the beginning: the last one has to have heard it.
const START_AHEAD: Duration = Duration::from_millis(20);
/// How often is looked whether one has failed, or all are to stop.
const LOOK: Duration = Duration::from_millis(20);

/// How a client process is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// This program.
    pub path: PathBuf,
    /// Its command that calls [`serve`].
    pub command: &'static str,
}

/// A client process, ended when it is dropped.
struct Client {
    label: String,
    child: Child,
    input: Option<ChildStdin>,
    /// Its lines, but for those that say how far it is.
    output: Receiver<String>,
    /// What those have said last.
    so_far: Arc<AtomicU64>,
    /// Its last line, if that was read already.
    said: Option<String>,
}

/// Reads to the end.
fn hear(output: ChildStdout, lines: &Sender<String>, so_far: &AtomicU64) {
    for line in BufReader::new(output).lines().map_while(io::Result::ok) {
        match line.strip_prefix("so far ").map(str::parse) {
            Some(Ok(operations)) => so_far.store(operations, Ordering::Relaxed),
            // Whoever waited for it may have failed meanwhile.
            _ => drop(lines.send(line)),
        }
    }
}

impl Client {
    fn start(program: &Program, order: &Order) -> Result<Client> {
        let lost = |why: io::Error| failed("a client process", why);
        let mut child = Command::new(&program.path)
            .arg(program.command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(lost)?;
        let output = child.stdout.take().ok_or_else(|| failed("a client process", "no output"))?;
        let (sender, lines) = mpsc::channel();
        let so_far = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&so_far);
        std::thread::spawn(move || hear(output, &sender, &heard));
        let (label, input) = (order.label.clone(), child.stdin.take());
        let mut client = Client { label, child, input, output: lines, so_far, said: None };
        let text = order.to_text();
        client.tell(&format!("{}\n{text}", text.len()));
        Ok(client)
    }

    /// One that has gone hears nothing; what it said shows why.
    fn tell(&mut self, text: &str) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(text.as_bytes()).and_then(|()| input.flush());
        }
    }

    /// Its next line, empty if it has gone.
    fn line(&mut self) -> String {
        let said = self.said.take();
        said.unwrap_or_else(|| self.output.recv().unwrap_or_default())
    }

    /// Whether it has told what came of it, or has gone.
    fn has_ended(&mut self) -> bool {
        if self.said.is_none() {
            self.said = match self.output.try_recv() {
                Ok(line) => Some(line),
                Err(TryRecvError::Disconnected) => Some(String::new()),
                Err(TryRecvError::Empty) => None,
            };
        }
        self.said.is_some()
    }

    /// Waits until it is connected.
    fn ready(&mut self) -> Result<()> {
        let line = self.line();
        if line.trim_end() == "ready" {
            return Ok(());
        }
        self.outcome_of(&line).map(drop)
    }

    fn outcome_of(&self, line: &str) -> Result<(Figures, i64)> {
        parse_told(&self.label, line)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // After its last line there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Measurement<'_> {
    /// Makes it with processes of their own. `properties` are the workload's. Every few seconds `tell` is called. Ends
    /// early, with what there is, when `stop` is set.
    pub fn run_apart(
        &self,
        program: &Program,
        properties: &Properties,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(SoFar),
    ) -> Result<Figures> {
        let inserts_from = self.workload.next_insert();
        let mut clients = Vec::new();
        for number in 0..self.processes {
            // One after the other, so that every round spreads their connections alike.
            let order = self.order(number, inserts_from, properties);
            let mut client = Client::start(program, &order)?;
            client.ready()?;
            clients.push(client);
        }
        let begin_ns = monotonic_ns() + START_AHEAD.as_nanos() as u64;
        clients.iter_mut().for_each(|client| client.tell(&format!("go {begin_ns}\n")));
        let count_from_ns = begin_ns + self.warm_up.as_nanos() as u64;
        wait(&mut clients, count_from_ns, stop)?;
        let before = self.pid.and_then(cpu_time);
        let end_ns = self.end_ns(count_from_ns);
        let mut next_ns = count_from_ns;
        loop {
            next_ns = next_ns.saturating_add(self.told_each.as_nanos() as u64);
            if wait(&mut clients, next_ns.min(end_ns), stop)? || next_ns >= end_ns {
                break;
            }
            let operations =
                clients.iter().map(|client| client.so_far.load(Ordering::Relaxed)).sum();
            let time = Duration::from_nanos(monotonic_ns().saturating_sub(count_from_ns));
            tell(SoFar { operations, time });
        }
        let after = self.pid.and_then(cpu_time);
        let server_cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        let mut figures = Figures { server_cpu, ..Figures::default() };
        let mut inserted = Vec::new();
        for client in &mut clients {
            let line = client.line();
            let (counted, own) = client.outcome_of(&line)?;
            figures.merge(&counted);
            inserted.push(own);
        }
        self.level(inserts_from, &inserted)?;
        Ok(figures)
    }

    fn order(&self, number: usize, inserts_from: i64, properties: &Properties) -> Order {
        Order {
            label: self.server.label.clone(),
            uri: self.server.uri_text.clone(),
            transport: self.transport.to_owned(),
            properties: properties.clone(),
            share: ProcessShare { number: number as u32, of: self.processes as u32, inserts_from },
            threads: self.threads,
            target: self.target,
            warm_up: self.warm_up,
            length: self.length,
            phases: self.phases,
            seed: self.seed,
        }
    }

    /// Inserts what the processes have left out between their records, of which each has inserted so many.
    fn level(&self, inserts_from: i64, inserted: &[i64]) -> Result<()> {
        let most = inserted.iter().copied().max().unwrap_or(0);
        let mut left = left_out(inserts_from, inserted).peekable();
        if left.peek().is_some() {
            let (_, values) = self.workload.thread(self.seed, u64::MAX >> 1);
            let mut subject = Subject::open(&self.server.uri, Arc::clone(self.workload), values)?;
            while let Some(outcome) = subject.load(&mut left)? {
                if let Outcome::Wrong(why) = outcome {
                    return Err(failed(&self.server.label, why));
                }
            }
        }
        self.workload.insert_from(inserts_from + most * inserted.len() as i64);
        Ok(())
    }
}

/// The numbers below the highest one up to which all processes could have come that none has come to.
fn left_out(inserts_from: i64, inserted: &[i64]) -> impl Iterator<Item = i64> + '_ {
    let (of, most) = (inserted.len() as u32, inserted.iter().copied().max().unwrap_or(0));
    inserted.iter().enumerate().flat_map(move |(number, own)| {
        let share = ProcessShare { number: number as u32, of, inserts_from };
        (*own..most).map(move |record| share.number_of(inserts_from + record))
    })
}

/// Waits for this time, or until all have ended or are told to stop: which of them is told. Fails with the words of
/// the first one that has failed.
fn wait(clients: &mut [Client], until_ns: u64, stop: &AtomicBool) -> Result<bool> {
    loop {
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        if left.is_zero() {
            return Ok(false);
        }
        if stop.load(Ordering::Relaxed) {
            clients.iter_mut().for_each(|client| client.tell("stop\n"));
            return Ok(true);
        }
        let mut running = 0;
        for client in clients.iter_mut() {
            match client.has_ended() {
                // It may be done: it looks at the clock, or counts, by itself.
                true => drop(client.outcome_of(client.said.as_deref().unwrap_or_default())?),
                false => running += 1,
            }
        }
        if running == 0 {
            return Ok(true);
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// A client process: carries out the order of its input, and tells what came of it.
pub fn serve() -> Result<()> {
    let outcome = carry_out();
    let lost = |why: io::Error| failed("the output", why);
    writeln!(io::stdout(), "{}", told(&outcome)).map_err(lost)
}

fn carry_out() -> Result<(Figures, i64)> {
    let lost = |why: io::Error| failed("the input", why);
    let mut input = BufReader::new(io::stdin());
    let (mut line, mut text) = (String::new(), String::new());
    input.read_line(&mut line).map_err(lost)?;
    let bytes = line.trim_end().parse().map_err(|_| failed("the input", "no order"))?;
    input.by_ref().take(bytes).read_to_string(&mut text).map_err(lost)?;
    let order = Order::parse(&text)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, begins) = mpsc::channel();
    let told_to = Arc::clone(&stop);
    std::thread::spawn(move || obey(input, &sender, &told_to));
    let uri = order.uri.parse().map_err(|why: kauri_client::ClientError| failed("the URI", why))?;
    let server = super::plan::Server {
        label: order.label.clone(),
        uri_text: order.uri.clone(),
        uri,
        expected: super::observe::Expected::default(),
        optional: false,
    };
    let settings = Settings::of(&order.properties)?;
    let workload = Arc::new(CoreWorkload::of_process(settings, order.share));
    let measurement = Measurement {
        server: &server,
        pid: None,
        transport: &order.transport,
        workload: &workload,
        threads: order.threads,
        processes: order.share.of as usize,
        process: order.share.number as usize,
        target: order.target,
        warm_up: order.warm_up,
        length: order.length,
        phases: order.phases,
        seed: order.seed,
        told_each: HEARD_EACH,
    };
    let begin = || {
        writeln!(io::stdout(), "ready").map_err(lost)?;
        begins.recv().map_err(|why| failed("the input", why))
    };
    let figures = measurement.run(&stop, begin, &mut |so_far| {
        // Where nobody reads it any more, the input has ended as well.
        let _ = writeln!(io::stdout(), "so far {}", so_far.operations);
    })?;
    Ok((figures, workload.next_insert() - order.share.inserts_from))
}

/// Does what the input says, and ends the process with it.
fn obey(input: impl BufRead, begins: &Sender<u64>, stop: &AtomicBool) {
    for line in input.lines().map_while(io::Result::ok) {
        match line.strip_prefix("go ").map(str::parse) {
            // Whoever waited for it may have failed meanwhile.
            Some(Ok(begin_ns)) => drop(begins.send(begin_ns)),
            _ => stop.store(true, Ordering::Relaxed),
        }
    }
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn processes_insert_in_turns_and_nothing_is_left_out() {
        let inserted = [3, 0, 5];
        let mut all = BTreeSet::new();
        for (number, own) in inserted.iter().enumerate() {
            let share = ProcessShare { number: number as u32, of: 3, inserts_from: 100 };
            // What was there before is the same for all.
            assert_eq!([0, 99].map(|record| share.number_of(record)), [0, 99]);
            (100..100 + own).for_each(|record| assert!(all.insert(share.number_of(record))));
        }
        let left: Vec<i64> = left_out(100, &inserted).collect();
        assert_eq!(left, [109, 112, 101, 104, 107, 110, 113]);
        assert!(left.into_iter().all(|number| all.insert(number)), "inserted twice");
        assert_eq!(all.into_iter().collect::<Vec<_>>(), (100..115).collect::<Vec<_>>());
        assert_eq!(left_out(100, &[2, 2]).count() + left_out(100, &[]).count(), 0);
    }

    #[test]
    fn a_part_chooses_what_is_there_and_its_own() {
        let properties = [
            ("recordcount", "10"),
            ("insertproportion", "1"),
            ("readproportion", "0"),
            ("updateproportion", "0"),
        ];
        let settings = Settings::of(&Properties::of(&properties)).unwrap();
        let share = ProcessShare { number: 1, of: 2, inserts_from: 20 };
        let workload = Arc::new(CoreWorkload::of_process(settings, share));
        assert_eq!((workload.newest(), workload.next_insert()), (19, 20));
        let (mut stream, _) = workload.thread(1, 0);
        let keys = [(); 3].map(|()| match stream.next_operation() {
            crate::workload::Operation::Insert { record } => workload.key(record),
            other => panic!("{other:?}"),
        });
        let whole = CoreWorkload::of(&Properties::of(&properties)).unwrap();
        assert_eq!(keys, [21, 23, 25].map(|number| whole.key(number)));
        assert_eq!(workload.key(19), whole.key(19));
        assert_eq!(workload.next_insert(), 23);
    }
}
