//! The emulated directory.

use super::disk::Disk;
use super::trace::{Event, FileId};
use super::{EmulatedLog, Emulator, State, World, lock};
use kauri_base::sync::Arc;
use kauri_medium::directory::{LockHolder, check_name};
use kauri_medium::staging::fits;
use kauri_medium::{
    Directory, DirectoryLock, Error, Faults, IoKind, Medium, Result, Site, Staging,
};

impl Emulator {
    fn log(&self, name: &str, file: FileId) -> Arc<dyn Medium> {
        Arc::new(EmulatedLog::new(Arc::clone(&self.world), name.to_owned(), file))
    }

    fn sync_directory(&self, site: Site) -> Result<()> {
        if self.faults().step_enabled(site, "directory") {
            self.faults().before_io(IoKind::DirectorySync)?;
            self.state().record(Event::DirectorySync { site });
        }
        Ok(())
    }
}

impl State {
    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        self.next_file - 1
    }
}

fn names(disk: &Disk) -> impl Iterator<Item = &String> {
    disk.names.iter().filter(|(_, name)| name.current().is_some()).map(|(text, _)| text)
}

impl Directory for Emulator {
    fn describe(&self) -> String {
        format!("emulated directory, {:?}", self.world.config)
    }

    fn space(&self) -> Option<(u64, u64)> {
        let used = self.state().disk.used_bytes();
        Some((self.world.config.capacity_bytes, used))
    }

    fn lock(&self) -> Result<DirectoryLock> {
        self.faults().before_io(IoKind::Lock)?;
        let mut state = self.state();
        if state.locked {
            return Err(Error::AlreadyLocked { pid: Some(std::process::id() as i32) });
        }
        state.locked = true;
        let unclean = state.disk.lock_dirty;
        state.record(Event::Lock { dirty: true });
        Ok(DirectoryLock::new(unclean, Box::new(HeldLock { world: Arc::clone(&self.world) })))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.faults().before_io(IoKind::FileRead)?;
        Ok(names(&self.state().disk).cloned().collect())
    }

    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        check_name(name)?;
        self.faults().before_io(IoKind::FileRead)?;
        let state = self.state();
        let file = state.disk.file_named(name).and_then(|id| state.disk.file(id));
        Ok(file.map(|file| file.current.to_vec()))
    }

    fn replace_file(&self, name: &str, bytes: &[u8], site: Site) -> Result<()> {
        check_name(name)?;
        let faults = self.faults();
        faults.before_io(IoKind::FileWrite)?;
        let file = {
            let mut state = self.state();
            let file = state.new_file();
            state.record(Event::FileWrite { file, bytes: bytes.into() });
            file
        };
        if faults.step_enabled(site, "file") {
            faults.before_io(IoKind::FileSync)?;
            self.state().record(Event::FileSync { file, site });
        }
        faults.before_io(IoKind::FileRename)?;
        self.state().record(Event::Rename { name: name.to_owned(), file });
        self.sync_directory(site)
    }

    fn remove_file(&self, name: &str, site: Site) -> Result<()> {
        check_name(name)?;
        self.faults().before_io(IoKind::FileRename)?;
        {
            let mut state = self.state();
            state.disk.file_named(name).ok_or(Error::NotFound)?;
            state.record(Event::Remove { name: name.to_owned() });
        }
        self.sync_directory(site)
    }

    fn rename_file(&self, from: &str, to: &str, site: Site) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.faults().before_io(IoKind::FileRename)?;
        {
            let mut state = self.state();
            let file = state.disk.file_named(from).ok_or(Error::NotFound)?;
            state.record(Event::Rename { name: to.to_owned(), file });
        }
        // A real file system renames in one step; here the file has both names for a moment.
        self.sync_directory(site)?;
        self.state().record(Event::Remove { name: from.to_owned() });
        self.sync_directory(site)
    }

    fn create_log(&self, name: &str, site: Site) -> Result<Arc<dyn Medium>> {
        check_name(name)?;
        self.faults().before_io(IoKind::Open)?;
        let file = {
            let mut state = self.state();
            match state.disk.file_named(name) {
                Some(file) => file,
                None => {
                    let file = state.new_file();
                    state.record(Event::Create { name: name.to_owned(), file });
                    file
                }
            }
        };
        self.sync_directory(site)?;
        Ok(self.log(name, file))
    }

    fn open_log(&self, name: &str) -> Result<Arc<dyn Medium>> {
        check_name(name)?;
        self.faults().before_io(IoKind::Open)?;
        let file = self.state().disk.file_named(name).ok_or(Error::NotFound)?;
        Ok(self.log(name, file))
    }

    fn create_staging(&self, name: &str, contents: &[u8]) -> Result<Box<dyn Staging>> {
        const SITE: Site = "staging.create";
        if !self.world.config.staging || contents.is_empty() {
            return Err(Error::Unsupported);
        }
        check_name(name)?;
        let file = self.state().new_file();
        for (kind, event) in [
            (IoKind::FileWrite, Event::FileWrite { file, bytes: contents.into() }),
            (IoKind::FileSync, Event::FileSync { file, site: SITE }),
            (IoKind::FileRename, Event::Rename { name: name.to_owned(), file }),
            (IoKind::DirectorySync, Event::DirectorySync { site: SITE }),
        ] {
            self.faults().before_io(kind)?;
            self.state().record(event);
        }
        let len = contents.len();
        Ok(Box::new(EmulatedStaging { world: Arc::clone(&self.world), file, len }))
    }

    fn faults(&self) -> &Arc<Faults> {
        &self.world.faults
    }
}

/// Its file is stored to and never synced.
struct EmulatedStaging {
    world: Arc<World>,
    file: FileId,
    len: usize,
}

impl Staging for EmulatedStaging {
    fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, at: usize, parts: &[&[u8]]) -> bool {
        let fits = fits(self.len, at, parts);
        if fits {
            let (offset, bytes) = (at as u64, parts.concat().into());
            let mut state = lock(&self.world.state);
            state.record(Event::Store { file: self.file, offset, bytes });
            // What is promised from now on is not promised while the process may die in the midst of it.
            state.record(Event::Mark { text: "put".to_owned() });
        }
        fits
    }
}

struct HeldLock {
    world: Arc<World>,
}

impl LockHolder for HeldLock {
    fn mark_clean(&self) -> Result<()> {
        self.world.faults.before_io(IoKind::Lock)?;
        lock(&self.world.state).record(Event::Lock { dirty: false });
        Ok(())
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        lock(&self.world.state).locked = false;
    }
}
