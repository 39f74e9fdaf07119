//! The part of libibverbs' binary interface that this crate uses: structures with the layout of
//! `infiniband/verbs.h`, constants, function types.
//!
//! Position: at the very bottom. Declarations only; a test compares every size and offset with the C headers. Names
//! are C's without the prefix; unused parts are padding.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct ibv_device`: only its address is used.
#[repr(C)]
pub struct Device {
    opaque: [u8; 0],
}

/// `struct ibv_pd`: only its address is used.
#[repr(C)]
pub struct Pd {
    opaque: [u8; 0],
}

/// `struct ibv_cq`: only its address is used.
#[repr(C)]
pub struct Cq {
    opaque: [u8; 0],
}

/// `struct ibv_context_ops`: the provider's functions for the data path and for windows.
#[repr(C)]
pub struct ContextOps {
    unused_before_alloc_mw: [usize; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    bind_mw: usize,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    create_cq: usize,
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    unused_before_post_send: [usize; 12],
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    unused_after_post_recv: [usize; 5],
}

/// `struct ibv_context`, up to the last field that is used.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub struct CompChannel {
    context: *mut Context,
    pub fd: c_int,
    refcnt: c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub struct Mw {
    context: *mut Context,
    pd: *mut Pd,
    pub rkey: u32,
    handle: u32,
    kind: c_int,
}

/// `struct ibv_qp`, up to the last field that is used.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut Pd,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: *mut c_void,
    handle: u32,
    pub qp_num: u32,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [u8; 64],
    pub node_guid: u64,
    sys_image_guid: u64,
    pub max_mr_size: u64,
    page_size_cap: u64,
    vendor_id: u32,
    vendor_part_id: u32,
    hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    atomic_cap: c_int,
    max_ee: c_int,
    max_rdd: c_int,
    pub max_mw: c_int,
    unused: [c_int; 11],
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    pub state: c_int,
    max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub max_msg_sz: u32,
    bad_pkey_cntr: u32,
    qkey_viol_cntr: u32,
    pkey_tbl_len: u16,
    pub lid: u16,
    sm_lid: u16,
    lmc: u8,
    max_vl_num: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    active_width: u8,
    active_speed: u8,
    phys_state: u8,
    pub link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}

/// `struct ibv_gid_entry`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct GidEntry {
    pub gid: [u8; 16],
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    ndev_ifindex: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `struct ibv_global_route`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    sl: u8,
    src_path_bits: u8,
    static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_mw_bind_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MwBindInfo {
    pub mr: *mut Mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

/// The `bind_mw` part of `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BindMw {
    pub mw: *mut Mw,
    pub rkey: u32,
    pub bind_info: MwBindInfo,
}

/// `struct ibv_send_wr`. Its unions are laid out by their largest member or the one that is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    /// Immediate data in network byte order, or the key to invalidate.
    pub imm_data: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    unused_atomic: [u64; 2],
    unused_qp_type: u64,
    pub bind_mw: BindMw,
}

