//! Several concurrent client processes, each with some threads and a connection per thread.
//!
//! The paper's clients are nodes; on one machine they are processes. A client process is this program with an
//! [`Order`] as its arguments. It connects, warms up, and prints `ready`. When all are ready, each gets a line and
//! begins. At the end it prints one line: `done` and the rest of a line for each thread (its time in nanoseconds
//! and its histogram, separated by `;`), or `failed` and the reason. A client whose input ends before that line
//! ends, too.

use super::requests::{Asker, Operation, Slice};
use super::rows::ClientsRound;
use crate::cpu::busy_time;
use crate::histogram::Histogram;
use kauri_client::{ClientError, Uri};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What a client is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    /// The server.
    pub connection_string: String,
    /// What is asked.
    pub operation: Operation,
    /// The size of a document.
    pub bytes: u64,
    /// Threads, and connections.
    pub threads: usize,
    /// For how long; the bytes to put are a thread's.
    pub slice: Slice,
    /// Which of the clients it is.
    pub number: usize,
}

impl Order {
    /// As arguments of a command.
    pub fn to_arguments(&self) -> Vec<String> {
        let nanos = |time: Duration| time.as_nanos().to_string();
        vec![
            self.connection_string.clone(),
            self.operation.name().to_owned(),
            self.bytes.to_string(),
            self.threads.to_string(),
            nanos(self.slice.warm_up),
            nanos(self.slice.measure),
            self.slice.put_bytes_max.to_string(),
            self.number.to_string(),
        ]
    }

    /// From these arguments.
    pub fn parse(arguments: &[String]) -> Option<Order> {
        let number = |at: usize| arguments.get(at)?.parse::<u64>().ok();
        Some(Order {
            connection_string: arguments.first()?.clone(),
            operation: Operation::parse(arguments.get(1)?)?,
            bytes: number(2)?,
            threads: number(3)? as usize,
            slice: Slice {
                warm_up: Duration::from_nanos(number(4)?),
                measure: Duration::from_nanos(number(5)?),
                put_bytes_max: number(6)?,
            },
            number: number(7)? as usize,
        })
    }
}

/// Of one thread.
type Outcome = (Histogram, Duration);

/// Does what it is told; the client process's side.
pub fn serve(order: &Order) -> io::Result<()> {
    let said = match carry_out(order) {
        Ok(outcomes) => {
            let line =
                |(latency, wall): &Outcome| format!("{} {}", wall.as_nanos(), latency.to_text());
            format!("done {}", outcomes.iter().map(line).collect::<Vec<_>>().join(";"))
        }
        Err(why) => format!("failed {}", why.to_string().replace('\n', " ")),
    };
    writeln!(io::stdout(), "{said}")
}

fn carry_out(order: &Order) -> Result<Vec<Outcome>, ClientError> {
    let uri: Uri = order.connection_string.parse()?;
    let mut askers = Vec::new();
    for thread in 0..order.threads.max(1) {
        // Each has ids of its own.
        let first_id = ((order.number * order.threads.max(1) + thread + 1) as i64) << 32;
        let mut asker = Asker::connect(&uri, order.operation, order.bytes, first_id)?;
        asker.warm_up(&order.slice)?;
        askers.push(asker);
    }
    writeln!(io::stdout(), "ready")?;
    if io::stdin().read_line(&mut String::new())? == 0 {
        return Err(ClientError::Protocol("nobody waits for it".to_owned()));
    }
    let slice = &order.slice;
    std::thread::scope(|scope| {
        let run = |mut asker: Asker| scope.spawn(move || asker.run(slice));
        let running: Vec<_> = askers.into_iter().map(run).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            let panicked = |_| Err(ClientError::Protocol("a client's thread panicked".to_owned()));
            thread.join().unwrap_or_else(panicked)
        };
        running.into_iter().map(ended).collect()
    })
}

/// What a client has said in the end.
fn parse_outcomes(line: &str) -> Result<Vec<Outcome>, ClientError> {
    let line = line.trim();
    let protocol = |what: String| ClientError::Protocol(what);
    if let Some(why) = line.strip_prefix("failed ") {
        return Err(ClientError::Required(why.to_owned()));
    }
    let told = line.strip_prefix("done ");
    let told = told.ok_or_else(|| protocol("a client process ended early".to_owned()))?;
    let outcome = |text: &str| {
        let (wall, latency) = text.split_once(' ')?;
        Some((Histogram::from_text(latency)?, Duration::from_nanos(wall.parse().ok()?)))
    };
    let all: Option<Vec<Outcome>> = told.split(';').map(outcome).collect();
    all.ok_or_else(|| protocol("a client process told what can't be read".to_owned()))
}

/// A client process, ended when it is dropped.
struct Client {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(program: &Path, command: &str, order: &Order) -> io::Result<Client> {
        let mut child = Command::new(program)
            .arg(command)
            .args(order.to_arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        Ok(Client { child, output: BufReader::new(output) })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    fn begin(&mut self) -> io::Result<()> {
        match &mut self.child.stdin {
            Some(input) => input.write_all(b"go\n"),
            None => Ok(()),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // One that is done ends by itself; one that waits ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs a client for each order, `program` with `command` and the order, all at the same time, against the server whose
/// process is `pid`.
pub fn measure(
    program: &Path,
    command: &str,
    orders: &[Order],
    pid: u32,
) -> Result<ClientsRound, ClientError> {
    let started: io::Result<Vec<Client>> =
        orders.iter().map(|order| Client::start(program, command, order)).collect();
    let mut clients = started?;
    for client in &mut clients {
        let line = client.line()?;
        if line.trim() != "ready" {
            parse_outcomes(&line)?;
        }
    }
    let before = busy_time(pid);
    for client in &mut clients {
        client.begin()?;
    }
    let mut round = ClientsRound {
        latency: Histogram::default(),
        per_s: 0.0,
        server_cpu: None,
        spread_per_s: None,
    };
    for client in &mut clients {
        for (latency, wall) in parse_outcomes(&client.line()?)? {
            round.per_s += latency.count() as f64 / wall.as_secs_f64().max(1e-9);
            round.latency.merge(&latency);
        }
    }
    round.server_cpu = busy_time(pid).zip(before).map(|(after, before)| after - before);
    Ok(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_outcomes_come_back() {
        let order = Order {
            connection_string: "mongodb://h/?rdma=off".to_owned(),
            operation: Operation::Mixed,
            bytes: 1024,
            threads: 2,
            slice: Slice {
                warm_up: Duration::from_millis(1),
                measure: Duration::from_secs(2),
                put_bytes_max: 9,
            },
            number: 3,
        };
        assert_eq!(Order::parse(&order.to_arguments()), Some(order.clone()));
        assert_eq!(Order::parse(&order.to_arguments()[1..]), None);

        let mut latency = Histogram::default();
        latency.record(1500);
        let one = format!("77 {}", latency.to_text());
        let outcomes = parse_outcomes(&format!("done {one};{one}\n")).unwrap();
        assert_eq!(outcomes.len(), 2);
        assert_eq!(outcomes[1].1, Duration::from_nanos(77));
        assert_eq!(outcomes[1].0.count(), 1);
        for (line, words) in [
            ("failed no RDMA here\n", "no RDMA here"),
            ("", "ended early"),
            ("done 77 2 1 1 0:1", "can't be read"),
        ] {
            let error = parse_outcomes(line).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
