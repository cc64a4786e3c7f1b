//! A `redis-server` of a test, which ends with it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::stores::eventually;

pub(super) struct Server {
    child: Option<Child>,
    port: u16,
    folder: PathBuf,
    args: Vec<String>,
}

impl Server {
    /// Starts a server with additional arguments.
    pub(super) fn start(args: &[&str]) -> Server {
        let free = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback interface");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let folder = std::env::temp_dir().join(format!("lapidary-redis-{port}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut server = Server {
            child: None,
            port,
            folder,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        };
        server.restart();
        server
    }

    /// Starts it again at the same address, without values.
    pub(super) fn restart(&mut self) {
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &self.port.to_string()])
            .args(["--unixsocket", &self.socket()])
            .args(["--dir", &self.folder.display().to_string()])
            .args(&self.args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| {
            panic!("redis-server: {error}; Debian's package of this name has it")
        }));
        // With a password it answers that it wants one.
        eventually("started", || !self.cli(&["ping"]).contains("refused"));
    }

    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal: `STOP` or `CONT`.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(sent.expect("the program `kill`").success());
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The path of its Unix socket.
    pub(super) fn socket(&self) -> String {
        self.folder.join("socket").display().to_string()
    }

    /// The output of a command of another client.
    pub(super) fn cli(&self, args: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string(), "--no-auth-warning"])
            .args(args)
            .output()
            .unwrap_or_else(|error| {
                panic!("redis-cli: {error}; Debian's package redis-tools has it")
            });
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// The number of values in it.
    pub(super) fn fields(&self) -> u64 {
        let hash = self.cli(&["keys", "lapidary:*"]);
        match hash.is_empty() {
            true => 0,
            false => self.cli(&["hlen", &hash]).parse().expect("a number"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