impl SendWr {
    /// One that says nothing yet.
    pub const EMPTY: SendWr = SendWr {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        remote_addr: 0,
        rkey: 0,
        unused_atomic: [0; 2],
        unused_qp_type: 0,
        bind_mw: BindMw {
            mw: std::ptr::null_mut(),
            rkey: 0,
            bind_info: MwBindInfo {
                mr: std::ptr::null_mut(),
                addr: 0,
                length: 0,
                mw_access_flags: 0,
            },
        },
    };
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

impl RecvWr {
    /// One without a buffer.
    pub const EMPTY: RecvWr =
        RecvWr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In network byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    src_qp: u32,
    pub wc_flags: c_uint,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// `struct ibv_async_event`. The element is a pointer or a port's number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsyncEvent {
    pub element: *mut c_void,
    pub event_type: c_int,
}

pub type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
pub type FreeDeviceList = unsafe extern "C" fn(*mut *mut Device);
pub type GetDeviceName = unsafe extern "C" fn(*mut Device) -> *const c_char;
pub type OpenDevice = unsafe extern "C" fn(*mut Device) -> *mut Context;
pub type CloseDevice = unsafe extern "C" fn(*mut Context) -> c_int;
pub type QueryDevice = unsafe extern "C" fn(*mut Context, *mut DeviceAttr) -> c_int;
pub type QueryPort = unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int;
pub type QueryGidTable =
    unsafe extern "C" fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
pub type GetAsyncEvent = unsafe extern "C" fn(*mut Context, *mut AsyncEvent) -> c_int;
pub type AckAsyncEvent = unsafe extern "C" fn(*mut AsyncEvent);
pub type AllocPd = unsafe extern "C" fn(*mut Context) -> *mut Pd;
pub type DeallocPd = unsafe extern "C" fn(*mut Pd) -> c_int;
pub type RegMr = unsafe extern "C" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
pub type DeregMr = unsafe extern "C" fn(*mut Mr) -> c_int;
pub type CreateCompChannel = unsafe extern "C" fn(*mut Context) -> *mut CompChannel;
pub type DestroyCompChannel = unsafe extern "C" fn(*mut CompChannel) -> c_int;
pub type CreateCq =
    unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
pub type DestroyCq = unsafe extern "C" fn(*mut Cq) -> c_int;
pub type GetCqEvent =
    unsafe extern "C" fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
pub type AckCqEvents = unsafe extern "C" fn(*mut Cq, c_uint);
pub type CreateQp = unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
pub type ModifyQp = unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
pub type DestroyQp = unsafe extern "C" fn(*mut Qp) -> c_int;

pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const ACCESS_MW_BIND: c_int = 1 << 4;

pub const DEVICE_MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
pub const DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

pub const MW_TYPE_2: c_int = 2;

pub const QPT_RC: c_int = 2;

pub const QPS_INIT: c_int = 1;
pub const QPS_RTR: c_int = 2;
pub const QPS_RTS: c_int = 3;
pub const QPS_ERR: c_int = 6;

pub const QP_STATE: c_int = 1;
pub const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub const QP_PKEY_INDEX: c_int = 1 << 4;
pub const QP_PORT: c_int = 1 << 5;
pub const QP_AV: c_int = 1 << 7;
pub const QP_PATH_MTU: c_int = 1 << 8;
pub const QP_TIMEOUT: c_int = 1 << 9;
pub const QP_RETRY_CNT: c_int = 1 << 10;
pub const QP_RNR_RETRY: c_int = 1 << 11;
pub const QP_RQ_PSN: c_int = 1 << 12;
pub const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub const QP_SQ_PSN: c_int = 1 << 16;
pub const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const QP_DEST_QPN: c_int = 1 << 20;

pub const WR_RDMA_WRITE: c_int = 0;
pub const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub const WR_SEND: c_int = 2;
pub const WR_RDMA_READ: c_int = 4;
pub const WR_LOCAL_INV: c_int = 7;
pub const WR_BIND_MW: c_int = 8;

pub const SEND_FENCE: c_uint = 1;
pub const SEND_SIGNALED: c_uint = 1 << 1;
pub const SEND_INLINE: c_uint = 1 << 3;

pub const WC_RECV_RDMA_WITH_IMM: c_int = (1 << 7) + 1;
pub const WC_WITH_IMM: c_uint = 1 << 1;

pub const EVENT_CQ_ERR: c_int = 0;
pub const EVENT_QP_FATAL: c_int = 1;
pub const EVENT_QP_REQ_ERR: c_int = 2;
pub const EVENT_QP_ACCESS_ERR: c_int = 3;
pub const EVENT_COMM_EST: c_int = 4;
pub const EVENT_SQ_DRAINED: c_int = 5;
pub const EVENT_PATH_MIG: c_int = 6;
pub const EVENT_PATH_MIG_ERR: c_int = 7;
pub const EVENT_DEVICE_FATAL: c_int = 8;
pub const EVENT_PORT_ACTIVE: c_int = 9;
pub const EVENT_PORT_ERR: c_int = 10;
pub const EVENT_QP_LAST_WQE_REACHED: c_int = 16;
pub const EVENT_GID_CHANGE: c_int = 18;

#[cfg(test)]
mod layout;
