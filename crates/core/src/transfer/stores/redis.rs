//! A store in the memory of a Redis or Valkey server.
//!
//! All values of a store are fields of one hash, `lapidary:` and a random number. So one command
//! keeps all of them alive, and one removes them. The hash expires if this process no longer asks
//! for it. A thread asks three times in that time.
//!
//! The client is our own (`resp`), because the crate `redis` 1.8 keeps in memory whatever a broken
//! server sends as one reply: 3 GiB in a test. It also needs Rust 1.88 and 42 other crates.

mod resp;

use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, thread};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::store::{Key, MOST_VALUE_BYTES, Store};
use crate::error::StoreFailure;
use crate::transfer::random;
use resp::{Connection, Reply, is_broken};

const TIMEOUT: Duration = Duration::from_secs(1);
const EXPIRY: Duration = Duration::from_secs(300);
/// The server refuses a time that its clock cannot count.
const MOST_EXPIRY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The hash is kept alive this often before it would expire.
const REFRESHES: u32 = 3;

/// Keeps values in the memory of a Redis or Valkey server, such as a neighbour's. Needs the feature
/// `redis`.
///
/// ```no_run
/// use lapidary_core::stores::{RedisStore, StoreTier};
/// use lapidary_core::{Gpu, Options};
///
/// let neighbour = RedisStore::at("neighbour:6379").login("lapidary", "secret");
/// let gpu = Gpu::open(Options {
///     stores: vec![StoreTier::new("neighbour", neighbour, 16 << 30)],
///     ..Options::default()
/// })?;
/// # Ok::<(), lapidary_core::Error>(())
/// ```
///
/// The server is first called at the first eviction to it. After an error the store connects again.
/// The values are in one hash, named `lapidary:` and a number of this store alone. When the store
/// is dropped, it removes the hash. If the process was killed, the hash expires by itself.
///
/// The server should have `maxmemory` set, with the policy `noeviction`: then it says that it is
/// full. By another policy it may drop the hash, and with it the bytes of all tensors there. The
/// connection is not encrypted, so use it in a network that you trust, or through a tunnel.
pub struct RedisStore {
    /// Shared with the thread that keeps the hash alive.
    client: Arc<Client>,
}

struct Client {
    address: String,
    login: Option<(String, String)>,
    database: u32,
    expiry: Duration,
    timeout: Duration,
    hash: String,
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    has_keeper: bool,
    is_closed: bool,
}

impl RedisStore {
    /// A store in the server at an address: `host:port`, or the path of a Unix socket.
    pub fn at(address: impl Into<String>) -> RedisStore {
        RedisStore::with(Client {
            address: address.into(),
            login: None,
            database: 0,
            expiry: EXPIRY,
            timeout: TIMEOUT,
            hash: format!("lapidary:{:016x}", random()),
            state: Mutex::default(),
            closed: Condvar::new(),
        })
    }

    /// Logs in with a name and a password. A server that only has a password takes the name
    /// `default`.
    #[must_use]
    pub fn login(self, user: impl Into<String>, password: impl Into<String>) -> RedisStore {
        let login = Some((user.into(), password.into()));
        self.change(|client| client.login = login)
    }

    /// Uses another database of the server than number 0.
    #[must_use]
    pub fn database(self, database: u32) -> RedisStore {
        self.change(|client| client.database = database)
    }

    /// Sets after which time the server forgets the values of a process that is gone: 5 minutes by
    /// default, at least 3 s and at most a year. A process that was stopped for longer than this,
    /// as by a laptop that sleeps, loses its values.
    #[must_use]
    pub fn expire_after(self, expiry: Duration) -> RedisStore {
        let least = Duration::from_secs(u64::from(REFRESHES));
        self.change(|client| client.expiry = expiry.clamp(least, MOST_EXPIRY))
    }

