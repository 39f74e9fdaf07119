//! For tests: an emulated directory that runs a callback at file operations.

use kauri_base::sync::Arc;
use kauri_emulator::Emulator;
use kauri_medium::{
    Directory, DirectoryLock, Faults, Mapped, Medium, MediumKind, Result, Site, Staging,
};
use std::io::IoSlice;
use std::sync::Mutex;

/// The callback, which runs once.
pub type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A directory whose new files call these hooks.
pub struct Hooked {
    emulator: Emulator,
    /// When a file has been stored to.
    pub stored: Hook,
    /// While a file is about to grow.
    pub growing: Hook,
}

impl Hooked {
    /// An emulator's directory.
    pub fn new(emulator: Emulator) -> Hooked {
        Hooked { emulator, stored: Hook::default(), growing: Hook::default() }
    }
}

fn call(hook: &Hook) {
    let hook = hook.lock().expect("the hook").take();
    hook.into_iter().for_each(|hook| hook());
}

struct HookedLog {
    log: Arc<dyn Medium>,
    stored: Hook,
    growing: Hook,
}

impl Directory for Hooked {
    fn describe(&self) -> String {
        self.emulator.describe()
    }

    fn lock(&self) -> Result<DirectoryLock> {
        self.emulator.lock()
    }

    fn list(&self) -> Result<Vec<String>> {
        self.emulator.list()
    }

    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.emulator.read_file(name)
    }

    fn replace_file(&self, name: &str, bytes: &[u8], site: Site) -> Result<()> {
        self.emulator.replace_file(name, bytes, site)
    }

    fn remove_file(&self, name: &str, site: Site) -> Result<()> {
        self.emulator.remove_file(name, site)
    }

    fn rename_file(&self, from: &str, to: &str, site: Site) -> Result<()> {
        self.emulator.rename_file(from, to, site)
    }

    fn create_log(&self, name: &str, site: Site) -> Result<Arc<dyn Medium>> {
        let log = self.emulator.create_log(name, site)?;
        let (stored, growing) = (self.stored.clone(), self.growing.clone());
        Ok(Arc::new(HookedLog { log, stored, growing }))
    }

    fn open_log(&self, name: &str) -> Result<Arc<dyn Medium>> {
        self.emulator.open_log(name)
    }

    fn create_staging(&self, name: &str, contents: &[u8]) -> Result<Box<dyn Staging>> {
        self.emulator.create_staging(name, contents)
    }

    fn faults(&self) -> &Arc<Faults> {
        self.emulator.faults()
    }
}

impl Medium for HookedLog {
    fn kind(&self) -> MediumKind {
        self.log.kind()
    }

    fn describe(&self) -> String {
        self.log.describe()
    }

    fn len(&self) -> u64 {
        self.log.len()
    }

    fn grow(&self, new_len: u64) -> Result<()> {
        call(&self.growing);
        self.log.grow(new_len)
    }

    fn store(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.log.store(offset, parts)?;
        call(&self.stored);
        Ok(())
    }

    fn persist(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.log.persist(offset, len, site)
    }

    fn drain(&self, site: Site) -> Result<()> {
        self.log.drain(site)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.log.read(offset, into)
    }

    fn mapped(&self) -> Option<Mapped> {
        self.log.mapped()
    }
}
