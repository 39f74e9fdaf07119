//! A bare ping-pong by WRITE WITH IMMEDIATE, and bandwidth by WRITE. It is the baseline for sessions over RDMA,
//! and is itself compared with perftest.
//!
//! `pingpong serve|connect ADDRESS:PORT latency poll|event BYTES ITERATIONS` `pingpong serve|connect
//! ADDRESS:PORT bandwidth BYTES ITERATIONS`
//!
//! Both sides get the same arguments except the first; ADDRESS is one of the device's network. The connecting
//! side prints one JSON object: one-way microseconds, or megabytes (10^6) per second.

use kauri_transport::sys::{Epoll, EventList};
use kauri_verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Endpoint, Gid, MemoryRegion, Operation,
    QueuePair, QueuePairOptions, RemoteAddress, SendRequest, Source, Status, Verbs, choose_gid,
};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// WRITEs in flight when bandwidth is measured, as in perftest.
const DEPTH: usize = 128;
/// Receives posted at a time.
const RECEIVES: u32 = 32;

struct Plan {
    serve: bool,
    address: SocketAddr,
    bandwidth: bool,
    event: bool,
    bytes: usize,
    iterations: u32,
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let plan = parse(&words).ok_or("see the head of this file for the arguments")?;
    if plan.serve {
        let socket = TcpListener::bind(plan.address)?.accept()?.0;
        return run(&plan, socket);
    }
    run(&plan, TcpStream::connect(plan.address)?)
}

fn parse(words: &[&str]) -> Option<Plan> {
    let (bandwidth, event, bytes, iterations) = match words {
        [_, _, "latency", mode, bytes, n] => (false, *mode == "event", bytes, n),
        [_, _, "bandwidth", bytes, n] => (true, false, bytes, n),
        _ => return None,
    };
    let serve = *words.first()? == "serve";
    let address = words.get(1)?.parse().ok()?;
    let (bytes, iterations) = (bytes.parse().ok()?, iterations.parse().ok()?);
    Some(Plan { serve, address, bandwidth, event, bytes, iterations })
}

struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    to: RemoteAddress,
    epoll: Epoll,
    event: bool,
}

fn run(plan: &Plan, mut socket: TcpStream) -> Outcome<()> {
    let (device, _) = Verbs::load()?.open_active()?;
    let gid = choose_gid(&device.gids()?, plan.address.ip()).ok_or("no GID of that address")?;
    let domain = device.protection_domain()?;
    let cq = CompletionQueue::new(&device, 2 * DEPTH as u32, true)?;
    let qp = QueuePair::new(
        &domain,
        &cq,
        &QueuePairOptions {
            key: 0,
            sends_max: DEPTH as u32,
            receives_max: DEPTH as u32,
            inline_bytes: 220,
            signal_interval: 32,
            gid,
            sequence: 1,
        },
    )?;
    let region = domain.register(plan.bytes, Access::REMOTE_WRITE)?;
    let (peer, to) = exchange(&mut socket, &qp.endpoint(), region.remote())?;
    qp.post_empty_receives(2 * RECEIVES, 0)?;
    qp.connect(&peer, &ConnectOptions::default())?;
    let epoll = Epoll::new()?;
    epoll.add_readable(cq.channel().ok_or("no channel")?.as_fd(), 0)?;
    let side = Side { qp, cq, region, to, epoll, event: plan.event };
    meet(&mut socket)?;
    let result = match (plan.bandwidth, plan.serve) {
        (false, serve) => side.latency(plan, !serve),
        (true, false) => side.bandwidth(plan),
        (true, true) => Ok(()),
    };
    // Neither side may end while the other still writes.
    meet(&mut socket)?;
    result
}

