//! libibverbs, loaded when it is asked for, so that the same program starts where it is absent.
//!
//! Invariant: what is loaded is never unloaded (providers leave threads and handlers of their own),
//! so a function's address is good for the life of the process.

use super::ffi;
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_void};

/// The library's name with the version of its binary interface.
const NAME: &str = "libibverbs.so.1";

/// The functions of libibverbs that are not in a context's table.
#[derive(Clone, Copy)]
pub struct Library {
    pub get_device_list: ffi::GetDeviceList,
    pub free_device_list: ffi::FreeDeviceList,
    pub get_device_name: ffi::GetDeviceName,
    pub open_device: ffi::OpenDevice,
    pub close_device: ffi::CloseDevice,
    pub query_device: ffi::QueryDevice,
    pub query_port: ffi::QueryPort,
    pub query_gid_table: ffi::QueryGidTable,
    pub get_async_event: ffi::GetAsyncEvent,
    pub ack_async_event: ffi::AckAsyncEvent,
    pub alloc_pd: ffi::AllocPd,
    pub dealloc_pd: ffi::DeallocPd,
    pub reg_mr: ffi::RegMr,
    pub dereg_mr: ffi::DeregMr,
    pub create_comp_channel: ffi::CreateCompChannel,
    pub destroy_comp_channel: ffi::DestroyCompChannel,
    pub create_cq: ffi::CreateCq,
    pub destroy_cq: ffi::DestroyCq,
    pub get_cq_event: ffi::GetCqEvent,
    pub ack_cq_events: ffi::AckCqEvents,
    pub create_qp: ffi::CreateQp,
    pub modify_qp: ffi::ModifyQp,
    pub destroy_qp: ffi::DestroyQp,
}

/// Casts the address of a function that libibverbs exports to its type.
macro_rules! function {
    ($handle:expr, $name:literal, $version:literal, $kind:ty) => {{
        let address = symbol($handle, $name, $version)?;
        // SAFETY: the address is that of the named function in the named version of the interface,
        // and verbs.h declares it with this signature. A data and a function pointer have one size
        // on every system with dlsym.
        unsafe { std::mem::transmute::<*mut c_void, $kind>(address) }
    }};
}

impl Library {
    /// libibverbs as the dynamic linker finds it.
    pub fn load() -> Result<Library> {
        Library::load_from(NAME)
    }

    /// As `load`, from a file of that name.
    pub fn load_from(name: &str) -> Result<Library> {
        let text = CString::new(name).map_err(|_| Error::NoLibrary("a NUL in its name".into()))?;
        // SAFETY: the name is NUL-terminated. Loading runs the library's initialisers, which those of
        // libibverbs allow at any time.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(Error::NoLibrary(loader_error().unwrap_or_else(|| name.into())));
        }
        Ok(Library {
            get_device_list: function!(
                handle,
                c"ibv_get_device_list",
                c"IBVERBS_1.1",
                ffi::GetDeviceList
            ),
            free_device_list: function!(
                handle,
                c"ibv_free_device_list",
                c"IBVERBS_1.1",
                ffi::FreeDeviceList
            ),
            get_device_name: function!(
                handle,
                c"ibv_get_device_name",
                c"IBVERBS_1.1",
                ffi::GetDeviceName
            ),
            open_device: function!(handle, c"ibv_open_device", c"IBVERBS_1.1", ffi::OpenDevice),
            close_device: function!(handle, c"ibv_close_device", c"IBVERBS_1.1", ffi::CloseDevice),
            query_device: function!(handle, c"ibv_query_device", c"IBVERBS_1.1", ffi::QueryDevice),
            query_port: function!(handle, c"ibv_query_port", c"IBVERBS_1.1", ffi::QueryPort),
            query_gid_table: function!(
                handle,
                c"_ibv_query_gid_table",
                c"IBVERBS_1.11",
                ffi::QueryGidTable
            ),
            get_async_event: function!(
                handle,
                c"ibv_get_async_event",
                c"IBVERBS_1.1",
                ffi::GetAsyncEvent
            ),
            ack_async_event: function!(
                handle,
                c"ibv_ack_async_event",
                c"IBVERBS_1.1",
                ffi::AckAsyncEvent
            ),
            alloc_pd: function!(handle, c"ibv_alloc_pd", c"IBVERBS_1.1", ffi::AllocPd),
            dealloc_pd: function!(handle, c"ibv_dealloc_pd", c"IBVERBS_1.1", ffi::DeallocPd),
            reg_mr: function!(handle, c"ibv_reg_mr", c"IBVERBS_1.1", ffi::RegMr),
            dereg_mr: function!(handle, c"ibv_dereg_mr", c"IBVERBS_1.1", ffi::DeregMr),
            create_comp_channel: function!(
                handle,
                c"ibv_create_comp_channel",
                c"IBVERBS_1.0",
                ffi::CreateCompChannel
            ),
            destroy_comp_channel: function!(
                handle,
                c"ibv_destroy_comp_channel",
                c"IBVERBS_1.0",
                ffi::DestroyCompChannel
            ),
            create_cq: function!(handle, c"ibv_create_cq", c"IBVERBS_1.1", ffi::CreateCq),
            destroy_cq: function!(handle, c"ibv_destroy_cq", c"IBVERBS_1.1", ffi::DestroyCq),
            get_cq_event: function!(handle, c"ibv_get_cq_event", c"IBVERBS_1.1", ffi::GetCqEvent),
            ack_cq_events: function!(
                handle,
                c"ibv_ack_cq_events",
                c"IBVERBS_1.1",
                ffi::AckCqEvents
            ),
            create_qp: function!(handle, c"ibv_create_qp", c"IBVERBS_1.1", ffi::CreateQp),
            modify_qp: function!(handle, c"ibv_modify_qp", c"IBVERBS_1.1", ffi::ModifyQp),
            destroy_qp: function!(handle, c"ibv_destroy_qp", c"IBVERBS_1.1", ffi::DestroyQp),
        })
    }
}

/// The address of a function in one version of the interface.
fn symbol(handle: *mut c_void, name: &CStr, version: &CStr) -> Result<*mut c_void> {
    // SAFETY: the handle is from dlopen and never closed; both names are NUL-terminated.
    let address = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    if address.is_null() {
        let wanted = format!("{}@{}", name.to_string_lossy(), version.to_string_lossy());
        return Err(Error::LibraryTooOld(wanted));
    }
    Ok(address)
}

/// What the dynamic linker says about the last failure of this thread.
fn loader_error() -> Option<String> {
    // SAFETY: dlerror takes nothing; its text is valid until this thread's next call of dl functions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so NUL-terminated text, as said above.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
