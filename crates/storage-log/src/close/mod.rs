//! A clean shutdown: everything is durable and sealed, and the metadata file says so.

mod images;

use crate::acks::End;
use crate::core::Core;
use crate::format::Stream;
use kauri_storage::StorageError;

impl Core {
    /// Ends a clean shutdown. Maintenance has ended, and nobody commits any more.
    pub fn close(&self) -> Result<(), StorageError> {
        self.check_alive()?;
        self.files.let_all_go();
        self.head.close()?;
        self.close_cleaner()?;
        self.flush_now()?;
        self.seal_full()?;
        self.sync_all("close.drain")?;
        self.write_images()?;
        self.sync_all("close.drain")?;
        self.sync_marks();
        let mut horizon = self.horizon();
        horizon.streams[Stream::User as usize] = self.head.position();
        self.directory.note_clean(self.segments.epoch_next(), horizon)?;
        // Nothing may follow what the metadata file says is all.
        self.acks.end(End::Failed("the engine has been closed".to_owned()));
        self.directory.release_clean()
    }
}