/// Sends this side's address to the peer and receives the peer's.
fn exchange(
    socket: &mut TcpStream,
    mine: &Endpoint,
    region: RemoteAddress,
) -> Outcome<(Endpoint, RemoteAddress)> {
    let mut out = Vec::new();
    for word in [mine.number, mine.sequence, mine.mtu, mine.lid.into(), region.key] {
        out.extend(word.to_be_bytes());
    }
    out.extend(region.address.to_be_bytes());
    out.extend(mine.gid.0);
    socket.write_all(&out)?;
    let mut word = || -> Outcome<u32> {
        let mut bytes = [0; 4];
        socket.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    };
    let (number, sequence, mtu) = (word()?, word()?, word()?);
    let (lid, key) = (word()? as u16, word()?);
    let address = u64::from(word()?) << 32 | u64::from(word()?);
    let mut gid = Gid::default();
    socket.read_exact(&mut gid.0)?;
    Ok((Endpoint { number, sequence, gid, lid, mtu }, RemoteAddress { address, key }))
}

fn meet(socket: &mut TcpStream) -> Outcome<()> {
    socket.write_all(&[1])?;
    Ok(socket.read_exact(&mut [0])?)
}

impl Side {
    fn request(&self, operation: Operation<'_>) -> Outcome<()> {
        Ok(self.qp.post_send(&[SendRequest::new(0, operation).unsignalled()])?)
    }

    fn ping(&self, immediate: u32) -> Outcome<()> {
        let from = Source::Region(self.region.all());
        self.request(Operation::WriteWithImmediate { from, to: self.to, immediate })
    }

    /// Waits for one completion, by polling or asleep.
    fn wait(&self) -> Outcome<Completion> {
        let mut out = [Completion::EMPTY];
        loop {
            if self.cq.poll(&mut out)? == 1 {
                break;
            }
            if self.event {
                self.cq.arm()?;
                if self.cq.poll(&mut out)? == 1 {
                    break;
                }
                self.epoll.wait(&mut EventList::new(1), None)?;
                self.cq.take_event()?;
            }
        }
        match out[0].status {
            Status::Success => Ok(out[0]),
            status => Err(format!("{status:?}").into()),
        }
    }

    fn latency(&self, plan: &Plan, begins: bool) -> Outcome<()> {
        let mut rounds = Vec::with_capacity(plan.iterations as usize);
        let mut start = Instant::now();
        for i in 0..plan.iterations {
            if begins {
                self.ping(i)?;
            }
            let came = self.wait()?;
            if came.immediate != Some(i) || came.bytes as usize != plan.bytes {
                return Err(format!("unexpected completion: {came:?}").into());
            }
            if !begins {
                self.ping(i)?;
            }
            if i % RECEIVES == RECEIVES - 1 {
                self.qp.post_empty_receives(RECEIVES, 0)?;
            }
            if begins {
                let end = Instant::now();
                rounds.push(end - start);
                start = end;
            }
        }
        if begins {
            rounds.sort();
            let us = |share: f64| {
                let place = ((rounds.len() - 1) as f64 * share) as usize;
                rounds[place].as_secs_f64() * 1e6 / 2.0
            };
            println!(
                "{{\"test\":\"latency\",\"mode\":\"{}\",\"bytes\":{},\"iterations\":{},\
                 \"us_median\":{:.2},\"us_p99\":{:.2},\"us_min\":{:.2}}}",
                if plan.event { "event" } else { "poll" },
                plan.bytes,
                plan.iterations,
                us(0.5),
                us(0.99),
                us(0.0),
            );
        }
        Ok(())
    }

    fn bandwidth(&self, plan: &Plan) -> Outcome<()> {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < plan.iterations {
            while posted < plan.iterations && posted - done < DEPTH as u32 {
                let from = Source::Region(self.region.all());
                let operation = Operation::Write { from, to: self.to };
                self.qp.post_send(&[SendRequest::new(0, operation)])?;
                posted += 1;
            }
            self.wait()?;
            done += 1;
        }
        let bytes = plan.bytes as f64 * f64::from(plan.iterations);
        println!(
            "{{\"test\":\"bandwidth\",\"bytes\":{},\"iterations\":{},\"mb_per_s\":{:.1}}}",
            plan.bytes,
            plan.iterations,
            bytes / 1e6 / start.elapsed().as_secs_f64(),
        );
        Ok(())
    }
}
