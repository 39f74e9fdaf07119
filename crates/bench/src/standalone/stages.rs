//! The server's stages, and the check of their sum.
//!
//! A client that sends one request after the other over a server's only busy session has a *cycle*: from one
//! request to the next. The server divides the same time into waiting, Source, Process, Sink and Other. So between
//! two readings of its sums the stages must take as long as the client's cycles.
//!
//! This can be checked without a tolerance. A reading is a request of the same session, and its sums end at its
//! last byte. So the server's time between two readings begins after the client began to send the first reading and
//! before it had the reply, and ends likewise in the second. The sum lies between the time from the first reply to
//! the second request and the time from the first request to the second reply, however loaded the machine is. Both
//! sides read the same clock.

use super::requests::ok_body;
use kauri_bson::{DocBuf, doc};
use kauri_client::{ClientError, Connection};
use std::time::Instant;

/// A stage: its name in `serverStatus`, in JSON, in tables.
pub const STAGES: [(&str, &str, &str); 5] = [
    ("idleWait", "waiting", "waiting"),
    ("source", "source", "Source"),
    ("process", "process", "Process"),
    ("sink", "sink", "Sink"),
    ("other", "other", "Other"),
];

/// Time in each of [`STAGES`], and requests.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct StageTimes {
    /// In microseconds.
    pub total_us: [f64; STAGES.len()],
    /// How many requests it was.
    pub requests: i64,
}

impl StageTimes {
    /// Of one request.
    pub fn a_request_us(&self) -> [f64; STAGES.len()] {
        self.total_us.map(|total| total / self.requests.max(1) as f64)
    }

    /// All stages together.
    pub fn sum_us(&self) -> f64 {
        self.total_us.iter().sum()
    }

    fn minus(&self, before: &StageTimes) -> StageTimes {
        let mut total_us = self.total_us;
        total_us.iter_mut().zip(before.total_us).for_each(|(after, before)| *after -= before);
        StageTimes { total_us, requests: self.requests - before.requests }
    }

    fn plus(&self, other: &StageTimes) -> StageTimes {
        let mut total_us = self.total_us;
        total_us.iter_mut().zip(other.total_us).for_each(|(sum, more)| *sum += more);
        StageTimes { total_us, requests: self.requests + other.requests }
    }

    /// From a reply to `serverStatus`.
    fn parse(status: &DocBuf) -> Result<StageTimes, ClientError> {
        let missing = || ClientError::Protocol("a server that does not tell its stages".to_owned());
        let section = status.as_doc().get("transportStages").and_then(|section| section.as_doc());
        let section = section.ok_or_else(missing)?;
        let mut times = StageTimes::default();
        for (total, (name, _, _)) in times.total_us.iter_mut().zip(STAGES) {
            let stage = section.get(name).and_then(|stage| stage.as_doc()).ok_or_else(missing)?;
            let number = |field: &str| stage.value(field).as_f64_lossy();
            *total = number("totalMicros").ok_or_else(missing)?;
            if name == "idleWait" {
                times.requests = number("count").ok_or_else(missing)? as i64;
            }
        }
        Ok(times)
    }
}

/// The sums at a moment, and when they were asked for.
pub struct Reading {
    times: StageTimes,
    asked: Instant,
    answered: Instant,
}

impl Reading {
    /// Asks for them. What is measured must go over the same connection.
    pub fn take(connection: &mut Connection) -> Result<Reading, ClientError> {
        let command = doc! { "serverStatus" => 1, "none" => 1, "transportStages" => 1 };
        let asked = Instant::now();
        connection.send("admin", &command)?;
        let message = connection.receive_message()?;
        let answered = Instant::now();
        Ok(Reading { times: StageTimes::parse(&ok_body(message)?.to_buf())?, asked, answered })
    }
}

/// What was between two readings. The first reading itself is one of its requests.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Window {
    /// The server's.
    pub stages: StageTimes,
    /// The client's time, question to question.
    pub wall_us: f64,
    /// From the first answer to the second question: the server's time is not less.
    pub least_us: f64,
    /// From the first question to the second answer: the server's time is not more.
    pub most_us: f64,
}

/// What rounding of nanoseconds to fractions of microseconds can add up to.
const ROUNDING_US: f64 = 1.0;

impl Window {
    /// Between these two.
    pub fn between(before: &Reading, after: &Reading) -> Window {
        let us = |from: Instant, to: Instant| to.duration_since(from).as_nanos() as f64 / 1e3;
        Window {
            stages: after.times.minus(&before.times),
            wall_us: us(before.asked, after.asked),
            least_us: us(before.answered, after.asked),
            most_us: us(before.asked, after.answered),
        }
    }

    /// Both together.
    pub fn plus(&self, other: &Window) -> Window {
        Window {
            stages: self.stages.plus(&other.stages),
            wall_us: self.wall_us + other.wall_us,
            least_us: self.least_us + other.least_us,
            most_us: self.most_us + other.most_us,
        }
    }

    /// Whether the stages take as long as the cycles; see the module's head.
    pub fn adds_up(&self) -> bool {
        let sum_us = self.stages.sum_us();
        self.least_us - ROUNDING_US <= sum_us && sum_us <= self.most_us + ROUNDING_US
    }

    /// A client's time from request to request.
    pub fn cycle_us(&self) -> f64 {
        self.wall_us / self.stages.requests.max(1) as f64
    }

    /// By how much the stages' sum is off the cycles, in percent of those.
    pub fn deviation_percent(&self) -> f64 {
        (self.stages.sum_us() / self.wall_us.max(1e-9) - 1.0) * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, Value};

    fn status(names: &[&str]) -> DocBuf {
        let stages = DocBuf::build(|out| {
            for (number, name) in names.iter().enumerate() {
                let mut stage = out.document(name);
                stage.put("count", 3i64);
                stage.put("totalMicros", 10.5 + number as f64);
            }
        });
        doc! { "ok" => 1.0, "transportStages" => stages }
    }

    #[test]
    fn stages_are_read_by_name_and_a_missing_one_is_an_error() {
        let names = STAGES.map(|(name, _, _)| name);
        let times = StageTimes::parse(&status(&names)).unwrap();
        assert_eq!((times.total_us, times.requests), ([10.5, 11.5, 12.5, 13.5, 14.5], 3));
        let before = StageTimes { total_us: [0.5; 5], requests: 1 };
        let between = times.minus(&before);
        assert_eq!((between.sum_us(), between.requests), (60.0, 2));
        assert_eq!(before.plus(&between), times);
        let error = StageTimes::parse(&status(&names[..4])).unwrap_err().to_string();
        assert!(error.contains("does not tell its stages"), "{error}");
        assert!(StageTimes::parse(&doc! { "ok" => Value::Int32(1) }).is_err());
    }
}