    /// Sets how long a call waits for the server to take or send the next bytes; 1 s by default. It
    /// should be less than the time-out of the tier.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> RedisStore {
        // A socket takes no time-out of 0.
        self.change(|client| client.timeout = timeout.max(Duration::from_millis(1)))
    }

    /// The name of the hash with the values.
    pub fn hash(&self) -> &str {
        &self.client.hash
    }

    fn with(client: Client) -> RedisStore {
        RedisStore {
            client: Arc::new(client),
        }
    }

    /// Nothing shares the client before the first call.
    fn change(mut self, change: impl FnOnce(&mut Client)) -> RedisStore {
        if let Some(client) = Arc::get_mut(&mut self.client) {
            change(client);
        }
        self
    }

    /// Makes a call over the connection. If the server has closed the connection since the last
    /// call, connects again. All commands may be repeated.
    fn call<T>(
        &self,
        call: impl FnMut(&Client, &mut Connection) -> Result<T, StoreFailure>,
    ) -> Result<T, StoreFailure> {
        let mut state = self.client.state.lock();
        if !state.has_keeper {
            let client = Arc::downgrade(&self.client);
            let name = "lapidary redis".to_owned();
            let keeper = thread::Builder::new()
                .name(name)
                .spawn(move || keep_alive(&client));
            // Without the thread the values would expire under tensors in use.
            keeper.map_err(|error| StoreFailure::Other(format!("no thread: {error}")))?;
            state.has_keeper = true;
        }
        self.client.call(&mut state, call)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("address", &self.client.address)
            .field("hash", &self.client.hash)
            .finish_non_exhaustive()
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        let mut state = self.client.state.lock();
        state.is_closed = true;
        if let Some(connection) = &mut state.connection {
            // If this fails, the hash expires.
            let _ = connection.command(&[b"UNLINK", self.client.hash.as_bytes()]);
        }
        drop(state);
        self.client.closed.notify_all();
    }
}

impl Store for RedisStore {
    fn write(&self, key: Key, bytes: &[u8]) -> Result<(), StoreFailure> {
        if bytes.len() as u64 > MOST_VALUE_BYTES {
            let reason = format!("{} bytes, at most {MOST_VALUE_BYTES}", bytes.len());
            return Err(StoreFailure::Other(reason));
        }
        let field = key.to_bytes();
        self.call(|client, connection| {
            let hash = client.hash.as_bytes();
            // The hash may be new, also because another client removed it.
            connection.send(&[b"HSET", hash, &field, bytes])?;
            connection.send(&[b"EXPIRE", hash, client.expiry_s().as_bytes()])?;
            let (written, expires) = (connection.receive()?, connection.receive()?);
            written.number()?;
            expires.number().map(drop)
        })
    }

    fn read(&self, key: Key, bytes: &mut [u8]) -> Result<(), StoreFailure> {
        let field = key.to_bytes();
        self.call(|client, connection| {
            connection.send(&[b"HGET", client.hash.as_bytes(), &field])?;
            let reply = connection.receive_into(bytes)?;
            match reply {
                Reply::Bulk => Ok(()),
                Reply::Nil => Err(StoreFailure::NotFound),
                other => Err(other.unexpected()),
            }
        })
    }

    fn remove(&self, key: Key) -> Result<(), StoreFailure> {
        let field = key.to_bytes();
        self.call(|client, connection| {
            let reply = connection.command(&[b"HDEL", client.hash.as_bytes(), &field])?;
            reply.number().map(drop)
        })
    }
}

impl Client {
    fn expiry_s(&self) -> String {
        self.expiry.as_secs().to_string()
    }

    fn call<T>(
        &self,
        state: &mut MutexGuard<'_, State>,
        mut call: impl FnMut(&Client, &mut Connection) -> Result<T, StoreFailure>,
    ) -> Result<T, StoreFailure> {
        let is_old = state.connection.is_some();
        let result = self.try_call(state, &mut call);
        match &result {
            Err(failure) if is_old && is_broken(failure) => self.try_call(state, &mut call),
            _ => result,
        }
    }

    fn try_call<T>(
        &self,
        state: &mut MutexGuard<'_, State>,
        call: &mut impl FnMut(&Client, &mut Connection) -> Result<T, StoreFailure>,
    ) -> Result<T, StoreFailure> {
        let mut connection = match state.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let result = call(self, &mut connection);
        // Replies that are still to come belong to no later call.
        if connection.is_done() {
            state.connection = Some(connection);
        }
        result
    }

    fn connect(&self) -> Result<Connection, StoreFailure> {
        let mut connection = Connection::open(&self.address, self.timeout)?;
        if let Some((user, password)) = &self.login {
            let login: [&[u8]; 3] = [b"AUTH", user.as_bytes(), password.as_bytes()];
            connection.command(&login)?.ok()?;
        }
        if self.database > 0 {
            let database = self.database.to_string();
            connection
                .command(&[b"SELECT", database.as_bytes()])?
                .ok()?;
        }
        Ok(connection)
    }
}

/// Keeps the hash from expiring, until the store is dropped.
fn keep_alive(client: &Weak<Client>) {
    loop {
        let Some(client) = client.upgrade() else {
            return;
        };
        let mut state = client.state.lock();
        if !state.is_closed {
            let pause = client.expiry / REFRESHES;
            client.closed.wait_for(&mut state, pause);
        }
        if state.is_closed {
            return;
        }
        // If this fails, there is time for another try.
        let _ = client.call(&mut state, |client, connection| {
            let (hash, expiry_s) = (client.hash.as_bytes(), client.expiry_s());
            connection.command(&[b"EXPIRE", hash, expiry_s.as_bytes()])
        });
    }
}
