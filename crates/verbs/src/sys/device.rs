//! The library, devices, their ports, GIDs, limits and asynchronous events; protection domains.

use super::ffi;
use super::library::Library;
use super::memory::{self, Access, MemoryRegion};
use super::window::MemoryWindow;
use crate::counters::{Counters, Counting, add};
use crate::error::{Error, Result};
use crate::gid::{Gid, GidEntry, GidKind};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

/// libibverbs, loaded.
#[derive(Clone)]
pub struct Verbs {
    library: Arc<Library>,
}

impl Verbs {
    /// Loads libibverbs; without the library it returns an error and has no other effect.
    pub fn load() -> Result<Verbs> {
        Ok(Verbs { library: Arc::new(Library::load()?) })
    }

    /// As [`Verbs::load`], from a library of that name.
    pub fn load_from(name: &str) -> Result<Verbs> {
        Ok(Verbs { library: Arc::new(Library::load_from(name)?) })
    }

    /// The names of this machine's RDMA devices. None is an empty list, also where the kernel has no
    /// RDMA at all.
    pub fn device_names(&self) -> Result<Vec<String>> {
        match DeviceList::new(&self.library) {
            Ok(list) => Ok(list.iter().map(|(name, _)| name).collect()),
            Err(Error::NoDevice) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Opens the device of that name.
    pub fn open(&self, name: &str) -> Result<Device> {
        let list = DeviceList::new(&self.library)?;
        let (name, device) = list
            .iter()
            .find(|(found, _)| found == name)
            .ok_or_else(|| Error::NoSuchDevice(name.into()))?;
        // SAFETY: the device is one of a list that is still held.
        unsafe { Device::open(&self.library, name, device) }
    }

    /// Opens the first device that has an active port, and says which port that is.
    pub fn open_active(&self) -> Result<(Device, u8)> {
        let list = DeviceList::new(&self.library)?;
        let mut found = false;
        for (name, device) in list.iter() {
            found = true;
            // SAFETY: as above. A device that can't be opened is passed over.
            let Ok(device) = (unsafe { Device::open(&self.library, name, device) }) else {
                continue;
            };
            for number in 1..=device.limits()?.ports {
                if device.port(number)?.active {
                    return Ok((device, number));
                }
            }
        }
        Err(if found { Error::NoActivePort } else { Error::NoDevice })
    }
}

/// The devices that there were when it was made.
struct DeviceList<'a> {
    library: &'a Library,
    first: NonNull<*mut ffi::Device>,
    len: usize,
}

impl<'a> DeviceList<'a> {
    fn new(library: &'a Library) -> Result<Self> {
        let mut len = 0;
        // SAFETY: the pointer is to a live int.
        let first = unsafe { (library.get_device_list)(&mut len) };
        match NonNull::new(first) {
            Some(first) => Ok(DeviceList { library, first, len: len.max(0) as usize }),
            None => match std::io::Error::last_os_error() {
                // The kernel has no RDMA.
                e if e.raw_os_error() == Some(libc::ENOSYS) => Err(Error::NoDevice),
                error => Err(Error::Call { name: "ibv_get_device_list", error }),
            },
        }
    }

    fn iter(&self) -> impl Iterator<Item = (String, *mut ffi::Device)> + '_ {
        (0..self.len).map(|i| {
            // SAFETY: the list has `len` elements and lives as long as `self`.
            let device = unsafe { *self.first.as_ptr().add(i) };
            // SAFETY: an element of a live list is a device; its name is NUL-terminated.
            let name = unsafe { CStr::from_ptr((self.library.get_device_name)(device)) };
            (name.to_string_lossy().into_owned(), device)
        })
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is ours; devices that were opened stay by a count of their own.
        unsafe { (self.library.free_device_list)(self.first.as_ptr()) };
    }
}

/// A device, opened. Clones are the same opened device.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<DeviceInner>,
}

/// The owner of an `ibv_context`.
pub struct DeviceInner {
    pub library: Arc<Library>,
    pub context: NonNull<ffi::Context>,
    pub name: String,
    pub counting: Counting,
    /// The counters of the live completion queues.
    pub queues: Mutex<Vec<Arc<Counting>>>,
}

// SAFETY: libibverbs' contexts may be used by several threads at once.
unsafe impl Send for DeviceInner {}
// SAFETY: the same.
unsafe impl Sync for DeviceInner {}

impl DeviceInner {
    /// The context's table of functions.
    pub fn ops(&self) -> &ffi::ContextOps {
        // SAFETY: the context lives as long as `self`, and its table is not changed after opening.
        unsafe { &self.context.as_ref().ops }
    }

