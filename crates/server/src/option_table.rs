//! The table of options: names, flags, kinds, help.

/// The kind of an option's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Flag,
    Text,
    Number,
    /// A number that may have a fraction.
    Decimal,
    /// `name=value`, any number of times.
    Pairs,
}

/// One option: its setting's name, its flag, its kind, the name of its value, its help.
pub struct Known {
    pub setting: &'static str,
    pub flag: &'static str,
    pub kind: Kind,
    pub value: &'static str,
    pub help: &'static str,
}

const fn known(setting: &'static str, flag: &'static str, kind: Kind, help: &'static str) -> Known {
    Known { setting, flag, kind, value: "N", help }
}

const fn text(
    setting: &'static str,
    flag: &'static str,
    value: &'static str,
    help: &'static str,
) -> Known {
    Known { setting, flag, kind: Kind::Text, value, help }
}

/// All options.
pub const KNOWN: &[Known] = &[
    text("storage.dbPath", "dbpath", "DIR", "Directory of the data files [default: /data/db]"),
    known("net.port", "port", Kind::Number, "Port to listen on [default: 27017]"),
    text(
        "net.bindIp",
        "bind_ip",
        "ADDRESSES",
        "Addresses to listen on, separated by commas [default: localhost]",
    ),
    known("net.bindIpAll", "bind_ip_all", Kind::Flag, "Listen on all addresses"),
    known("net.ipv6", "ipv6", Kind::Flag, "Listen on IPv6 addresses, too"),
    known(
        "net.maxIncomingConnections",
        "maxConns",
        Kind::Number,
        "Maximum number of connections [default: 65536]",
    ),
    known(
        "net.unixDomainSocket.enabled",
        "unixDomainSocket",
        Kind::Flag,
        "Listen on a Unix domain socket [default: on]",
    ),
    text(
        "net.unixDomainSocket.pathPrefix",
        "unixSocketPrefix",
        "DIR",
        "Directory of the Unix domain socket [default: /tmp]",
    ),
    text(
        "net.unixDomainSocket.filePermissions",
        "filePermissions",
        "OCTAL",
        "Permissions of the Unix domain socket [default: 0700]",
    ),
    text(
        "net.sharedMemory",
        "sharedMemory",
        "on|off",
        "Whether clients of the server's own user, connected by the Unix domain socket, may switch to shared memory \
         [default: on]",
    ),
    text(
        "net.rdma.mode",
        "rdma",
        "on|off|require",
        "Whether clients connected by TCP may switch to RDMA. With 'require', the server starts only with an RDMA \
         device [default: on]",
    ),
    text(
        "net.rdma.device",
        "rdmaDevice",
        "NAME",
        "RDMA device [default: the first with an active port]",
    ),
    known(
        "net.rdma.port",
        "rdmaPort",
        Kind::Number,
        "Port of the RDMA device [default: the port with the address that the client connects to]",
    ),
    known(
        "net.rdma.gidIndex",
        "rdmaGidIndex",
        Kind::Number,
        "Index in the port's GID table [default: the GID of the address that the client connects to]",
    ),
    known(
        "net.rdma.memoryMB",
        "rdmaMemoryMB",
        Kind::Number,
        "Maximum memory pinned by RDMA sessions, in MB [default: 256]",
    ),
    known(
        "net.rdma.poolMB",
        "rdmaPoolMB",
        Kind::Number,
        "Memory pinned for large messages over RDMA, in MB. With 0, large messages are slower [default: 64]",
    ),
    known(
        "net.spinMicros",
        "spinMicros",
        Kind::Number,
        "Maximum time that an idle worker polls before it sleeps, in microseconds. A worker polls less while no \
         requests arrive [default: 0]",
    ),
    known(
        "net.workers",
        "workers",
        Kind::Number,
        "Number of worker threads [default: one per core; 64 with an engine that blocks]",
    ),
    known(
        "net.stackKB",
        "stackKB",
        Kind::Number,
        "Stack of a request, in KB, 256 to 65536. A request nested too deeply for it fails with Overflow \
         [default: 1024]",
    ),
    text(
        "net.workerCores",
        "workerCores",
        "own|any",
        "With 'own' and as many workers as cores, a busy worker is pinned to a core of its own. With 'any', the \
         kernel places workers [default: own]",
    ),
    text(
        "net.ioUring",
        "ioUring",
        "on|off",
        "Whether replies that become ready within 0.1 ms are sent in one system call, by io_uring [default: on]",
    ),
    text("systemLog.path", "logpath", "FILE", "Log file [default: standard output]"),
    known(
        "systemLog.logAppend",
        "logappend",
        Kind::Flag,
        "Append to the log file at startup instead of renaming the old one",
    ),
    text(
        "systemLog.logRotate",
        "logRotate",
        "rename|reopen",
        "What the command logRotate and SIGUSR1 do with the log file: rename it, or reopen it after another program \
         has renamed it ('reopen' needs --logappend) [default: rename]",
    ),
    known("systemLog.quiet", "quiet", Kind::Flag, "Log no connection events"),
    known("systemLog.verbosity", "verbosity", Kind::Number, "Log level, 0 to 5 [default: 0]"),
    text("processManagement.pidFilePath", "pidfilepath", "FILE", "File for the process ID"),
    text(
        "storage.engine",
        "storageEngine",
        "NAME",
        "Storage engine: pmlog, wiredTiger (if built with it) or ephemeralForTest (keeps data in memory only) \
         [default: pmlog]",
    ),
    known(
        "storage.cacheSizeGB",
        "cacheSizeGB",
        Kind::Decimal,
        "Cache for documents, in GB [default: half of the memory beyond 1 GB]",
    ),
    known(
        "storage.wiredTiger.engineConfig.cacheSizeGB",
        "wiredTigerCacheSizeGB",
        Kind::Decimal,
        "WiredTiger's cache, in GB [default: the value of --cacheSizeGB]",
    ),
    known(
        "storage.maxSizeGB",
        "maxSizeGB",
        Kind::Decimal,
        "Maximum disk space for data, in GB [default: no limit]",
    ),
    known(
        "storage.pmlog.segmentSizeMB",
        "segmentSizeMB",
        Kind::Number,
        "Segment size of a new data directory, in MB: a power of two up to 128. Larger documents than a segment are \
         refused [default: 64; 32 with less than 4 GB of free space]",
    ),
    known(
        "storage.pmlog.recoveryThreads",
        "recoveryThreads",
        Kind::Number,
        "Number of threads that read the log and build indexes at startup [default: one per core]",
    ),
    text(
        "storage.pmlog.verify",
        "verify",
        "quick|full",
        "Checks at startup: what recovery reads, or the CRC of every record [default: quick]",
    ),
    known(
        "storage.repair",
        "repair",
        Kind::Flag,
        "Check every record, move damaged records aside, and exit",
    ),
    text(
        "storage.pmlog.persistentMemory",
        "persistentMemory",
        "auto|off|simulated",
        "With 'auto', the log is mapped where MAP_SYNC succeeds (DAX) and is a file elsewhere. With 'off', it is a \
         file. With 'simulated', ordinary memory stands in, and a power loss may lose everything [default: auto]",
    ),
    known(
        "storage.pmlog.readLatencyNanos",
        "pmReadLatencyNanos",
        Kind::Number,
        "Latency added to each read of a record from persistent memory, in ns; also a server parameter [default: 0]",
    ),
    known(
        "storage.pmlog.lineLatencyNanos",
        "pmLineLatencyNanos",
        Kind::Number,
        "Latency added to each 64 bytes written to persistent memory, in ns; also a server parameter [default: 0]",
    ),
    known(
        "storage.pmlog.fenceLatencyNanos",
        "pmFenceLatencyNanos",
        Kind::Number,
        "Latency added to each fence of a commit to persistent memory, in ns; also a server parameter [default: 0]",
    ),
    known(
        "storage.journal.commitIntervalMs",
        "journalCommitInterval",
        Kind::Number,
        "Maximum time until an acknowledged write is durable without j: true, in ms, 1 to 500 [default: 100]",
    ),
    known(
        "operationProfiling.slowOpThresholdMs",
        "slowms",
        Kind::Number,
        "Threshold of slow operations, in ms. Slow operations are logged [default: 100]",
    ),
    text(
        "operationProfiling.slowOpSampleRate",
        "slowOpSampleRate",
        "FRACTION",
        "Fraction of slow operations that are logged and profiled, 0 to 1 [default: 1]",
    ),
    text(
        "operationProfiling.mode",
        "profile",
        "off|slowOp|all",
        "Operations that are written to system.profile: none (off or 0), slow ones (slowOp or 1), all (all or 2). \
         The command 'profile' overrides it for a database [default: off]",
    ),
    text(
        "replication.replSetName",
        "replSet",
        "NAME",
        "Name of the replica set that this server is a member of. A new set begins with rs.initiate()",
    ),
    known(
        "replication.oplogSizeMB",
        "oplogSize",
        Kind::Number,
        "Space of the newest writes that a member of a replica set keeps for members that lack them, in MB [default: 5 % \
         of the disk or of --maxSizeGB, from 990 to 51200, at most a quarter]",
    ),
    known(
        "replication.leaveReplSet",
        "leaveReplSet",
        Kind::Flag,
        "Make the data directory of a member of a replica set that of a server alone, then exit. All writes of its log \
         stay. It cannot come back to the set",
    ),
    known(
        "setParameter",
        "setParameter",
        Kind::Pairs,
        "Sets a server parameter; may be given several times",
    ),
];

/// Flags and settings of mongod for unsupported features.
pub const NOT_YET: &[(&str, &str)] = &[
    ("configsvr", "sharding.clusterRole"),
    ("shardsvr", "sharding.clusterRole"),
    ("auth", "security.authorization"),
    ("keyFile", "security.keyFile"),
    ("tlsMode", "net.tls.mode"),
    ("tlsCertificateKeyFile", "net.tls.certificateKeyFile"),
    ("fork", "processManagement.fork"),
    ("directoryperdb", "storage.directoryPerDB"),
];
