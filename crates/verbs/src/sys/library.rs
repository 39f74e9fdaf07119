//! libibverbs, loaded on demand, so that the same program starts without it.
//!
//! Invariant: a loaded library is never unloaded (providers leave threads and handlers), so a function's address is
//! valid for the life of the process.

use super::ffi;
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_void};

/// The library's name with the version of its binary interface.
const NAME: &str = "libibverbs.so.1";

/// Declares the functions with their names and versions in C and their types, and how to find them.
macro_rules! functions {
    ($($field:ident: $kind:ident = $name:literal $version:literal,)*) => {
        /// The functions of libibverbs that are not in a context's table.
        #[derive(Clone, Copy)]
        pub struct Library {
            $(pub $field: ffi::$kind,)*
        }

        impl Library {
            /// All of them, of a library that dlopen has given.
            fn find(handle: *mut c_void) -> Result<Library> {
                Ok(Library {
                    $($field: {
                        let address = symbol(handle, $name, $version)?;
                        // SAFETY: the address is that of the named function in the named version of
                        // the interface, and verbs.h declares it with this signature. A data and a
                        // function pointer have one size on every system with dlsym.
                        unsafe { std::mem::transmute::<*mut c_void, ffi::$kind>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_device_list: GetDeviceList = c"ibv_get_device_list" c"IBVERBS_1.1",
    free_device_list: FreeDeviceList = c"ibv_free_device_list" c"IBVERBS_1.1",
    get_device_name: GetDeviceName = c"ibv_get_device_name" c"IBVERBS_1.1",
    open_device: OpenDevice = c"ibv_open_device" c"IBVERBS_1.1",
    close_device: CloseDevice = c"ibv_close_device" c"IBVERBS_1.1",
    query_device: QueryDevice = c"ibv_query_device" c"IBVERBS_1.1",
    query_port: QueryPort = c"ibv_query_port" c"IBVERBS_1.1",
    query_gid_table: QueryGidTable = c"_ibv_query_gid_table" c"IBVERBS_1.11",
    get_async_event: GetAsyncEvent = c"ibv_get_async_event" c"IBVERBS_1.1",
    ack_async_event: AckAsyncEvent = c"ibv_ack_async_event" c"IBVERBS_1.1",
    alloc_pd: AllocPd = c"ibv_alloc_pd" c"IBVERBS_1.1",
    dealloc_pd: DeallocPd = c"ibv_dealloc_pd" c"IBVERBS_1.1",
    reg_mr: RegMr = c"ibv_reg_mr" c"IBVERBS_1.1",
    dereg_mr: DeregMr = c"ibv_dereg_mr" c"IBVERBS_1.1",
    create_comp_channel: CreateCompChannel = c"ibv_create_comp_channel" c"IBVERBS_1.0",
    destroy_comp_channel: DestroyCompChannel = c"ibv_destroy_comp_channel" c"IBVERBS_1.0",
    create_cq: CreateCq = c"ibv_create_cq" c"IBVERBS_1.1",
    destroy_cq: DestroyCq = c"ibv_destroy_cq" c"IBVERBS_1.1",
    get_cq_event: GetCqEvent = c"ibv_get_cq_event" c"IBVERBS_1.1",
    ack_cq_events: AckCqEvents = c"ibv_ack_cq_events" c"IBVERBS_1.1",
    create_qp: CreateQp = c"ibv_create_qp" c"IBVERBS_1.1",
    modify_qp: ModifyQp = c"ibv_modify_qp" c"IBVERBS_1.1",
    destroy_qp: DestroyQp = c"ibv_destroy_qp" c"IBVERBS_1.1",
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
        Library::find(handle)
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

/// The dynamic linker's message about the last failure of this thread.
fn loader_error() -> Option<String> {
    // SAFETY: dlerror takes nothing; its text is valid until this thread's next call of dl functions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so NUL-terminated text, as said above.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
