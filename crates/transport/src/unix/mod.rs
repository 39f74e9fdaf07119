//! The Unix domain socket transport: `<prefix>/mongodb-<port>.sock`, where drivers look for it.

use crate::contract::TransportLayer;
use crate::manager::SessionManager;
use crate::stream::listener::{Acceptor, Listener};
use crate::tcp::listen_error;
use kauri_base::Result;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

/// The path of a Unix domain socket transport.
#[derive(Clone, Debug)]
pub struct UnixOptions {
    /// `net.unixDomainSocket.pathPrefix`.
    pub path_prefix: PathBuf,
    /// The TCP port that the socket's name carries.
    pub port: u16,
    /// `net.unixDomainSocket.filePermissions`.
    pub permissions: u32,
}

impl Default for UnixOptions {
    fn default() -> Self {
        UnixOptions { path_prefix: PathBuf::from("/tmp"), port: 27017, permissions: 0o700 }
    }
}

/// Clients of the same machine, over a Unix domain socket.
pub struct UnixTransport {
    path: PathBuf,
    permissions: u32,
    bound: Option<UnixListener>,
    listener: Option<Listener>,
    /// The file is ours, to be removed at the end.
    owns_file: bool,
}

impl UnixTransport {
    /// A transport that does not listen yet.
    pub fn new(options: UnixOptions) -> Self {
        UnixTransport {
            path: options.path_prefix.join(format!("mongodb-{}.sock", options.port)),
            permissions: options.permissions,
            bound: None,
            listener: None,
            owns_file: false,
        }
    }

    fn bind(&mut self) -> io::Result<()> {
        self.remove_stale_file()?;
        self.bound = Some(UnixListener::bind(&self.path)?);
        self.owns_file = true;
        fs::set_permissions(&self.path, Permissions::from_mode(self.permissions))
    }

    /// Removes the stale socket of a killed server. Not a socket with a listener, and not another file.
    fn remove_stale_file(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(found) if !found.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
            Ok(_) if UnixStream::connect(&self.path).is_ok() => {
                Err(io::ErrorKind::AddrInUse.into())
            }
            Ok(_) => fs::remove_file(&self.path),
        }
    }
}

impl TransportLayer for UnixTransport {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn setup(&mut self) -> Result<()> {
        self.shutdown();
        self.bind().map_err(|error| {
            self.shutdown();
            listen_error(&self.path.display().to_string(), &error)
        })
    }

    fn start(&mut self, manager: &Arc<SessionManager>) -> Result<()> {
        let path = self.path.display().to_string();
        let acceptors = self
            .bound
            .take()
            .map(|bound| Acceptor::Unix(bound, path.clone()))
            .into_iter()
            .collect();
        let listener = Listener::start(acceptors, Arc::clone(manager));
        self.listener = Some(listener.map_err(|e| listen_error(&path, &e))?);
        Ok(())
    }

    fn local_addresses(&self) -> Vec<String> {
        if self.owns_file { vec![self.path.display().to_string()] } else { Vec::new() }
    }

    fn shutdown(&mut self) {
        self.listener = None;
        self.bound = None;
        if std::mem::take(&mut self.owns_file) {
            // It may have been removed already; then there is nothing to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for UnixTransport {
    fn drop(&mut self) {
        self.shutdown();
    }
}