    fn attributes(&self) -> Result<ffi::DeviceAttr> {
        let mut attr = std::mem::MaybeUninit::<ffi::DeviceAttr>::zeroed();
        // SAFETY: the context is open; the call fills a structure of this size.
        let failed =
            unsafe { (self.library.query_device)(self.context.as_ptr(), attr.as_mut_ptr()) };
        if failed != 0 {
            return Err(Error::number("ibv_query_device", failed));
        }
        // SAFETY: integers only, zeroed and then filled.
        Ok(unsafe { attr.assume_init() })
    }

    fn port_attributes(&self, number: u8) -> Result<ffi::PortAttr> {
        let mut attr = ffi::PortAttr::default();
        // SAFETY: the context is open; the call fills at most a structure of this size.
        let failed = unsafe { (self.library.query_port)(self.context.as_ptr(), number, &mut attr) };
        if failed != 0 {
            return Err(Error::number("ibv_query_port", failed));
        }
        Ok(attr)
    }
}

impl Drop for DeviceInner {
    fn drop(&mut self) {
        // SAFETY: whatever was made from the context holds a reference to `self`, so nothing is left.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

impl Device {
    /// # Safety
    /// `device` must be of a list of `library`'s that is still held.
    unsafe fn open(
        library: &Arc<Library>,
        name: String,
        device: *mut ffi::Device,
    ) -> Result<Device> {
        // SAFETY: the caller's promise.
        let context = unsafe { (library.open_device)(device) };
        let context = NonNull::new(context).ok_or_else(|| Error::last("ibv_open_device"))?;
        let inner = DeviceInner {
            library: library.clone(),
            context,
            name,
            counting: Counting::default(),
            queues: Mutex::default(),
        };
        let device = Device { inner: Arc::new(inner) };
        set_nonblocking(device.async_fd())?;
        Ok(device)
    }

    /// Its name, as `ibv_devices` shows it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The limits of the device.
    pub fn limits(&self) -> Result<DeviceLimits> {
        let attr = self.inner.attributes()?;
        let count = |n: libc::c_int| n.max(0) as u32;
        let windows = ffi::DEVICE_MEM_WINDOW_TYPE_2A | ffi::DEVICE_MEM_WINDOW_TYPE_2B;
        let firmware = attr.fw_ver.split(|b| *b == 0).next().unwrap_or_default();
        Ok(DeviceLimits {
            firmware: String::from_utf8_lossy(firmware).into_owned(),
            ports: attr.phys_port_cnt,
            region_bytes_max: attr.max_mr_size,
            regions_max: count(attr.max_mr),
            windows_max: count(attr.max_mw),
            windows_type_2: attr.device_cap_flags & windows != 0,
            queue_pairs_max: count(attr.max_qp),
            queue_requests_max: count(attr.max_qp_wr),
            gather_max: count(attr.max_sge),
            completion_queues_max: count(attr.max_cq),
            completions_max: count(attr.max_cqe),
            reads_incoming_max: count(attr.max_qp_rd_atom).min(255) as u8,
            reads_outgoing_max: count(attr.max_qp_init_rd_atom).min(255) as u8,
        })
    }

    /// The state of a port; they are numbered from 1.
    pub fn port(&self, number: u8) -> Result<Port> {
        let attr = self.inner.port_attributes(number)?;
        Ok(Port {
            number,
            active: attr.state == 4,
            link_layer: match attr.link_layer {
                1 => LinkLayer::InfiniBand,
                2 => LinkLayer::Ethernet,
                _ => LinkLayer::Unknown,
            },
            mtu: mtu_bytes(attr.active_mtu),
            message_bytes_max: attr.max_msg_sz,
            lid: attr.lid,
        })
    }

    /// The GIDs of all ports.
    pub fn gids(&self) -> Result<Vec<GidEntry>> {
        let mut room = 0;
        for number in 1..=self.inner.attributes()?.phys_port_cnt {
            room += self.inner.port_attributes(number)?.gid_tbl_len.max(0) as usize;
        }
        let mut raw = vec![ffi::GidEntry::default(); room];
        // SAFETY: the context is open; the call fills at most `room` entries of the size given.
        let found = unsafe {
            (self.inner.library.query_gid_table)(
                self.inner.context.as_ptr(),
                raw.as_mut_ptr(),
                room,
                0,
                size_of::<ffi::GidEntry>(),
            )
        };
        let Ok(found) = usize::try_from(found) else {
            return Err(Error::number("ibv_query_gid_table", found.unsigned_abs() as i32));
        };
        let entries = raw.iter().take(found).filter_map(|entry| {
            Some(GidEntry {
                port: u8::try_from(entry.port_num).ok()?,
                index: u8::try_from(entry.gid_index).ok()?,
                kind: match entry.gid_type {
                    0 => GidKind::InfiniBand,
                    1 => GidKind::RoceV1,
                    _ => GidKind::RoceV2,
                },
                gid: Gid(entry.gid),
            })
        });
        Ok(entries.collect())
    }

    /// A protection domain: objects of different domains cannot be used together.
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        // SAFETY: the context is open.
        let pd = unsafe { (self.inner.library.alloc_pd)(self.inner.context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(|| Error::last("ibv_alloc_pd"))?;
        Ok(ProtectionDomain { inner: Arc::new(PdInner { pd, device: self.inner.clone() }) })
    }

    /// Readable while there are asynchronous events.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the context's and open as long as it is, which `self` keeps.
        unsafe { BorrowedFd::borrow_raw(self.inner.context.as_ref().async_fd) }
    }

    /// The next asynchronous event, if there is one. Never waits.
    pub fn async_event(&self) -> Result<Option<AsyncEvent>> {
        let mut raw = ffi::AsyncEvent { element: ptr::null_mut(), event_type: 0 };
        let library = &self.inner.library;
        // SAFETY: the context is open; the call fills the live event.
        if unsafe { (library.get_async_event)(self.inner.context.as_ptr(), &mut raw) } != 0 {
            return match std::io::Error::last_os_error() {
                e if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
                error => Err(Error::Call { name: "ibv_get_async_event", error }),
            };
        }
        // SAFETY: just filled and not acknowledged yet, so what it names exists: destroying it waits
        // for the acknowledgement.
        let event = unsafe { decode(&raw) };
        // SAFETY: acknowledged once, and the element is not used after it.
        unsafe { (library.ack_async_event)(&mut raw) };
        Ok(Some(event))
    }

    /// The counters of this opened device.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        let queues = self.inner.queues.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.counting.add_to(&mut sum);
        queues.iter().for_each(|queue| queue.add_to(&mut sum));
        sum
    }
}

/// # Safety
/// The event must not have been acknowledged.
unsafe fn decode(raw: &ffi::AsyncEvent) -> AsyncEvent {
    // A port's number is an int in the pointer's place.
    // SAFETY: any bits are an int, and the pointer is to more of them than one needs.
    let port = unsafe { (&raw const raw.element).cast::<libc::c_int>().read() } as u8;
    let queue_pair = || {
        let qp = raw.element.cast::<ffi::Qp>();
        // SAFETY: of an event of these kinds the element is a queue pair, alive as the caller says.
        unsafe { (*qp).qp_num }
    };
    match raw.event_type {
        ffi::EVENT_CQ_ERR => AsyncEvent::CompletionQueueError,
        ffi::EVENT_QP_FATAL => AsyncEvent::QueuePairFatal { number: queue_pair() },
        ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR => {
            AsyncEvent::QueuePairRefused { number: queue_pair() }
        }
        ffi::EVENT_COMM_EST
        | ffi::EVENT_SQ_DRAINED
        | ffi::EVENT_PATH_MIG
        | ffi::EVENT_PATH_MIG_ERR
        | ffi::EVENT_QP_LAST_WQE_REACHED => AsyncEvent::QueuePair { number: queue_pair() },
        ffi::EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
        ffi::EVENT_PORT_ACTIVE => AsyncEvent::PortActive { port },
        ffi::EVENT_PORT_ERR => AsyncEvent::PortDown { port },
        ffi::EVENT_GID_CHANGE => AsyncEvent::GidChange { port },
        other => AsyncEvent::Other(other as u32),
    }
}

/// An asynchronous event of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The device is gone or broken: every queue pair on it is lost.
    DeviceFatal,
    /// A port can be used (again).
    PortActive {
        /// Its number.
        port: u8,
    },
    /// A port can't be used.
    PortDown {
        /// Its number.
        port: u8,
    },
    /// A port's GIDs have changed.
    GidChange {
        /// Its number.
        port: u8,
    },
    /// A completion queue has overrun or broken: the queue pairs on it are lost.
    CompletionQueueError,
    /// A queue pair has failed without a completion that reports it.
    QueuePairFatal {
        /// Its number.
        number: u32,
    },
    /// A request of the peer's was invalid or not allowed; the queue pair is in the error state.
    QueuePairRefused {
        /// Its number.
        number: u32,
    },
    /// Something about a queue pair that needs no answer.
    QueuePair {
        /// Its number.
        number: u32,
    },
    /// Another, by its number in `enum ibv_event_type`.
    Other(u32),
}

