//! The parameters that limit how many connections are established a second.
//!
//! No address is exempt: there is no `ingressConnectionEstablishmentRateLimiterBypass`.

use kauri_base::{Result, bail};
use kauri_bson::Value;
use kauri_commands::parameters::{Kind, Parameter, Parameters};
use kauri_transport::{EstablishmentLimiter, EstablishmentRate};
use std::sync::Arc;

const ENABLED: &str = "ingressConnectionEstablishmentRateLimiterEnabled";
const PER_SECOND: &str = "ingressConnectionEstablishmentRatePerSec";
const BURST: &str = "ingressConnectionEstablishmentBurstCapacitySecs";
const QUEUE: &str = "ingressConnectionEstablishmentMaxQueueDepth";

type Set = fn(&mut EstablishmentRate, f64);

/// Defines the parameters, which this limiter follows.
pub fn define_parameters(parameters: &Parameters, limiter: &Arc<EstablishmentLimiter>) {
    let switched = Arc::clone(limiter);
    let hook = move |value: &Value<'_>| {
        switched.enable(value.truthy());
        Ok(())
    };
    let enabled = Parameter::new(false, Kind::Bool).with_hook(Arc::new(hook));
    parameters.define(ENABLED, enabled);
    let max = i32::MAX;
    let rest: [(_, Parameter, Set); 3] = [
        (PER_SECOND, Parameter::new(max, Kind::Int(1, max)), |rate, n| rate.per_second = n),
        (BURST, Parameter::new(f64::MAX, Kind::Double(0.0, f64::MAX)), |rate, seconds| {
            rate.burst_seconds = seconds;
        }),
        (QUEUE, Parameter::new(0, Kind::Int(0, max)), |rate, n| rate.queue_max = n as u64),
    ];
    for (name, parameter, set) in rest {
        let limiter = Arc::clone(limiter);
        let hook = move |value: &Value<'_>| -> Result<()> {
            let number = value.as_f64_lossy().unwrap_or(0.0);
            if name == BURST && number == 0.0 {
                bail!(BadValue, "Invalid value for parameter {name}: 0 is not greater than 0");
            }
            limiter.change_rate(|rate| set(rate, number));
            Ok(())
        };
        parameters.define(name, parameter.with_hook(Arc::new(hook)));
    }
}
