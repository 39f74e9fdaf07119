//! Test: the declarations have the memory layout of `tests/layout.txt`; `tests/layout.rs` compares that table with
//! the C headers.

use super::*;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Lines as in the table: C's names, and where the declaration here has it.
macro_rules! layout {
    ($($c:literal $rust:ident { $($c_field:literal $field:ident $(. $inner:ident)*,)* })*) => {{
        let mut lines = BTreeMap::new();
        $($(lines.insert(format!("{} {}", $c, $c_field), offset_of!($rust, $field $(. $inner)*));)*)*
        lines
    }};
}

/// Structures that this crate makes or copies, whose size counts too.
macro_rules! sizes {
    ($lines:ident, $($c:literal $rust:ident,)*) => {
        $($lines.insert(format!("{} sizeof", $c), size_of::<$rust>());)*
    };
}

fn declared() -> BTreeMap<String, usize> {
    let mut lines = layout! {
        "ibv_context" Context {
            "ops.alloc_mw" ops.alloc_mw, "ops.dealloc_mw" ops.dealloc_mw, "ops.poll_cq" ops.poll_cq,
            "ops.req_notify_cq" ops.req_notify_cq, "ops.post_send" ops.post_send,
            "ops.post_recv" ops.post_recv, "cmd_fd" cmd_fd, "async_fd" async_fd,
            "num_comp_vectors" num_comp_vectors,
        }
        "ibv_comp_channel" CompChannel { "fd" fd, }
        "ibv_mr" Mr { "addr" addr, "length" length, "lkey" lkey, "rkey" rkey, }
        "ibv_mw" Mw { "rkey" rkey, }
        "ibv_qp" Qp { "context" context, "qp_num" qp_num, }
        "ibv_device_attr" DeviceAttr {
            "fw_ver" fw_ver, "max_mr_size" max_mr_size, "max_qp" max_qp, "max_qp_wr" max_qp_wr,
            "device_cap_flags" device_cap_flags, "max_sge" max_sge, "max_cq" max_cq,
            "max_cqe" max_cqe, "max_mr" max_mr, "max_qp_rd_atom" max_qp_rd_atom,
            "max_qp_init_rd_atom" max_qp_init_rd_atom, "max_mw" max_mw,
            "phys_port_cnt" phys_port_cnt,
        }
        "ibv_port_attr" PortAttr {
            "state" state, "active_mtu" active_mtu, "gid_tbl_len" gid_tbl_len,
            "max_msg_sz" max_msg_sz, "lid" lid, "link_layer" link_layer,
        }
        "ibv_gid_entry" GidEntry {
            "gid" gid, "gid_index" gid_index, "port_num" port_num, "gid_type" gid_type,
        }
        "ibv_qp_init_attr" QpInitAttr {
            "qp_context" qp_context, "send_cq" send_cq, "recv_cq" recv_cq, "srq" srq,
            "cap.max_send_wr" cap.max_send_wr, "cap.max_recv_wr" cap.max_recv_wr,
            "cap.max_send_sge" cap.max_send_sge, "cap.max_recv_sge" cap.max_recv_sge,
            "cap.max_inline_data" cap.max_inline_data, "qp_type" qp_type, "sq_sig_all" sq_sig_all,
        }
        "ibv_qp_attr" QpAttr {
            "qp_state" qp_state, "path_mtu" path_mtu, "rq_psn" rq_psn, "sq_psn" sq_psn,
            "dest_qp_num" dest_qp_num, "qp_access_flags" qp_access_flags,
            "ah_attr.grh.dgid" ah_attr.grh.dgid, "ah_attr.grh.sgid_index" ah_attr.grh.sgid_index,
            "ah_attr.grh.hop_limit" ah_attr.grh.hop_limit, "ah_attr.dlid" ah_attr.dlid,
            "ah_attr.is_global" ah_attr.is_global, "ah_attr.port_num" ah_attr.port_num,
            "pkey_index" pkey_index, "max_rd_atomic" max_rd_atomic,
            "max_dest_rd_atomic" max_dest_rd_atomic, "min_rnr_timer" min_rnr_timer,
            "port_num" port_num, "timeout" timeout, "retry_cnt" retry_cnt, "rnr_retry" rnr_retry,
        }
        "ibv_sge" Sge { "addr" addr, "length" length, "lkey" lkey, }
        "ibv_send_wr" SendWr {
            "wr_id" wr_id, "next" next, "sg_list" sg_list, "num_sge" num_sge, "opcode" opcode,
            "send_flags" send_flags, "imm_data" imm_data, "wr.rdma.remote_addr" remote_addr,
            "wr.rdma.rkey" rkey, "bind_mw.mw" bind_mw.mw, "bind_mw.rkey" bind_mw.rkey,
            "bind_mw.bind_info.mr" bind_mw.bind_info.mr,
            "bind_mw.bind_info.addr" bind_mw.bind_info.addr,
            "bind_mw.bind_info.length" bind_mw.bind_info.length,
            "bind_mw.bind_info.mw_access_flags" bind_mw.bind_info.mw_access_flags,
        }
        "ibv_recv_wr" RecvWr {
            "wr_id" wr_id, "next" next, "sg_list" sg_list, "num_sge" num_sge,
        }
        "ibv_wc" Wc {
            "wr_id" wr_id, "status" status, "opcode" opcode, "vendor_err" vendor_err,
            "byte_len" byte_len, "imm_data" imm_data, "qp_num" qp_num, "wc_flags" wc_flags,
        }
        "ibv_async_event" AsyncEvent { "element" element, "event_type" event_type, }
    };
    sizes! { lines,
        "ibv_device_attr" DeviceAttr, "ibv_port_attr" PortAttr, "ibv_gid_entry" GidEntry,
        "ibv_qp_init_attr" QpInitAttr, "ibv_qp_attr" QpAttr, "ibv_sge" Sge,
        "ibv_send_wr" SendWr, "ibv_recv_wr" RecvWr, "ibv_wc" Wc, "ibv_async_event" AsyncEvent,
    }
    lines
}

#[test]
fn the_declarations_are_laid_out_as_the_table_says() {
    let table: BTreeMap<String, usize> = include_str!("../../../tests/layout.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, place) = line.rsplit_once(' ').unwrap();
            (name.to_string(), place.parse().unwrap())
        })
        .collect();
    let declared = declared();
    for (name, place) in &declared {
        assert_eq!(table.get(name), Some(place), "{name}: the table's and the declaration's place");
    }
    assert_eq!(table.len(), declared.len(), "lines of the table, and what is declared");
}
