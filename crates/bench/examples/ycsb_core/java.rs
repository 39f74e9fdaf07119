//! Java's `ThreadLocalRandom`, continued from a given state. It is Steele's SplittableRandom with an increment
//! per thread.

use super::Wrong;
use kauri_bench::workload::Random;

/// The random numbers of a Java virtual machine: the increment of a thread's state.
#[derive(Clone, Copy)]
pub struct Machine {
    step: i64,
}

impl Machine {
    /// The machine whose first numbers after state 42 are these: a long, an int and the bits of a double.
    /// Another Java may generate other numbers, which is not a difference between the workloads.
    pub fn proven(step: i64, first: &[&str]) -> Result<Machine, Wrong> {
        let machine = Machine { step };
        let mut random = machine.at(42);
        let ours = [
            random.bits64().cast_signed().to_string(),
            random.bits32().cast_signed().to_string(),
            random.unit().to_bits().to_string(),
        ];
        if ours == *first {
            Ok(machine)
        } else {
            Err(format!("this Java draws other random numbers: {first:?}, not {ours:?}").into())
        }
    }

    /// The numbers after this state.
    pub fn at(self, state: i64) -> ThreadLocalRandom {
        ThreadLocalRandom { state, step: self.step }
    }
}

/// A thread's random numbers.
pub struct ThreadLocalRandom {
    state: i64,
    step: i64,
}

impl ThreadLocalRandom {
    /// The next state, half mixed.
    fn half_mixed(&mut self) -> u64 {
        self.state = self.state.wrapping_add(self.step);
        let state = self.state.cast_unsigned();
        let mixed = (state ^ (state >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        (mixed ^ (mixed >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53)
    }
}

impl Random for ThreadLocalRandom {
    fn bits64(&mut self) -> u64 {
        let mixed = self.half_mixed();
        mixed ^ (mixed >> 33)
    }

    fn bits32(&mut self) -> u32 {
        (self.half_mixed() >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        let (high, low) = (self.bits32() >> 6, self.bits32() >> 5);
        ((u64::from(high) << 27) + u64::from(low)) as f64 / (1u64 << 53) as f64
    }
}
