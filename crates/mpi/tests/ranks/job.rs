//! A run of `mpirun` with this program as its ranks.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A job that prints nothing for so long hangs.
const MOST_TIME: Duration = Duration::from_secs(240);
/// Names the program of a rank.
const PROGRAM: &str = "LAPIDARY_MPI_PROGRAM";

/// The program that this process runs as a rank, if it is one.
pub(crate) fn program() -> Option<String> {
    env::var(PROGRAM).ok()
}

pub(crate) struct Job {
    command: Command,
    name: String,
}

/// What came of a job.
pub(crate) struct Ended {
    pub(crate) succeeded: bool,
    /// What all ranks and `mpirun` printed.
    pub(crate) text: String,
}

impl Job {
    /// So many ranks with one of the programs here.
    pub(crate) fn of(count: usize, program: &str) -> Job {
        Job::mpirun().with(count, program)
    }

    /// So many ranks with the example `train`.
    pub(crate) fn training(count: usize, arguments: &[String]) -> Job {
        let mut job = Job::mpirun();
        let own = env::current_exe().expect("a program knows its file");
        let built = own
            .parent()
            .and_then(Path::parent)
            .expect("cargo's folders");
        let train = built.join("examples/train");
        assert!(train.exists(), "{} is not built", train.display());
        job.command.arg("-n").arg(count.to_string());
        job.command.arg(train).args(arguments);
        job.name = format!("{count} × train {arguments:?}");
        job
    }

    /// As [`of`](Self::of). MPICH's `mpirun` takes every second rank for one of another machine. If
    /// a rank dies, it ends only those of the same machine.
    pub(crate) fn on_two_machines(count: usize, program: &str) -> Job {
        let mut job = Job::mpirun();
        job.command.arg("-disable-auto-cleanup");
        job.command
            .args(["-launcher", "fork", "-hosts", "127.0.0.1,localhost"]);
        // Ranks of two machines share no memory.
        job.command.env("UCX_TLS", "tcp,self");
        job.with(count, program)
    }

    fn mpirun() -> Job {
        let mut command = Command::new(starter());
        if is_open_mpi() {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        Job {
            command,
            name: String::new(),
        }
    }

    /// More ranks, with another program.
    pub(crate) fn and(mut self, count: usize, program: &str) -> Job {
        self.command.arg(":");
        self.with(count, program)
    }

    fn with(mut self, count: usize, program: &str) -> Job {
        let own = env::current_exe().expect("a program knows its file");
        self.command.arg("-n").arg(count.to_string());
        // Both programs get what is set for them alone, which `env` does on each rank.
        self.command.arg("env").arg(format!("{PROGRAM}={program}"));
        self.command.arg(own);
        self.name += &format!(" {count} × {program}");
        self
    }

    /// One process without `mpirun`.
    pub(crate) fn alone(program: &str) -> Job {
        let own = env::current_exe().expect("a program knows its file");
        let mut command = Command::new(own);
        command.env(PROGRAM, program);
        Job {
            command,
            name: format!("{program} alone"),
        }
    }

    #[track_caller]
    pub(crate) fn passes(self) -> Ended {
        let name = self.name.clone();
        let ended = self.end(|_| ());
        assert!(ended.succeeded, "{name} failed:\n{}", ended.text);
        ended
    }

    #[track_caller]
    pub(crate) fn fails(self) -> Ended {
        let name = self.name.clone();
        let ended = self.end(|_| ());
        assert!(!ended.succeeded, "{name} passed:\n{}", ended.text);
        ended
    }

    /// Waits for the end of the job. `look` sees each line.
    #[track_caller]
    pub(crate) fn end(mut self, mut look: impl FnMut(&str)) -> Ended {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("mpirun is installed");
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                }
            });
        }
        drop(sender);
        let mut text = String::new();
        loop {
            match lines.recv_timeout(MOST_TIME) {
                Ok(line) => {
                    look(&line);
                    text += &line;
                    text.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    kill(&mut child);
                    panic!("{} hangs:\n{text}", self.name);
                }
            }
        }
        let status = child.wait().expect("it was started");
        Ended {
            succeeded: status.success(),
            text,
        }
    }
}

/// `mpirun` ends its ranks when it ends.
fn kill(child: &mut Child) {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    thread::sleep(Duration::from_secs(2));
    let _ = child.kill();
    let _ = child.wait();
}

/// The program that starts ranks. A machine may have those of several MPIs.
fn starter() -> String {
    env::var("LAPIDARY_MPIRUN").unwrap_or_else(|_| "mpirun".into())
}

/// It refuses to run as root, or with more ranks than cores, unless it is told to.
pub(crate) fn is_open_mpi() -> bool {
    let version = Command::new(starter()).arg("--version").output();
    let version = version.expect("mpirun is installed").stdout;
    String::from_utf8_lossy(&version).contains("Open MPI")
}