/// The limits of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// The version of its firmware.
    pub firmware: String,
    /// How many ports it has.
    pub ports: u8,
    /// Bytes of a memory region.
    pub region_bytes_max: u64,
    /// Memory regions.
    pub regions_max: u32,
    /// Memory windows.
    pub windows_max: u32,
    /// Whether windows can be bound to one queue pair.
    pub windows_type_2: bool,
    /// Queue pairs.
    pub queue_pairs_max: u32,
    /// Requests in one work queue.
    pub queue_requests_max: u32,
    /// Parts of one request.
    pub gather_max: u32,
    /// Completion queues.
    pub completion_queues_max: u32,
    /// Completions in one completion queue.
    pub completions_max: u32,
    /// READs that the peer of a queue pair may have outstanding.
    pub reads_incoming_max: u8,
    /// READs that a queue pair may have outstanding.
    pub reads_outgoing_max: u8,
}

/// The link layer of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE.
    Ethernet,
    /// It does not say.
    Unknown,
}

/// A port's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// Whether it can be used.
    pub active: bool,
    /// What lies under it.
    pub link_layer: LinkLayer,
    /// The largest payload of a packet, in bytes.
    pub mtu: u32,
    /// The largest message, in bytes.
    pub message_bytes_max: u32,
    /// Its local identifier on InfiniBand.
    pub lid: u16,
}

