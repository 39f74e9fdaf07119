//! Random shapes of all kinds: each gets a reply, and the server survives.

use super::Victim;
use super::generate::Generator;
use kauri_bson::{DocBuf, doc};
use std::time::{Duration, Instant};

/// Requests of an ordinary run.
const REQUESTS: u64 = 150;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The command with a time limit: some shapes repeat the work of the level below at each level.
fn bounded(command: &DocBuf) -> DocBuf {
    DocBuf::build(|out| {
        out.put_all(command.as_doc());
        out.put("maxTimeMS", 2000);
    })
}

#[test]
fn random_shapes_are_answered() {
    let seconds = number("KAURI_SHAPES_SECONDS");
    let seed = number("KAURI_SHAPES_SEED").unwrap_or(7);
    let ends = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut victim = Victim::start("fuzz", &[]);
    let mut generator = Generator::new(seed);
    let (mut sent, mut commands_sent, mut failed) = (0u64, 0u64, 0u64);
    while sent < REQUESTS || Instant::now() < ends {
        let (name, commands) = generator.shape();
        println!("seed {seed}, request {sent}: {name}");
        for command in &commands {
            commands_sent += 1;
            failed += u64::from(victim.ask(&bounded(command)).is_err());
        }
        sent += 1;
        if sent.is_multiple_of(50) {
            victim.is_alive();
            let collections = victim.works(doc! { "listCollections" => 1 });
            drop(collections);
        }
        if sent.is_multiple_of(400) {
            victim.restart();
        }
    }
    victim.is_alive();
    victim.restart();
    println!("{sent} shapes, {failed} of {commands_sent} commands refused");
    // If all shapes were rejected, the test would prove nothing.
    assert!(2 * failed < commands_sent);
}
