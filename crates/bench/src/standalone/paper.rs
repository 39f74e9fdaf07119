//! The numbers of *RDMA Optimization on MongoDB* (Lu, Fang, Li, Zhang, Chen; USTC) that its text has: most of its
//! figures are plots without numbers.
//!
//! Its setup: MongoDB 4.0 on two Xeon E5-2660 per node, between nodes with 1 Gbit Ethernet, TCP over 40 Gbit
//! InfiniBand (IPoIB), and RDMA over the same.

use super::requests::Operation;

/// Its networks.
pub const NETWORKS: [&str; 3] = ["1GigE", "IPoIB", "RDMA"];

/// A request's time by stages.
pub struct Stages {
    /// Where it is.
    pub figure: &'static str,
    /// What was asked.
    pub operation: Operation,
    /// Of a record.
    pub bytes: u64,
    /// `disk` or `memory`, as the report's places.
    pub place: &'static str,
    /// In microseconds, of each of [`NETWORKS`]: Source (waiting included), Process, Sink, Other.
    pub us: [[f64; 4]; 3],
}

/// Figures 6 (a) and 7 (b), the two whose numbers the text gives in full.
pub const STAGES: [Stages; 2] = [
    Stages {
        figure: "Figure 6 (a)",
        operation: Operation::Put,
        bytes: 1 << 10,
        place: "disk",
        us: [[509.2, 111.4, 45.5, 44.5], [437.4, 115.9, 58.2, 47.7], [274.0, 58.8, 18.6, 24.1]],
    },
    Stages {
        figure: "Figure 7 (b)",
        operation: Operation::Get,
        bytes: 1 << 20,
        place: "disk",
        us: [
            [9307.6, 1867.5, 275.8, 68.9],
            [1427.1, 1627.4, 313.3, 73.8],
            [602.3, 1203.3, 550.0, 37.5],
        ],
    },
];

/// What the text says of stages and processor time besides.
pub const STAGE_WORDS: &[&str] = &[
    "Section 4.2: overall, RDMA is 1.89 and 1.76 times faster than 1GigE and IPoIB for Put of 1 KB, 4.64 and 1.40 times for \
     Get of 1 MB (its stages' sums give 4.81 and 1.44).",
    "Section 4.2, 1 MB on a memory file system, Process of RDMA: Put 1079.02 us (disk 1381.85), Get 641.59 us (disk \
     1293.30; 1203.3 in the text on Figure 7).",
    "Section 4.2: RDMA uses the most processor time and 1GigE the least: whoever does more requests a second does \
     more work. Numbers are only in the plots.",
];

/// Latency that the text says.
pub struct Latency {
    /// What was asked.
    pub operation: Operation,
    /// Of a record.
    pub bytes: u64,
    /// As above.
    pub place: &'static str,
    /// In microseconds, of each of [`NETWORKS`].
    pub us: [f64; 3],
}

/// Section 4.3: the only absolute numbers of Figures 10 and 11.
pub const LATENCY: Latency =
    Latency { operation: Operation::Put, bytes: 1 << 10, place: "disk", us: [778.4, 761.5, 318.0] };

/// What the text says of latency by size.
pub const SIZE_WORDS: &[&str] = &[
    "Section 4.3, Put of 1 KB on disk: 778.4 us by 1GigE, 761.5 us by IPoIB, 318 us by RDMA.",
    "Section 4.3, Put of 1 KB to 1 MB on disk: RDMA is 2.45 to 3.56 times faster than 1GigE, IPoIB 1.02 to 2.73 times.",
    "Abstract: RDMA is up to 3.58 times (Put) and 6.16 times (Get) faster. All else is in plots without numbers.",
];

/// A model.
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Its size in 2^20 bytes.
    pub megabytes: u64,
    /// How much faster RDMA is than 1GigE and IPoIB, one server (the text of section 4.3 on Figure 12).
    pub speed_up: [f64; 2],
    /// Milliseconds by RDMA in a replica set (section 4.4): absolute numbers of one server are only in the plot.
    pub replica_set_ms: f64,
    /// There, how much faster than 1GigE and IPoIB.
    pub replica_set_speed_up: [f64; 2],
}

/// The three.
pub const MODELS: [Model; 3] = [
    Model {
        name: "inception-v3",
        megabytes: 91,
        speed_up: [3.02, 1.58],
        replica_set_ms: 164.0,
        replica_set_speed_up: [5.52, 3.19],
    },
    Model {
        name: "resnet152",
        megabytes: 219,
        speed_up: [4.58, 1.85],
        replica_set_ms: 383.0,
        replica_set_speed_up: [6.37, 2.72],
    },
    Model {
        name: "vgg16",
        megabytes: 528,
        speed_up: [6.69, 2.69],
        replica_set_ms: 868.0,
        replica_set_speed_up: [6.06, 2.54],
    },
];

/// Several clients, four of them.
pub struct Clients {
    /// What was asked.
    pub operation: Operation,
    /// Of a record.
    pub bytes: u64,
    /// Of each client.
    pub threads: usize,
    /// By RDMA, in microseconds, where the text says it.
    pub us: Option<f64>,
    /// How much faster than 1GigE and IPoIB.
    pub speed_up: [f64; 2],
}

const fn four(
    operation: Operation,
    bytes: u64,
    threads: usize,
    us: Option<f64>,
    speed_up: [f64; 2],
) -> Clients {
    Clients { operation, bytes, threads, us, speed_up }
}

/// Section 4.5: four client nodes, a replica set of four nodes.
pub const CLIENTS: [Clients; 8] = [
    four(Operation::Put, 1 << 10, 1, Some(414.0), [2.14, 1.96]),
    four(Operation::Put, 1 << 20, 1, Some(7700.0), [6.67, 1.20]),
    four(Operation::Get, 1 << 10, 1, None, [1.83, 1.65]),
    four(Operation::Get, 1 << 20, 1, None, [12.9, 1.45]),
    four(Operation::Put, 1 << 10, 2, Some(465.0), [1.71, 1.59]),
    four(Operation::Put, 1 << 20, 2, Some(13200.0), [6.33, 1.08]),
    four(Operation::Get, 1 << 10, 2, None, [1.62, 1.66]),
    four(Operation::Get, 1 << 20, 2, None, [22.68, 1.34]),
];