/// The bytes that a number of `enum ibv_mtu` stands for.
fn mtu_bytes(number: i32) -> u32 {
    128 << number.clamp(1, 5)
}

/// The number in `enum ibv_mtu` of the largest that is not above `bytes`.
pub fn mtu_number(bytes: u32) -> Option<i32> {
    (1..=5).rev().find(|number| mtu_bytes(*number) <= bytes)
}

/// Makes reads from it return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
    // SAFETY: takes no pointers; the descriptor is open while it is borrowed.
    let flags = unsafe { libc::fcntl(raw, libc::F_GETFL) };
    // SAFETY: the same.
    if flags < 0 || unsafe { libc::fcntl(raw, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(Error::last("fcntl"));
    }
    Ok(())
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }
}

/// The domain that regions, windows and queue pairs must share to be used together. Clones are the same domain.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

/// The owner of an `ibv_pd`.
pub struct PdInner {
    pub pd: NonNull<ffi::Pd>,
    pub device: Arc<DeviceInner>,
}

// SAFETY: libibverbs' protection domains may be used by several threads at once.
unsafe impl Send for PdInner {}
// SAFETY: the same.
unsafe impl Sync for PdInner {}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: what was made in it holds a reference to `self`, so nothing is left, but what leaked;
        // then the call fails and changes nothing.
        if unsafe { (self.device.library.dealloc_pd)(self.pd.as_ptr()) } != 0 {
            add(&self.device.counting.leaks, 1);
        }
    }
}

impl ProtectionDomain {
    /// Pins `len` new bytes, all zero, for these uses.
    pub fn register(&self, len: usize, access: Access) -> Result<MemoryRegion> {
        memory::register(&self.inner, len, access)
    }

    /// A window that is not bound.
    pub fn window(&self) -> Result<MemoryWindow> {
        MemoryWindow::new(&self.inner)
    }

    /// The device that it is of.
    pub fn device(&self) -> Device {
        Device { inner: self.device_inner().clone() }
    }

    pub(crate) fn device_inner(&self) -> &Arc<DeviceInner> {
        &self.inner.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_is_said_to_be_absent() {
        let error = Verbs::load_from("libibverbs-that-is-not-there.so.1").err().unwrap();
        assert!(error.is_absence());
        let text = error.to_string();
        assert!(text.starts_with("cannot load libibverbs: libibverbs-that-is-not-there"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }

    #[test]
    fn another_library_is_said_to_lack_a_function() {
        let error = Verbs::load_from("libc.so.6").err().unwrap();
        assert!(error.is_absence());
        let text = error.to_string();
        assert!(text.contains("ibv_get_device_list@IBVERBS_1.1"), "{text}");
    }

    #[test]
    fn a_packet_is_never_larger_than_either_side_takes() {
        for (bytes, expected) in [
            (255, None),
            (256, Some(1)),
            (1024, Some(3)),
            (1500, Some(3)),
            (4096, Some(5)),
            (9000, Some(5)),
        ] {
            assert_eq!(mtu_number(bytes), expected, "{bytes}");
        }
        assert_eq!((mtu_bytes(1), mtu_bytes(5)), (256, 4096));
    }
}
